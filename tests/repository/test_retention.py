"""Retention: what is too old or too much is trimmed, at the end of a batch, and nothing else is."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.repository.test_leader import create as create_led
from tests.repository.test_sequencer import record, roll
from tests.servers import TIMEOUT_S, Servers, append, batch, run, servers

import varlog
from varlog.base.errors import InvalidArgument, Sealed, VarlogError
from varlog.repository import reconfigure
from varlog.repository.sealing import seal_members
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LOOK_MS = 50


@asynccontextmanager
async def cluster_of(folder: Path, nodes: int = 1) -> AsyncIterator[tuple[Servers, varlog.Cluster]]:
    async with (
        servers(folder, nodes, retention_ms=LOOK_MS) as made,
        varlog.connect(f"varlog://{made.repository_address}") as cluster,
    ):
        yield made, cluster


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.02)


async def trimmed(log: varlog.Log) -> int:
    return (await log.info()).trimmed


async def looks() -> None:
    """Time for some of them, in which nothing is to happen."""
    await asyncio.sleep(4 * LOOK_MS / 1000)


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_what_is_too_old_goes_batch_by_batch(tmp_path: Path, ordering: str) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (made, cluster):
            log, other = [
                await cluster.create_log(name, ordering=ordering, replicas=1, retain_seconds=1.0)
                for name in ("orders", "others")
            ]
            for each in (log, other):
                await each.append_batch([b"a", b"b", b"c"])
            await append_from_the_future(made, log, b"d", b"e")
            await until(lambda: _is(log, 3))
            await until(lambda: _is(other, 3))  # all of it is old by now, and nothing new comes
            await looks()
            assert [entry.payload async for entry in log.subscribe(4, stop=6)] == [b"d", b"e"]
            assert await trimmed(log) == 3
            assert ((await log.append(b"f")).glsn, (await other.append(b"f")).glsn) == (6, 4)

    run(story())


async def append_from_the_future(made: Servers, log: varlog.Log, *payloads: bytes) -> None:
    """By a sender whose clock says so; to the only stream, on the only node."""
    peer = await made.to_node(1)
    request = pb.AppendRequest(log=(await log.info()).id, segment=1, stream=1)
    await peer.call(Method.APPEND, request, [encode_batch(payloads, time_us=1 << 52)], timeout=TIMEOUT_S)
    peer.close()


async def _is(log: varlog.Log, point: int) -> bool:
    return await trimmed(log) >= point


def test_segments_that_are_too_old_go_whatever_their_senders_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (made, cluster):
            log = await cluster.create_log("orders", replicas=1)
            await append_from_the_future(made, log, b"one")
            await log.reconfigure(roll=True, retain_seconds=1.0)
            await until(lambda: _is(log, 1))

    run(story())


def test_what_is_too_much_goes_and_at_least_so_much_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (_, cluster):
            log = await cluster.create_log("orders", replicas=1, streams=2)
            for number in range(60):
                await log.append_batch([bytes(10_000)] * 10)  # 6 MB, in files of 1 MiB
                if number == 20:
                    await log.reconfigure(roll=True)
            await log.reconfigure(retain_bytes=2 << 20)
            await until(lambda: _is(log, 600 - (3 << 20) // 10_000))
            await looks()
            point = await trimmed(log)
            assert point % 10 == 0, "a batch is not cut"
            kept = (600 - point) * 10_000
            assert 2 << 20 <= kept <= 3 << 20
            await log.reconfigure(retain_bytes=0)
            await log.append_batch([bytes(10_000)] * 100)
            await looks()
            assert await trimmed(log) == point

    run(story())


def test_what_is_not_committed_is_not_among_what_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path, 2) as (made, cluster):
            log = await cluster.create_log("orders", ordering="leader", replicas=2)
            for _ in range(20):
                await log.append_batch([bytes(10_000)] * 10)
            described = await log.reconfigure(roll=True)
            await made.stop_node(described.chain[-1].streams[0].members[1])
            # These are on their leader's disk alone.
            lone = [log.append_batch([bytes(10_000)] * 10, timeout=0.5) for _ in range(20)]
            assert all(isinstance(each, VarlogError) for each in await asyncio.gather(*lone, return_exceptions=True))
            await log.reconfigure(retain_bytes=1 << 20)
            await until(lambda: _is(log, 1))
            await looks()
            assert (200 - await trimmed(log)) * 10_000 >= 1 << 20

    run(story())


def test_a_stream_that_cannot_be_asked_keeps_everything(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path, 2) as (made, cluster):
            log = await cluster.create_log("orders", replicas=1, streams=2)
            await log.append(b"one", stream=1)
            await log.append(b"two", stream=2)
            await made.stop_node(2)
            await log.reconfigure(retain_seconds=1.0)

            async def told() -> bool:
                return "cannot be asked" in (await cluster.status()).logs[0].trouble

            await until(told)
            assert await trimmed(log) == 0
            await made.start_node(2)
            await until(lambda: _is(log, 2))

    run(story())


def test_a_sealed_log_changes_what_it_keeps_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (_, cluster):
            log = await cluster.create_log("orders", replicas=1)
            await log.append_batch([b"a", b"b"])
            await log.seal()
            with pytest.raises(Sealed, match="retain_seconds"):
                await log.reconfigure(replicas=1, retain_seconds=1.0)
            described = await log.reconfigure(retain_seconds=1.0, retain_bytes=1 << 20)
            assert (described.retain_seconds, described.retain_bytes) == (1.0, 1 << 20)
            await until(lambda: _is(log, 2))

    run(story())


def test_a_sealed_log_with_too_few_members_gets_no_other_segment(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, 3, lost_ms=50, silent_ms=600) as made,
            varlog.connect(f"varlog://{made.repository_address}") as cluster,
        ):
            log = await cluster.create_log("orders", ordering="leader", replicas=3, ack=2)
            await made.stop_node(3)

            async def thin() -> bool:
                return len((await log.info()).chain[-1].streams[0].members) == 2

            await until(thin)
            end = await log.seal()
            assert (await log.reconfigure(retain_seconds=60)).chain[-1].end == end == await log.tail() + 1

    run(story())


def test_what_is_not_archived_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (_, cluster):
            log = await cluster.create_log("orders", replicas=1, retain_seconds=1.0, retain_archived=True)
            await log.append_batch([b"%d" % number for number in range(9)])
            await asyncio.sleep(1.0)
            await looks()
            assert await trimmed(log) == 0
            empty = varlog.ArchiveDescription("file:///archive", "", "", "", 1, 1)
            await log.record_archive(empty, expected=0)
            await log.record_archive(replace(empty, metadata="file:///archive/1.json", stop=5), expected=1)
            await until(lambda: _is(log, 4))
            await looks()
            assert await trimmed(log) == 4
            await log.reconfigure(retain_archived=False)
            await until(lambda: _is(log, 9))

    run(story())


def test_limits_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_of(tmp_path) as (_, cluster):
            wrongs: list[dict[str, Any]] = [
                {"retain_bytes": 10},
                {"retain_seconds": 0.1},
                {"retain_seconds": -1},
                {"retain_archived": True},
            ]
            for wrong in wrongs:
                with pytest.raises(InvalidArgument, match="retain"):
                    await cluster.create_log("orders", replicas=1, **wrong)

    run(story())


def test_a_segment_begins_when_the_one_before_it_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is as old as the next segment is all that is in this one: retention goes by that."""
    sent_us = 0

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await create_led(cluster)
            peer = await cluster.to_node(log.chain[0].streams[0].members[0])

            async def seal(*arguments: Any) -> object:
                nonlocal sent_us
                await asyncio.sleep(0.05)
                sent_us = time.time_ns() // 1000
                await append(peer, log, batch(b"late"))
                return await seal_members(*arguments)

            monkeypatch.setattr(reconfigure, "seal_members", seal)
            assert (await roll(cluster)).end == 2
            assert (await record(cluster)).chain[1].created_us >= sent_us > 0

    run(story())
