"""Reads go through archive and nodes without a seam: in order, no gap, no repeat, by position and by time (I9)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.archive.by_hand import archive
from tests.forked import in_a_fork

import varlog
from varlog.archive import place as place_module
from varlog.archive.files import ArchivedRange, Snapshot
from varlog.archive.place import parse_place
from varlog.archive.reader import FileArchives
from varlog.base.errors import Corrupt, NotFound, NotWritten, Trimmed, Unavailable, Unsupported
from varlog.base.ids import LogId
from varlog.client import feed, lookup, reader
from varlog.client.bounds import Bounds, find_bounds
from varlog.client.questions import committed_slots
from varlog.runtime.loop import run as run_on_loop
from varlog.wire.proto import varlog_pb2 as pb

TEST_S = 60.0
BATCHES = 40


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_S):
            await story

    run_on_loop(bounded())


@asynccontextmanager
async def filled(streams: int = 2, batches: int = BATCHES) -> "AsyncIterator[varlog.Log]":
    """A log of batches of one to four entries, with and without keys and headers."""
    async with varlog.local_cluster(nodes=2) as cluster:
        log = await cluster.create_log("orders", replicas=2, streams=streams)
        for number in range(batches):
            payloads = [b"%d.%d" % (number, index) for index in range(number % 4 + 1)]
            extra: dict[str, Any] = {"key": b"k%d" % number, "headers": {"n": b"%d" % number}} if number % 3 else {}
            await log.append_batch(payloads, **extra)
        yield log


async def scan(log: varlog.Log, start: int | None = 1, stop: int | None = None, **options: Any) -> list[varlog.Entry]:
    return [entry async for entry in log.subscribe(start, stop, wait=False, **options)]


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_reads_go_over_the_seam(tmp_path: Path, ordering: str) -> None:
    async def story() -> None:
        async with filled(1 if ordering == "leader" else 2) as log:
            if ordering == "leader":
                await log.reconfigure(ordering="leader")
                await log.append_batch([b"led", b"on"])
            before = await scan(log)
            tail = len(before)
            await archive(log, tmp_path, 41, file_rows=17, group_rows=5)
            await archive(log, tmp_path, 71)
            await log.trim(60)
            info = await log.info()
            assert (info.first, info.trimmed, info.archived) == (1, 60, 71)
            assert await scan(log) == before
            assert await scan(log, None) == before
            for start, stop in [
                (1, 2),
                (1, 61),
                (13, 61),
                (60, 62),
                (61, 62),
                (18, 35),
                (59, tail + 1),
                (tail, tail + 1),
            ]:
                assert await scan(log, start, stop) == before[start - 1 : stop - 1], (start, stop)
            for stream in {entry.stream for entry in before}:
                assert await scan(log, stream=stream) == [entry for entry in before if entry.stream == stream]
                some = [entry for entry in before if entry.stream == stream and 7 <= entry.glsn < 55]
                assert await scan(log, 7, 55, stream=stream) == some
            for glsn in (1, 17, 18, 41, 60, 61, tail):
                assert await log.read(glsn) == before[glsn - 1]
            batches = [batch async for batch in log.subscribe(1, tail + 1).batches()]
            assert [entry for batch in batches for entry in batch] == before
            assert sum(batch.to_arrow().num_rows for batch in batches) == tail
            with pytest.raises(NotWritten):
                await log.read(tail + 1)

    run(story())


def test_times_on_both_sides(tmp_path: Path) -> None:
    async def story() -> None:
        async with filled() as log:
            before = await scan(log)
            await archive(log, tmp_path, 71, file_rows=17, group_rows=5)
            await log.trim(60)
            for entry in before:
                first = next(other.glsn for other in before if other.time >= entry.time)
                assert await log.find(entry.time) == first
            assert await log.find(datetime(1999, 1, 1, tzinfo=UTC)) == 1
            assert await log.find(datetime.max.replace(tzinfo=UTC)) == len(before) + 1

    run(story())


def test_trimmed_while_a_time_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes give the first entry up after the archive was asked, and before they are."""

    async def story() -> None:
        async with filled() as log:
            before = await scan(log)

            async def trimmed_first(context: Any, timeout: float) -> Any:
                monkeypatch.undo()
                await archive(log, tmp_path, 61)
                await log.trim(60)
                return await committed_slots(context, timeout)

            monkeypatch.setattr(lookup, "committed_slots", trimmed_first)
            assert await log.find(before[29].time) == next(each.glsn for each in before if each.time >= before[29].time)

    run(story())


def test_trimmed_under_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is in the middle of what nodes have moves over to the archive, and back."""
    for module, name in ((feed, "READ_AHEAD_BYTES"), (reader, "READ_WINDOW_BYTES"), (reader, "READ_PART_BYTES")):
        monkeypatch.setattr(module, name, 64 << 10)
    asked: list[tuple[int, int]] = []
    batches = FileArchives.batches

    def watched(self: FileArchives, info: Any, start: Any, stop: Any, stream: Any) -> Any:
        asked.append((start, stop))
        return batches(self, info, start, stop, stream)

    monkeypatch.setattr(FileArchives, "batches", watched)

    async def story() -> None:
        async with filled(batches=30) as log:
            before = await scan(log)
            entries = aiter(log.subscribe())
            got = [await anext(entries) for _ in range(5)]
            payload = bytes(8 << 10)
            await asyncio.gather(*(log.append_batch([payload] * 4) for _ in range(300)))  # more than is read ahead
            tail = await log.tail()
            await archive(log, tmp_path)
            await log.trim(tail - 20)
            got += [await anext(entries) for _ in range(tail - len(got))]
            assert [entry.glsn for entry in got] == list(range(1, tail + 1))
            assert got[: len(before)] == before
            assert len(asked) == 1
            assert asked[0][0] > 5, "it was in the middle of what the nodes had"
            assert asked[0][1] == tail - 19
            await log.append(b"new")
            assert (await anext(entries)).payload == b"new"

    run(story())


def test_the_archive_fails_under_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads on after the error gets what comes behind that which he has, in the middle of the archive too."""
    asked: list[int] = []
    batches = FileArchives.batches

    async def failing(self: FileArchives, info: Any, start: Any, stop: Any, stream: Any) -> Any:
        asked.append(start)
        given = 0
        async for run in batches(self, info, start, stop, stream):
            yield run
            given += 1
            if given == 2 and len(asked) < 4:
                raise Unavailable("away")

    async def story() -> None:
        async with filled() as log:
            before = await scan(log)
            await archive(log, tmp_path, 71, group_rows=5)
            await log.trim(60)
            monkeypatch.setattr(FileArchives, "batches", failing)
            subscription = log.subscribe(stop=len(before) + 1)
            got: list[varlog.Entry] = []

            async def read_on() -> None:
                async for entry in subscription:
                    got.append(entry)  # noqa: PERF401 - what came before an error counts

            for _ in range(3):
                with pytest.raises(Unavailable, match="away"):
                    await read_on()
            await read_on()
            assert got == before
            assert len(set(asked)) == 4

    run(story())


def test_closed_while_the_archive_is_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with filled() as log:
            await archive(log, tmp_path, 71, group_rows=5)
            await log.trim(60)
            subscription = log.subscribe()
            runs = subscription.runs()
            assert (await anext(runs))[0].first == 1
            await subscription.aclose()
            assert [run async for run in runs] == []
            async with log.subscribe() as again:
                async for entry in again:
                    if entry.glsn == 30:
                        break
            assert await log.read(3)

    run(story())


async def _drain(runs: AsyncIterator[list[varlog.ReadBatch]]) -> None:
    async for _ in runs:
        pass


def test_the_cluster_is_closed_while_the_archive_is_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=1) as cluster:
            log = await cluster.create_log("orders", replicas=1)
            for _ in range(5):
                await log.append_batch([b"an entry"] * 10)
            await archive(log, tmp_path, 41, group_rows=5)
            await log.trim(40)
            runs = log.subscribe().runs()
            assert (await anext(runs))[0].first == 1
            await cluster.close()
            with pytest.raises(Unavailable, match="was closed"):
                await asyncio.wait_for(_drain(runs), TEST_S)

    run(story())


def test_a_forked_process_reads_the_archive_too(tmp_path: Path) -> None:
    async def story() -> pb.LogInfo:
        async with filled(batches=2) as log:
            await archive(log, tmp_path)
            return await log._context.routes.resolve(5.0)

    info = run_on_loop(story())
    place = parse_place(str(tmp_path))
    connections = place_module._filesystem(place)

    def read() -> None:
        assert run_on_loop(FileArchives().find(info, 0)) == 1

    def read_in_the_child() -> None:
        read()
        assert place_module._filesystem(place) is not connections

    read()
    assert in_a_fork(read_in_the_child) == ""
    read()
    assert place_module._filesystem(place) is connections


def test_trimmed_again_and_again_under_a_slow_reader(tmp_path: Path) -> None:
    async def story() -> None:
        async with filled(batches=1) as log:
            last = 1 + 6 * 60

            async def churn() -> None:
                payload = bytes(32 << 10)
                for _ in range(6):
                    await asyncio.gather(*(log.append(payload) for _ in range(60)))
                    await archive(log, tmp_path)
                    await log.trim(await log.tail() - 3)

            work = asyncio.create_task(churn())
            seen = 0
            async for batch in log.subscribe(stop=last + 1).batches():
                assert batch.first == seen + 1
                seen = batch.last
                await asyncio.sleep(0.002)
            await work
            assert seen == last

    run(story())


def test_a_log_of_the_same_name_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was removed, made anew and archived between where the subscription began and its first look."""

    async def of_the_old_one(*arguments: Any, **options: Any) -> Bounds:
        bounds = await find_bounds(*arguments, **options)
        bounds.log = LogId(bounds.log - 1)
        return bounds

    async def story() -> None:
        async with filled() as log:
            await archive(log, tmp_path, 71)
            await log.trim(60)
            monkeypatch.setattr("varlog.client.subscription.find_bounds", of_the_old_one)
            with pytest.raises(NotFound, match="was removed"):
                await anext(log.subscribe())

    run(story())


def test_what_neither_has(tmp_path: Path) -> None:
    async def story() -> None:
        async with filled() as log:
            before = await scan(log)
            await log.trim(4)
            await archive(log, tmp_path, 21)
            await log.trim(10)
            for glsn in (1, 4):
                with pytest.raises(Trimmed) as lost:
                    await log.read(glsn)
                assert lost.value.first == 5
                with pytest.raises(Trimmed) as lost:
                    await scan(log, glsn)
                assert lost.value.first == 5
            assert await scan(log, None) == before[4:]
            await log.trim(30)  # further than the archive: a gap that nobody fills
            assert (await log.info()).first == 31
            assert await scan(log, None) == before[30:]
            assert await scan(log, 5, 21) == before[4:20]
            for start in (5, 25):
                with pytest.raises(Trimmed) as lost:
                    await scan(log, start)
                assert lost.value.first == 31
            assert await log.find(before[0].time) == 31

    run(story())


def test_archives_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with filled() as log:
            before = await scan(log)
            info = await archive(log, tmp_path, 21, file_rows=10)
            assert info.archive is not None
            await log.trim(15)
            files = sorted(tmp_path.glob("*/data/*.parquet"))
            whole = files[0].read_bytes()
            hurt = bytearray(whole)
            for offset in range(8, 600):
                hurt[offset] ^= 0x5A
            files[0].write_bytes(hurt)
            with pytest.raises(Corrupt, match="damaged"):
                await log.read(3)
            files[0].unlink()
            with pytest.raises(Unavailable, match="lacks a file"):
                await log.read(3)
            assert await log.read(13) == before[12]
            files[0].write_bytes(whole)
            assert await log.read(3) == before[2]
            metadata = Path(info.archive.metadata.removeprefix("file://"))
            text = metadata.read_text()
            metadata.write_text(text[:100])
            with pytest.raises(Corrupt, match="damaged"):
                Snapshot(ArchivedRange(**asdict(info.archive))).find(0)
            metadata.write_text(text)

            def missing() -> None:
                raise Unsupported("an archive needs the extra: pip install 'varlog[archive]'")

            monkeypatch.setattr(place_module, "check_extra", missing)
            with pytest.raises(Unsupported, match=r"varlog\[archive\]"):
                await log.read(3)
            assert await log.read(20) == before[19]

    run(story())
