"""The client against real nodes and a real repository, in one process."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.client.scripted import run

import varlog
from varlog import Cluster, Entry

Story = Callable[[Cluster], Coroutine[Any, Any, None]]


def on_cluster(story: Story, nodes: int = 3, folder: Path | None = None) -> None:
    async def told() -> None:
        async with varlog.local_cluster(nodes=nodes, folder=folder) as cluster:
            await story(cluster)

    run(told())


def test_the_surface_in_one_go() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("orders", ordering="cut", replicas=3, streams=2)
        ack = await log.append(b"one")
        assert (ack.glsn, ack.first, ack.last) == (1, 1, 1)
        ack = await log.append_batch([b"a", b"b"], key=b"user-7")
        assert (ack.first, ack.last) == (2, 3)
        ack = await log.append(b"x", headers={"kind": b"test"})
        with pytest.raises(varlog.Unsupported):
            await log.append(b"y", expect=ack.last + 1)
        async with log.producer(linger=0.002, id="etl-1") as producer:
            future = await producer.send(b"fast")
            await producer.flush()
            assert (await future).glsn == 5
        entry = await log.read(ack.glsn)
        assert (entry.payload, entry.headers) == (b"x", {"kind": b"test"})
        entries = [entry async for entry in cluster.log("orders").subscribe(start=1, stop=6)]
        assert [each.payload for each in entries] == [b"one", b"a", b"b", b"x", b"fast"]
        assert [each.glsn for each in entries] == [1, 2, 3, 4, 5]
        rows = [row async for batch in log.subscribe(1, 6).batches() for row in batch.to_arrow().to_pylist()]
        assert [row["key"] for row in rows] == [None, b"user-7", b"user-7", None, None]
        assert await log.tail() == 5
        assert await log.find(entries[-1].time) <= 5
        assert await log.find(0) == 1
        await log.trim(2)
        with pytest.raises(varlog.Trimmed) as trimmed:
            await log.read(2)
        assert trimmed.value.first == 3
        assert [entry.glsn async for entry in log.subscribe(None, wait=False)] == [3, 4, 5]
        assert log.capabilities == {"atomic_batch", "many_streams", "many_writers"}
        assert await log.seal() == 6
        with pytest.raises(varlog.Sealed) as sealed:
            await log.append(b"z")
        assert sealed.value.end == 6
        assert [entry.glsn async for entry in log.subscribe(None)] == [3, 4, 5]

    on_cluster(story)


def test_a_scan_of_one_stream_ends_wherever_its_stop_lies() -> None:
    """Also where the stream goes on only beyond it, between entries of another stream."""

    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=1, streams=2)
        for position in range(1, 13):
            await log.append(b"", stream=1 + (position - 1) // 3 % 2)
        for stop, wait in product(range(1, 14), (False, True)):
            found = [entry.glsn async for entry in log.subscribe(1, stop, stream=1, wait=wait)]
            assert found == [each for each in (1, 2, 3, 7, 8, 9) if each < stop]

    on_cluster(story, nodes=1)


def test_many_writers_and_readers_agree() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=3, streams=3)
        acked: dict[int, bytes] = {}

        async def single(writer: int) -> None:
            for number in range(40):
                payload = b"s%d-%d" % (writer, number)
                acked[(await log.append(payload)).glsn] = payload

        async def batches(writer: int) -> None:
            for number in range(20):
                payloads = [b"b%d-%d-%d" % (writer, number, index) for index in range(number % 7 + 1)]
                ack = await log.append_batch(payloads)
                assert ack.last - ack.first + 1 == len(payloads)
                acked.update(zip(range(ack.first, ack.last + 1), payloads, strict=True))

        async def produce(writer: int) -> None:
            async with log.producer(linger=0, max_batch_bytes=2000) as producer:
                futures = [(await producer.send(b"p%d-%d" % (writer, number)), number) for number in range(300)]
            positions = [future.result().glsn for future, _ in futures]
            assert positions == sorted(positions)
            for future, number in futures:
                acked[future.result().glsn] = b"p%d-%d" % (writer, number)

        reading = [asyncio.ensure_future(read(count=1000)) for read in [_reader(log, start) for start in (1, 1, 500)]]
        await asyncio.gather(*(work(writer) for writer in range(4) for work in (single, batches, produce)))
        tail = await log.tail()
        assert sorted(acked) == list(range(1, tail + 1))
        whole = [entry async for entry in log.subscribe(wait=False)]
        assert {entry.glsn: entry.payload for entry in whole} == acked
        assert [entry.glsn for entry in whole] == list(range(1, tail + 1))
        for start, entries in zip((1, 1, 500), await asyncio.gather(*reading), strict=True):
            assert entries == whole[start - 1 : start - 1 + len(entries)]
        by_stream = [[entry async for entry in log.subscribe(stream=number, wait=False)] for number in (1, 2, 3)]
        assert sorted((entry for entries in by_stream for entry in entries), key=lambda entry: entry.glsn) == whole
        for entries in by_stream:
            assert [entry.slot for entry in entries] == list(range(len(entries)))

    on_cluster(story)


def _reader(log: varlog.Log, start: int) -> Callable[..., Coroutine[Any, Any, list[Entry]]]:
    async def read(count: int) -> list[Entry]:
        found: list[Entry] = []
        async for entry in log.subscribe(start):
            found.append(entry)
            if len(found) == count:
                break
        return found

    return read


def test_every_position_of_odd_batches_reads_right() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=2, streams=2)
        random = Random(7)
        payloads: list[bytes] = []
        for size in (1, 3, 1000, 1, 17):
            batch = [random.randbytes(random.randrange(200)) for _ in range(size)]
            await log.append_batch(batch, compress=size == 1000)
            payloads += batch
        for glsn in (1, 2, 4, 5, 504, 1004, 1005, 1006, 1022):
            assert (await log.read(glsn)).payload == payloads[glsn - 1]
        for start, stop in ((1, 2), (3, 700), (5, 1005), (700, 701), (1005, 1023)):
            found = [entry.payload async for entry in log.subscribe(start, stop)]
            assert found == payloads[start - 1 : stop - 1]
        await log.trim(600)
        assert [entry.payload async for entry in log.subscribe(601, wait=False)] == payloads[600:]
        with pytest.raises(varlog.NotWritten) as beyond:
            await log.read(1023)
        assert beyond.value.tail == 1022
        with pytest.raises(varlog.NotWritten):
            await log.trim(2000)

    on_cluster(story)


def test_logs_come_and_go() -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.logs() == []
        one = await cluster.create_log("one", replicas=1)
        two = await cluster.create_log("two", replicas=3, streams=2)
        await one.append(b"a")
        assert await two.tail() == 0
        assert [info.name for info in await cluster.logs()] == ["one", "two"]
        with pytest.raises(varlog.AlreadyExists):
            await cluster.create_log("one")
        await cluster.remove_log("one")
        with pytest.raises(varlog.NotFound):
            await cluster.remove_log("one")
        with pytest.raises(varlog.NotFound):
            await one.append(b"b", timeout=5)
        with pytest.raises(varlog.NotFound):
            await one.tail()
        again = await cluster.create_log("one", replicas=1)
        assert (await again.append(b"c")).glsn == 1
        assert (await one.append(b"d")).glsn == 2
        assert [node.connected for node in await cluster.nodes()] == [True] * 3
        status = await cluster.status()
        assert {log.log.name: log.tail for log in status.logs} == {"one": 2, "two": 0}
        with pytest.raises(varlog.VarlogError):
            await cluster.create_log("wide", replicas=5)
        with pytest.raises(varlog.Unsupported):
            await cluster.create_log("other", ordering="chance")

    on_cluster(story)


def test_a_named_producer_survives_its_process(tmp_path: Path) -> None:
    async def life(cluster: Cluster) -> None:
        if not await cluster.logs():
            await cluster.create_log("log", replicas=3, streams=2)
        log = cluster.log("log")
        async with log.producer(id="job") as producer:
            futures = [await producer.send_batch([b"%d" % number, b"+"], sequence=number) for number in range(5)]
        assert [future.result().first for future in futures] == [1, 3, 5, 7, 9]
        assert await log.tail() == 10

    for _ in range(2):
        on_cluster(life, folder=tmp_path)


def test_many_entries_in_a_row_stay_within_bounds() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=1)
        most = 0
        async with log.producer(max_in_flight_bytes=4 << 20) as producer:
            for number in range(200_000):
                await producer.send(b"%100d" % number)
                if number % 1000 == 0:
                    most = max(most, producer._used)
        assert most < 5 << 20
        assert await log.tail() == 200_000
        count = 0
        async for batch in log.subscribe(wait=False).batches():
            assert batch.first == count + 1
            count += len(batch)
        assert count == 200_000

    on_cluster(story, nodes=1)
