"""Logs under `sequencer` as the repository sees them: settings, and where a segment of several streams ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.repository.test_leader import next_segment
from tests.repository.test_reconfigure import Load, check_chain
from tests.servers import TIMEOUT_S, Servers, batch, run, servers

import varlog
from varlog.base.errors import InvalidArgument, Junk, NotWritten, Unavailable
from varlog.base.ids import Glsn, LogId
from varlog.base.limits import BATCH_ENTRIES
from varlog.client import chain, questions, tail
from varlog.client.context import LogContext
from varlog.client.routes import Routes
from varlog.core.ordering.sequencer import DEFAULT_UNIT, Stripes
from varlog.repository import service
from varlog.repository.catalog import Catalog
from varlog.repository.sealing import stripes_of
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def create(cluster: Servers, *, replicas: int = 2, streams: int = 2, unit: int = 1) -> pb.LogInfo:
    peer = await cluster.to_repository()
    request = pb.CreateLogRequest(name="orders", ordering="sequencer", replicas=replicas, streams=streams, unit=unit)
    log = (await peer.call(Method.CREATE_LOG, request, timeout=TIMEOUT_S)).message
    assert isinstance(log, pb.LogInfo)
    return log


async def record(cluster: Servers) -> pb.LogInfo:
    peer = await cluster.to_repository()
    log = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S)).message
    assert isinstance(log, pb.LogInfo)
    return log


async def roll(cluster: Servers) -> pb.SegmentInfo:
    """Begin another segment; the one before it."""
    peer = await cluster.to_repository()
    log = await record(cluster)
    request = pb.ReconfigureLogRequest(log=log.id, roll=True)
    await peer.call(Method.RECONFIGURE_LOG, request, timeout=TIMEOUT_S)
    return (await record(cluster)).chain[-2]


async def ended(cluster: Servers) -> pb.SegmentInfo:
    """The first segment, once another has followed it."""
    while len((log := await record(cluster)).chain) == 1:
        await asyncio.sleep(0.02)
    return log.chain[0]


async def write(cluster: Servers, log: pb.LogInfo, glsn: int, *, members: int = 2) -> None:
    """An entry at its position, on the first members of its chain, as a client does it that dies then."""
    index, slot = stripes_of(log.chain[0]).place(glsn)
    stream = log.chain[0].streams[index]
    for member in stream.members[:members]:
        peer = await cluster.to_node(member)
        request = pb.StoreRequest(log=log.id, segment=1, stream=stream.id, slot=slot, base=1)
        await peer.call(Method.STORE, request, [batch(b"%d" % glsn, sequence=glsn)], timeout=TIMEOUT_S)


async def finished(cluster: Servers, log: pb.LogInfo, node: int) -> None:
    """The node has all of its replica of the second stream, up to its end."""
    peer = await cluster.to_node(node)
    request = pb.StoreRequest(log=log.id, segment=1, stream=log.chain[0].streams[1].id)
    while (await peer.call(Method.STORE, request, timeout=TIMEOUT_S)).message.state != pb.REPLICA_FINISHED:
        await asyncio.sleep(0.02)


def ends(segment: pb.SegmentInfo) -> list[tuple[int, int | None]]:
    """Where each stream ends, and from where on it is junk."""
    return [(each.end_slot, each.junk_slot if each.HasField("junk_slot") else None) for each in segment.streams]


async def all_of(cluster: Servers, expected: dict[int, bytes], tail: int) -> None:
    """What everybody reads."""
    async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
        log = client.log("orders")
        assert await log.tail() == tail
        found = {entry.glsn: entry.payload async for entry in log.subscribe(1, tail + 1)}
        assert found == expected
        for glsn in range(1, tail + 1):
            if glsn not in expected:
                with pytest.raises(Junk) as junk:
                    await log.read(glsn)
                assert junk.value.glsn == glsn


def test_positions_that_no_member_has_are_junk_up_to_the_last_that_all_have(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            log = await create(cluster)
            for glsn in (1, 3, 5):
                await write(cluster, log, glsn)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (6, [(3, None), (2, 0)])
            await all_of(cluster, {1: b"1", 3: b"3", 5: b"5"}, 5)

    run(story())


def test_nothing_is_filled_before_the_record_says_where_the_junk_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who seals again after a failure would take junk for what was written."""
    plain = Catalog.change_log
    filled: list[bool] = []

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            log = await create(cluster)
            for glsn in (1, 3, 5):
                await write(cluster, log, glsn)
            second = log.chain[0].streams[1].id

            async def change_log(self: Catalog, number: LogId, change: Callable[[pb.LogInfo], None]) -> pb.LogInfo:
                replicas = [replica for node in cluster.nodes.values() for replica in node.replicas.all()]
                theirs = [replica.log for replica in replicas if replica.id.stream == second]
                filled.append(any(each.appended or each.end is not None for each in theirs))
                return await plain(self, number, change)

            monkeypatch.setattr(Catalog, "change_log", change_log)
            assert ends(await roll(cluster)) == [(3, None), (2, 0)]
            assert filled, "the record has changed"
            assert not any(filled)
            for node in log.chain[0].streams[1].members:
                await finished(cluster, log, node)

    run(story())


def test_what_only_some_members_have_is_not_in_the_log_if_all_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            log = await create(cluster)
            await write(cluster, log, 1)
            for glsn in (2, 3, 4):
                await write(cluster, log, glsn, members=1)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (2, [(1, None), (0, None)])
            await all_of(cluster, {1: b"1"}, 1)

    run(story())


def test_what_a_member_has_those_before_it_have_had_whatever_their_disks_lost(tmp_path: Path) -> None:
    """The last one may have answered for it, and is silent."""

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            _, middle, last = log.chain[0].streams[0].members
            await write(cluster, log, 1, members=3)
            request = pb.StoreRequest(log=log.id, segment=1, stream=1, slot=1, base=1)
            lost_by_the_head = batch(b"2", sequence=2)
            await (await cluster.to_node(middle)).call(Method.STORE, request, [lost_by_the_head], timeout=TIMEOUT_S)
            await cluster.stop_node(last)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (3, [(2, None)])
            await all_of(cluster, {1: b"1", 2: b"2"}, 2)

    run(story())


def test_what_a_silent_member_may_have_is_in_the_log(tmp_path: Path) -> None:
    """It may have answered for it. When it is back it is like the others."""

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            log = await create(cluster)
            first, second = (list(stream.members) for stream in log.chain[0].streams)
            assert not set(first) & set(second)
            await write(cluster, log, 1)
            for glsn in (2, 4):
                await write(cluster, log, glsn, members=1)
            await cluster.stop_node(second[1])
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (5, [(2, 1), (2, None)])
            await cluster.start_node(second[1])
            await finished(cluster, log, second[1])
            await cluster.stop_node(second[0])
            await all_of(cluster, {1: b"1", 2: b"2", 4: b"4"}, 4)

    run(story())


def test_a_segment_of_which_nothing_was_written_ends_where_it_began(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            await create(cluster)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (1, [(0, None), (0, None)])
            assert (await record(cluster)).chain[-1].base == 1
            await all_of(cluster, {}, 0)

    run(story())


@pytest.mark.parametrize("index", [0, 1])
def test_a_sequencer_or_head_that_was_started_again_is_replaced(tmp_path: Path, index: int) -> None:
    """Nobody waits for a loss that is none: the node is there, but knows no more what it granted, or may have lost what
    it had decided."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster, replicas=3, streams=2)
            await write(cluster, log, 1, members=3)
            head = log.chain[0].streams[index].members[0]
            assert head != log.chain[0].streams[1 - index].members[0]
            await cluster.stop_node(head)
            await cluster.start_node(head)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                info = await next_segment(client.log("orders"), 2)
                assert info.chain[1].base == info.chain[0].end == 2
                assert (await client.log("orders").append(b"2")).glsn == 2

    run(story())


def test_appends_go_on_without_the_repository(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lease_ms=1000) as cluster:
            await create(cluster, replicas=3, streams=2)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                log = client.log("orders")
                assert (await log.append(b"a")).glsn == 1
                await cluster.stop_repository()
                await asyncio.sleep(1.2)  # longer than the lease
                assert [(await log.append(b"%d" % number)).glsn for number in range(3)] == [2, 3, 4]

    run(story())


def test_settings_that_make_no_sense_are_refused() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            settings = ({"ack": 4}, {"unit": BATCH_ENTRIES + 1}, {"unit": 0}, {"streams": 5000})
            wrongs: list[dict[str, Any]] = list(settings)
            for wrong in wrongs:
                with pytest.raises(InvalidArgument):
                    await cluster.create_log("orders", ordering="sequencer", replicas=3, **wrong)
            for ordering in ("cut", "leader"):
                with pytest.raises(InvalidArgument, match="unit"):
                    await cluster.create_log("orders", ordering=ordering, unit=4)
            log = await cluster.create_log("orders", ordering="sequencer", replicas=3, ack=3)
            info = await log.info()
            assert (info.chain[0].unit, info.chain[0].ack) == (DEFAULT_UNIT, 3)
            with pytest.raises(Unavailable):
                await log.reconfigure(replicas=4)

    run(story())


def test_stripes_change_with_the_segment() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            log = await cluster.create_log("orders", ordering="sequencer", replicas=2, streams=2, unit=2)
            for number in range(1, 6):
                assert (await log.append(b"%d" % number)).glsn == number
            info = await log.reconfigure(unit=1, streams=3)
            assert (info.chain[1].unit, info.streams, len(info.chain)) == (1, 3, 2)
            stripes = Stripes(Glsn(info.chain[1].base), 1, 3)
            acks = [await log.append(b"%d" % number) for number in range(6, 12)]
            assert [ack.glsn for ack in acks] == list(range(6, 12))
            streams = [stream.id for stream in info.chain[1].streams]
            assert [ack.stream for ack in acks] == [streams[stripes.place(ack.glsn)[0]] for ack in acks]
            with pytest.raises(InvalidArgument, match="larger than a stripe"):
                await log.append_batch([b"x", b"y"])
            assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [b"%d" % n for n in range(1, 12)]
            assert (await log.reconfigure(ordering="cut")).chain[-1].unit == 0

    run(story())


def test_a_running_log_is_switched_in_all_six_directions() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=4) as cluster:
            log = await cluster.create_log("orders", ordering="cut", streams=2)
            load = Load(log)
            for ordering in ("leader", "cut", "sequencer", "leader", "sequencer", "cut"):
                await load.some(30)
                streams, unit = (2, 16) if ordering == "sequencer" else (None, None)
                info = await log.reconfigure(ordering=ordering, streams=streams, unit=unit)
                assert info.chain[-1].ordering == info.ordering == ordering
            await load.some(30)
            await load.stop(junk=True)
            check_chain(await log.info(), 7)

    run(story())


async def grant(cluster: Servers, log: pb.LogInfo, count: int) -> None:
    """Positions that nobody writes unless told to."""
    stream = log.chain[0].streams[0]
    request = pb.GrantRequest(log=log.id, segment=1, stream=stream.id, count=count, base=1)
    peer = await cluster.to_node(stream.members[0])
    while True:
        try:
            await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)
        except Unavailable:
            await asyncio.sleep(0.02)  # it is yet to be told that it may
        else:
            return


def test_what_is_granted_and_not_written_is_not_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            log = await create(cluster)
            for _ in range(3):
                await grant(cluster, log, 1)
            peer = await cluster.to_repository()
            await write(cluster, log, 1)
            await write(cluster, log, 2)
            await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=2), timeout=TIMEOUT_S)
            monkeypatch.setattr(service, "LED_TAIL_S", 0.1)
            with pytest.raises(NotWritten) as refused:
                await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=3), timeout=TIMEOUT_S)
            assert refused.value.value == 2
            assert (await record(cluster)).trimmed == 2

    run(story())


def test_what_was_granted_before_the_log_was_sealed_is_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sealed between the sequencer's answer and the look whether all of it is written."""
    plain = questions.complete_last_segment
    asked: list[int] = []

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await create(cluster, streams=1)
            [stream] = log.chain[0].streams
            await write(cluster, log, 1)
            head = await cluster.to_node(stream.members[0])
            grant = pb.GrantRequest(log=log.id, segment=1, stream=stream.id, count=3, base=1)
            while (await head.call(Method.GRANT, grant, timeout=TIMEOUT_S)).message.first < 4:
                pass

            async def complete(context: LogContext, last: questions.LastSegment, end: int) -> None:
                asked.append(end)
                if len(asked) == 1:
                    assert await client.log("orders").seal() == 2
                    await context.routes.refresh(TIMEOUT_S)
                await plain(context, last, end)

            for module in (tail, questions):
                monkeypatch.setattr(module, "complete_last_segment", complete)
            assert await client.log("orders").tail() == 1
            assert asked[0] > 4, "so much was granted"

    run(story())


def test_what_was_granted_in_a_segment_that_a_client_has_not_heard_of_is_no_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told how far positions are granted, and has to see that they are written."""

    async def deaf(self: Routes) -> bool:
        await asyncio.get_running_loop().create_future()
        return False

    monkeypatch.setattr(Routes, "_watch_once", deaf)
    monkeypatch.setattr(chain, "FILL_SECONDS", 0.1)

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as one,
            varlog.connect(f"varlog://{cluster.repository_address}") as two,
        ):
            log = await one.create_log("orders", ordering="leader", replicas=2)
            await log.append(b"a")
            await two.log("orders").reconfigure(ordering="sequencer", streams=1)
            segment = (await record(cluster)).chain[1]
            [stream] = segment.streams
            head = await cluster.to_node(stream.members[0])
            grant = pb.GrantRequest(log=1, segment=2, stream=stream.id, count=3, base=segment.base)
            assert (await head.call(Method.GRANT, grant, timeout=TIMEOUT_S)).message.first == 2
            tail = await log.tail()
            assert tail == 4
            assert await two.log("orders").seal() == tail + 1

    run(story())
