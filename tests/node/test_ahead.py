"""Stores that come before their turn, under `sequencer`: over a real connection, in any order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.node.test_sequencer import ELSEWHERE, contents, open_replica, seal, store
from tests.servers import batch, run, servers

from varlog.base.errors import Gap, Overloaded, Sealed
from varlog.node import ahead
from varlog.transport.peer import Peer
from varlog.wire.proto import varlog_pb2 as pb


@asynccontextmanager
async def one_member(folder: Path) -> AsyncIterator[Peer]:
    async with servers(folder, nodes=1) as cluster:
        peer = await cluster.to_node(1)
        await open_replica(peer, ELSEWHERE, 1)
        yield peer


async def sent(peer: Peer, slot: int, data: bytes) -> "asyncio.Task[pb.ReplicaStatus]":
    """A store that is on its way, and has arrived."""
    task = asyncio.create_task(store(peer, slot, data))
    await asyncio.sleep(0)
    await store(peer, 0)
    return task


def numbered(count: int) -> list[bytes]:
    return [batch(b"%d" % number, sequence=number) for number in range(count)]


def test_stores_in_any_order_lie_in_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            batches = numbered(6)
            early = [await sent(peer, slot, batches[slot]) for slot in (4, 1, 2, 5)]
            status = await store(peer, 0)
            assert (status.contiguous, status.ahead) == (0, 1), "nothing that is held is there"
            assert await contents(peer) == []
            await store(peer, 0, batches[0])
            assert (await early[1]).contiguous >= 3
            assert (await early[2]).contiguous >= 3
            assert (await store(peer, 0)).ahead == 4
            await store(peer, 3, batches[3])
            assert {(await early[0]).contiguous, (await early[3]).contiguous} == {6}
            assert (await store(peer, 0)).ahead == 0
            assert await contents(peer) == list(enumerate(batches))

    run(story())


def test_one_whose_turn_does_not_come_hears_what_is_missing(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            await store(peer, 0, batch(b"a"))
            with pytest.raises(Gap) as gap:
                await store(peer, 5, batch(b"z"))
            assert gap.value.expected == 1
            assert (await store(peer, 0)).ahead == 0, "it is not kept"

    run(story())


def test_of_two_for_one_slot_the_later_is_held(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            early = await sent(peer, 1, batch(b"early"))
            late = await sent(peer, 1, batch(b"late"))
            with pytest.raises(Gap):
                await early
            await store(peer, 0, batch(b"a"))
            assert (await late).contiguous == 2
            assert await contents(peer) == [(0, batch(b"a")), (1, batch(b"late"))]

    run(story())


def test_one_whose_slot_another_went_over_is_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            inside = await sent(peer, 1, batch(b"inside"))
            await store(peer, 0, batch(b"a", b"b"))
            with pytest.raises(Gap) as gap:
                await inside
            assert gap.value.expected == 2

    run(story())


def test_what_is_held_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            held = await sent(peer, 1, batch(bytes(600)))
            with pytest.raises(Overloaded):
                await store(peer, 2, batch(bytes(600)))
            await store(peer, 0, batch(b"a"))
            assert (await held).contiguous == 2
            assert (await store(peer, 2, batch(bytes(600)))).contiguous == 3, "at the end nothing is held"

    monkeypatch.setattr(ahead, "HELD_BYTES", 1000)
    run(story())


def test_a_seal_ends_all_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_member(tmp_path) as peer:
            held = await sent(peer, 1, batch(b"b"))
            status = await seal(peer)
            assert (status.state, status.contiguous) == (pb.REPLICA_SEALED, 0)
            for refused in (held, store(peer, 0, batch(b"a")), store(peer, 9, batch(b"z"))):
                with pytest.raises(Sealed):
                    await refused

    run(story())
