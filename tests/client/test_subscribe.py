"""Subscriptions: in order, without gap or repeat, whatever the replicas do."""

import asyncio
from typing import Any

import pytest
from tests.client.scripted import Node, ScriptedCluster, read_part, run, scripted, stay_silent
from tests.client.test_appends import until
from tests.sim.world import Cluster

from varlog import Entry, Log, Subscription, connect
from varlog.base.errors import Corrupt, InvalidArgument, NotFound, ReplicaFailed, Trimmed, Unavailable
from varlog.base.ids import NodeId
from varlog.client.bounds import Bounds, find_bounds
from varlog.client.limits import PATIENCE_SECONDS
from varlog.sim.host import Process
from varlog.transport.peer import Request
from varlog.wire.batch import encode_batch, read_header


def fill(cluster: ScriptedCluster, *batches: tuple[int, int]) -> None:
    """Commit batches (stream, count) in this order; every payload is its position."""
    for stream, count in batches:
        first = cluster.next_glsn
        data = encode_batch([b"%d" % glsn for glsn in range(first, first + count)], time_us=first)
        cluster.commit(cluster.stream(stream), data, read_header(data))


MIXED = [(1, 3), (2, 1), (2, 4), (1, 1), (3, 2), (1, 5), (3, 1), (2, 2)]
"""19 positions on three streams."""


def positions(entries: list[Entry]) -> list[int]:
    for entry in entries:
        assert entry.payload == b"%d" % entry.glsn
    return [entry.glsn for entry in entries]


async def take(subscription: Subscription, count: int) -> list[Entry]:
    found = []
    async for entry in subscription:
        found.append(entry)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(("start", "stop"), [(1, 20), (5, 8), (6, 7), (19, 20), (2, 19), (7, 7)])
def test_a_scan_gives_exactly_its_range(start: int, stop: int) -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            assert positions([entry async for entry in log.subscribe(start, stop)]) == list(range(start, stop))
            batches = [batch async for batch in log.subscribe(start, stop).batches()]
            assert [glsn for batch in batches for glsn in range(batch.first, batch.last + 1)] == list(
                range(start, stop)
            )

    run(story())


def test_slots_and_streams_are_those_of_the_entries() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            found = [entry async for entry in client.log("log").subscribe(6, 17)]
            assert [(entry.stream, entry.slot) for entry in found] == [
                (2, 2),
                (2, 3),
                (2, 4),
                (1, 3),
                (3, 0),
                (3, 1),
                *((1, slot) for slot in range(4, 9)),
            ]

    run(story())


def test_it_waits_at_the_tail_and_goes_on() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            subscription = client.log("log").subscribe()
            reading = asyncio.ensure_future(take(subscription, 25))
            await asyncio.sleep(0.05)
            assert not reading.done()
            fill(cluster, (3, 4), (1, 5))
            assert positions(await reading) == list(range(1, 26))

    run(story())


def test_without_waiting_it_ends_at_the_tail_of_the_beginning() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            log = client.log("log")
            assert [entry async for entry in log.subscribe(wait=False)] == []
            fill(cluster, *MIXED)
            assert positions([entry async for entry in log.subscribe(wait=False)]) == list(range(1, 20))
            assert positions([entry async for entry in log.subscribe(stop=5, wait=False)]) == [1, 2, 3, 4]
            assert [entry async for entry in log.subscribe(50, wait=False)] == []

    run(story())


def test_one_stream_alone() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            whole = [4, 5, 6, 7, 8, 18, 19]
            assert positions([entry async for entry in log.subscribe(stream=2, wait=False)]) == whole
            assert positions([entry async for entry in log.subscribe(5, 18, stream=2)]) == [5, 6, 7, 8]
            assert positions([entry async for entry in log.subscribe(5, 10, stream=2)]) == [5, 6, 7, 8]
            assert positions([entry async for entry in log.subscribe(1, 20, stream=3)]) == [10, 11, 17]
            assert positions(await take(log.subscribe(6, stream=2), 5)) == [6, 7, 8, 18, 19]
            with pytest.raises(NotFound, match="no stream 9"):
                await take(log.subscribe(stream=9), 1)
            await log.seal()
            assert positions([entry async for entry in log.subscribe(stream=2)]) == whole

    run(story())


@pytest.mark.parametrize("stop", [None, 23, 50])
def test_one_stream_that_has_ended_ends_for_who_begins_behind_it(stop: int | None) -> None:
    """Who goes on where he had read everything is brought nothing, and must be told so."""

    async def work(process: Process) -> None:
        async with connect(small.servers.url, world=process.world) as client:
            log = await client.create_log("log", replicas=1)
            for _ in range(5):
                await log.append(b"x")
            assert await log.seal() == 6
            assert await _all(log.subscribe(6, stop, stream=1)) == []
            assert len(await _all(log.subscribe(5, stop, stream=1))) == 1

    small = Cluster()
    small.run(work)


def test_a_sealed_log_ends() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            waiting = asyncio.ensure_future(_all(log.subscribe()))
            await asyncio.sleep(0.05)
            assert await log.seal() == 20
            assert positions(await waiting) == list(range(1, 20))
            assert positions(await _all(log.subscribe(12))) == list(range(12, 20))
            assert await _all(log.subscribe(20)) == []
            assert await _all(log.subscribe(30)) == []

    run(story())


async def _all(subscription: Subscription) -> list[Entry]:
    return [entry async for entry in subscription]


def test_below_the_trim_point() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            await log.info()
            cluster.info.trimmed = 6  # the client has not heard of it
            with pytest.raises(Trimmed) as trimmed:
                await take(log.subscribe(3), 1)
            assert trimmed.value.first == 7
            assert positions(await take(log.subscribe(None), 3)) == [7, 8, 9]
            assert positions(await take(log.subscribe(7), 3)) == [7, 8, 9]
            await log.info()
            with pytest.raises(Trimmed):
                await take(log.subscribe(6), 1)

    run(story())


def test_one_that_fell_behind_the_trim_point_is_told() -> None:
    async def story() -> None:
        async with scripted(nodes=1) as (cluster, client):
            fill(cluster, (1, 2))
            node = cluster.primary(1)
            subscription = client.log("log").subscribe()
            entries = aiter(subscription)
            assert (await anext(entries)).glsn == 1
            assert (await anext(entries)).glsn == 2

            async def trimmed(_: Node, __: Request) -> None:
                raise Trimmed("gone", 100)

            node.on_read = trimmed
            for peer in list(node.server.peers if node.server else ()):
                peer.close()
            with pytest.raises(Trimmed) as told:
                await anext(entries)
            assert told.value.first == 100

    run(story())


def test_it_moves_to_another_replica_when_its_node_dies() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=2, replicas=3) as (cluster, client):
            fill(cluster, (1, 3), (2, 3))
            entries = aiter(client.log("log").subscribe())
            found = [await anext(entries) for _ in range(6)]
            for round_ in range(3):
                dead = cluster.nodes[round_]
                await dead.stop()
                fill(cluster, (1, 1), (2, 2))
                found += [await anext(entries) for _ in range(3)]
                await dead.start(dead.address)
            assert positions(found) == list(range(1, 16))

    run(story())


def test_it_moves_on_from_a_corrupt_replica_and_reports_when_all_are() -> None:
    async def story() -> None:
        async with scripted(nodes=3, replicas=3) as (cluster, client):
            fill(cluster, (1, 3))

            async def refuse(_: Node, __: Request) -> None:
                raise ReplicaFailed("stopped")

            cluster.nodes[0].on_read = _rotten
            cluster.nodes[1].on_read = refuse
            for _ in range(6):
                assert positions(await take(client.log("log").subscribe(), 3)) == [1, 2, 3]
            cluster.nodes[1].on_read = cluster.nodes[2].on_read = cluster.nodes[0].on_read
            with pytest.raises(Corrupt) as corrupt:
                await take(client.log("log").subscribe(), 1)
            assert "7.1.1 on node" in corrupt.value.replica

    run(story())


async def _rotten(node: Node, request: Request) -> None:
    part, body = read_part(node.cluster.stream(1).batches, 0, 3)
    damaged = bytearray(body[0])
    damaged[-3] ^= 1
    await request.part(part, [bytes(damaged)])
    await stay_silent(node, request)


def test_it_leaves_a_replica_that_is_behind() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2, replicas=2) as (cluster, client):
            fill(cluster, (1, 2), (2, 2), (1, 2), (2, 2))
            cluster.nodes[0].visible = 1  # of each stream, this node has heard of one batch only
            log = client.log("log")
            for start in range(1, 6):
                assert positions(await _all(log.subscribe(start, wait=False))) == list(range(start, 9))
                assert positions(await _all(log.subscribe(stream=2, wait=False))) == [3, 4, 7, 8]
            assert positions(await take(log.subscribe(), 8)) == list(range(1, 9))

    run(story())


def test_nobody_answers_for_too_long() -> None:
    async def story() -> None:
        async with scripted(nodes=2, replicas=2) as (cluster, client):
            fill(cluster, (1, 2))
            entries = aiter(client.log("log").subscribe(patience=0.3))
            assert (await anext(entries)).glsn == 1
            assert (await anext(entries)).glsn == 2
            for node in cluster.nodes:
                await node.stop()
            with pytest.raises(Unavailable):
                await anext(entries)

    run(story())


def test_nobody_has_the_end_of_an_ended_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica is whole but for the end; the other, which had it, has failed: that is said, and where."""
    monkeypatch.setattr("varlog.client.reader.SILENT_SECONDS", 0.05)

    async def story() -> None:
        async with scripted(nodes=2, replicas=2) as (cluster, client):
            fill(cluster, (1, 2), (1, 3))
            cluster.info.sealed = True
            cluster.nodes[0].visible = 1

            async def refuse(_: Node, __: Request) -> None:
                raise ReplicaFailed("rotten")

            cluster.nodes[1].on_read = refuse
            entries = aiter(client.log("log").subscribe(stop=4, patience=0.3))
            assert [(await anext(entries)).glsn for _ in range(2)] == [1, 2]
            with pytest.raises(Unavailable, match=r"node 1 lacks the end of a stream of 5 slots .* from position 3 on"):
                await anext(entries)
            cluster.nodes[1].on_read = None
            assert positions(await _all(client.log("log").subscribe(patience=0.3))) == [1, 2, 3, 4, 5]

    run(story())


@pytest.mark.parametrize(("behind", "patience"), [(False, PATIENCE_SECONDS), (True, PATIENCE_SECONDS), (True, 1.0)])
def test_a_stream_that_nobody_can_read_and_nobody_needs_ends_no_subscription(behind: bool, patience: float) -> None:
    """Its only member is gone for good, before it was asked anything; all that it held lies before the start.

    Who is behind learns where the stream ended before he has come so far, or even that it could not be read.
    """
    cluster = Cluster(nodes=3, lost_ms=3000)

    async def work(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as opened:
            log = await opened.create_log("l", replicas=1, streams=2)
            gone, there = (await log.info()).chain[0].streams
            for stream in (gone, there):
                await log.append(b"", stream=stream.id)
            name, _, _ = log._context.routes.place(NodeId(gone.members[0])).address.partition(":")
            (host,) = (host for host in cluster.servers.nodes if host.name == name)
            host.crash(power_loss=False)
            entries = aiter(log.subscribe(3, patience=patience))
            waiting = asyncio.ensure_future(anext(entries))
            last = 2
            if behind:
                await log.append(b"", stream=there.id)
                assert (await waiting).glsn == 3
                last = (await log.append(b"", stream=there.id)).glsn
            while (await log.info()).chain[0].streams[0].writable:
                await process.clock.sleep(0.1)
            if behind:
                assert (await anext(entries)).glsn == last
                waiting = asyncio.ensure_future(anext(entries))
            await process.clock.sleep(0.1)
            running = [task.get_name() for task in log._context.scope._tasks]
            assert f"read stream {there.id}" in running
            assert f"read stream {gone.id}" not in running
            await process.clock.sleep(2 * PATIENCE_SECONDS)
            assert not waiting.done()
            await log.append(b"")
            assert (await waiting).glsn == last + 1

    cluster.run(work)


def test_the_time_in_which_nothing_is_wanted_tries_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlog.client.feed.READ_AHEAD_BYTES", 1000)
    cluster = Cluster(nodes=2)

    async def work(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as opened:
            log = await opened.create_log("l", replicas=2)
            for _ in range(2):
                await log.append(bytes(600_000))  # more than a part: each comes by itself
            entries = aiter(log.subscribe(patience=1.0))
            await anext(entries)
            await process.clock.sleep(5.0)
            for host in cluster.servers.nodes:
                host.crash(power_loss=False)
                cluster.servers.start(host)
            await log.append(b"", timeout=30.0)
            assert [(await anext(entries)).glsn for _ in range(2)] == [2, 3]

    cluster.run(work)


def test_a_slow_reader_bounds_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlog.client.feed.READ_AHEAD_BYTES", 100_000)

    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            payload = bytes(10_000)
            data = encode_batch([payload] * 10)
            for _ in range(100):
                cluster.commit(cluster.stream(1), data, read_header(data))
            small = encode_batch([b""])
            cluster.commit(cluster.stream(2), small, read_header(small))
            subscription = client.log("log").subscribe()
            batches = subscription.batches()
            first = await anext(batches)
            await asyncio.sleep(0.1)
            assert first.count == 10
            (feed,) = subscription._source.feeds
            assert feed._buffered[1] <= 2 * 10_000_000  # type: ignore[index]
            total = first.count
            async for batch in batches:
                total += batch.count
                if total == 1001:
                    break

    run(story())


def test_leaving_a_loop_stops_the_readers() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log: Log = client.log("log")
            scope = log._context.scope
            await log.info()
            before = len(scope)
            async for entry in log.subscribe():
                assert len(scope) == before + 3
                if entry.glsn == 5:
                    break
            await until(lambda: len(scope) == before)
            async with log.subscribe() as subscription:
                assert (await anext(subscription)).glsn == 1
                assert (await anext(subscription)).glsn == 2
                assert len(scope) == before + 3
            await until(lambda: len(scope) == before)
            assert len(log._context.routes.listeners) == 1

    run(story())


def test_iterating_again_goes_on_where_it_was() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log: Log = client.log("log")
            await log.info()
            at_work = log._context.scope
            before = len(at_work)
            subscription = log.subscribe()
            found = [await anext(subscription)]
            for count in (5, 12):
                async for entry in subscription:
                    found.append(entry)
                    if len(found) == count:
                        break
            assert positions(found) == list(range(1, 13))
            assert len(at_work) == before + 3
            del subscription  # without the garbage collector
            await until(lambda: len(at_work) == before)

    run(story())


def test_a_wait_that_was_cancelled_ends_no_subscription() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            subscription = client.log("log").subscribe()
            assert aiter(subscription) is subscription
            batches = subscription.batches()
            assert positions(await take(subscription, 19)) == list(range(1, 20))
            assert sum([len(await anext(batches)) for _ in MIXED]) == 19
            reads = [len(node.reads) for node in cluster.nodes]
            for _ in range(3):
                for waiting in (anext(subscription), anext(batches)):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(waiting, 0.02)
            assert [len(node.reads) for node in cluster.nodes] == reads, "its readers began again"
            fill(cluster, (1, 2), (2, 2))
            assert positions(await take(subscription, 4)) == [20, 21, 22, 23]
            assert [(await anext(batches)).first for _ in range(2)] == [20, 22]
            assert (await client.log("log").seal()) == 24
            assert await _all(subscription) == []
            assert await _all(subscription) == []

    run(story())


def test_a_wait_may_be_cancelled_anywhere() -> None:
    """Before the log was found, while its readers connect, between parts: each turn waits a little longer."""

    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            subscription = client.log("log").subscribe(stop=30)
            found: list[Entry] = []
            told: list[object] = []
            turn = 0
            while len(found) < 29:
                turn += 1
                waiting = asyncio.ensure_future(anext(subscription))
                for _ in range(turn % 50):
                    await asyncio.sleep(0)
                waiting.cancel("enough")
                try:
                    found.append(await waiting)
                except asyncio.CancelledError as enough:
                    told += enough.args
                if turn % 50 == 0 and cluster.next_glsn < 30:
                    fill(cluster, (turn % 3 + 1, 2))
            assert positions(found) == list(range(1, 30))
            assert len(told) > 5
            assert set(told) == {"enough"}
            assert await _all(subscription) == []

    run(story())


def test_an_error_ends_no_subscription() -> None:
    async def story() -> None:
        async with scripted(nodes=2, replicas=2) as (cluster, client):
            fill(cluster, (1, 2), (1, 3))
            subscription = client.log("log").subscribe(patience=0.3)
            batches = subscription.batches()
            assert positions(await take(subscription, 4)) == [1, 2, 3, 4]
            assert [(await anext(batches)).last for _ in range(2)] == [2, 5]
            for node in cluster.nodes:
                await node.stop()
            assert (await anext(subscription)).glsn == 5, "it was there already"
            for waiting in (subscription, subscription, batches):
                with pytest.raises(Unavailable):
                    await anext(waiting)
            for node in cluster.nodes:
                await node.start(node.address)
            fill(cluster, (1, 2))
            found: list[int] = []
            while len(found) < 3:
                try:
                    found.append((await anext(batches)).first if len(found) == 2 else (await anext(subscription)).glsn)
                except Unavailable:
                    continue  # the nodes are not found again in so short a time, perhaps
            assert found == [6, 7, 6]

    run(story())


def test_one_task_at_a_time_waits() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            fill(cluster, (1, 1))
            subscription = client.log("log").subscribe(2)
            waiting = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0.02)
            with pytest.raises(InvalidArgument, match="another task"):
                await anext(subscription)
            fill(cluster, (1, 1))
            assert (await waiting).glsn == 2

    run(story())


def test_closing_before_the_first_entry_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            fill(cluster, (1, 1))
            subscription = client.log("log").subscribe(stop=2)

            async def closed_meanwhile(*arguments: Any, **options: Any) -> Bounds:
                bounds = await find_bounds(*arguments, **options)
                await subscription.aclose()
                return bounds

            monkeypatch.setattr("varlog.client.subscription.find_bounds", closed_meanwhile)
            assert await _all(subscription) == []
            assert [batch async for batch in subscription.batches()] == []

    run(story())


def test_closing_ends_the_wait_of_another() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            fill(cluster, (1, 1))
            subscription = client.log("log").subscribe()
            waiting = asyncio.ensure_future(_all(subscription))
            await until(lambda: bool(cluster.nodes[0].reads))
            await asyncio.sleep(0.02)
            await subscription.aclose()
            assert positions(await waiting) == [1]

    run(story())


def test_removed_and_closed() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            fill(cluster, (1, 1))
            entries = aiter(client.log("log").subscribe())
            await anext(entries)
            waiting: Any = asyncio.ensure_future(anext(entries))
            await asyncio.sleep(0.02)
            cluster.info.id = 8
            cluster.change()
            with pytest.raises(NotFound, match="removed"):
                await waiting
            entries = aiter(client.log("log").subscribe())
            await anext(entries)
            waiting = asyncio.ensure_future(anext(entries))
            await asyncio.sleep(0.02)
            await client.close()
            with pytest.raises(Unavailable, match="closed"):
                await waiting

    run(story())


def test_unhappy_positions() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            for start in (0, -1, 1 << 63, "1", 1.0, True):
                with pytest.raises(InvalidArgument):
                    log.subscribe(start)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="number of a log stream"):
                log.subscribe(stream="1")  # type: ignore[arg-type]
            with pytest.raises(NotFound):
                await take(client.log("other").subscribe(), 1)

    run(story())
