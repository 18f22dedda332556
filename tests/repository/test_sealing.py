"""Where a segment ends is recorded when as many members as acknowledge have what is before it, or all that can."""

import asyncio
import time
from pathlib import Path
from typing import NoReturn

import pytest
from tests.repository.test_leader import create as create_led
from tests.repository.test_leader import replica
from tests.repository.test_sequencer import all_of, create, ended, ends, record, roll, write
from tests.servers import TIMEOUT_S, Servers, append, batch, run, servers

import varlog
from varlog.base.errors import NoSpace, Unavailable
from varlog.repository.sealing import Sealer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def lose_the_leader(cluster: Servers) -> tuple[int, int]:
    """Two entries are acknowledged, the leader is away, the repository too: who has both of them, and who lacks one."""
    log = await create_led(cluster)
    leader, has, lacks = log.chain[0].streams[0].members
    await cluster.stop_repository()  # or it would mind that a member is sealed
    peer = await cluster.to_node(leader)
    assert (await append(peer, log, batch(b"a"))).message.glsn == 1
    other = await cluster.to_node(lacks)
    await other.call(Method.SEAL, pb.SealRequest(replica=replica(log)), timeout=TIMEOUT_S)
    assert (await append(peer, log, batch(b"b", sequence=1))).message.glsn == 2
    await cluster.stop_node(leader)
    return has, lacks


def test_a_member_takes_what_it_lacks_before_the_end_is_recorded(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            has, lacks = await lose_the_leader(cluster)
            await cluster.start_repository()
            sealed = await ended(cluster)
            assert (sealed.end, sorted(sealed.streams[0].held_by)) == (3, sorted([has, lacks]))
            await cluster.stop_node(has)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                assert [each.payload async for each in client.log("orders").subscribe(1, 3)] == [b"a", b"b"]

    run(story())


def test_one_that_cannot_take_it_is_waited_for_until_it_counts_as_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=1000) as cluster:
            has, lacks = await lose_the_leader(cluster)
            asked: list[float] = []

            async def full(*_: object) -> NoReturn:
                asked.append(asyncio.get_running_loop().time())
                assert len((await record(cluster)).chain) == 1, "nothing is recorded while it is asked"
                raise NoSpace("the volume is full")

            cluster.nodes[lacks].replicas.take_what_is_missing = full  # type: ignore[method-assign, assignment]
            await cluster.start_repository()
            sealed = await ended(cluster)
            assert (sealed.end, list(sealed.streams[0].held_by)) == (3, [has])
            assert asked[-1] - asked[0] > 0.9, "it might have got room"

    run(story())


def test_one_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            log = await create(cluster, streams=1)
            [stream] = log.chain[0].streams
            await write(cluster, log, 1)
            await cluster.stop_node(stream.members[1])
            with pytest.raises(Unavailable, match=f"node {stream.members[1]}"):
                await roll(cluster)
            await cluster.start_node(stream.members[1])
            sealed = await ended(cluster)
            assert (sealed.end, list(sealed.streams[0].held_by)) == (2, list(stream.members))

    run(story())


def test_what_lies_before_the_end_of_another_stream_is_on_all_members_before_it_is_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            log = await create(cluster)
            for glsn in (1, 3):
                await write(cluster, log, glsn)
            await write(cluster, log, 2, members=1)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (4, [(2, None), (1, None)])
            assert [list(each.held_by) for each in sealed.streams] == [list(each.members) for each in sealed.streams]
            await all_of(cluster, {1: b"1", 2: b"2", 3: b"3"}, 3)

    run(story())


def test_a_segment_begins_when_the_one_before_it_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is as old as the next segment is all that is in this one: retention goes by that."""
    plain = Sealer.seal
    sent_us = 0

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await create_led(cluster)
            peer = await cluster.to_node(log.chain[0].streams[0].members[0])

            async def seal(sealer: Sealer, sealed: pb.LogInfo) -> object:
                nonlocal sent_us
                await asyncio.sleep(0.05)
                sent_us = time.time_ns() // 1000
                await append(peer, log, batch(b"late"))
                return await plain(sealer, sealed)

            monkeypatch.setattr(Sealer, "seal", seal)
            assert (await roll(cluster)).end == 2
            assert (await record(cluster)).chain[1].created_us >= sent_us > 0

    run(story())
