"""One suite for all archives: those in folders (files on threads) and those of the simulator."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.archive.by_hand import archive

import varlog
from varlog.archive.reader import FileArchives
from varlog.base.ids import Glsn, StreamId
from varlog.ports import Archives
from varlog.runtime.clock import RealClock
from varlog.runtime.loop import run
from varlog.sim.archive import to_archived
from varlog.sim.shelf import Shelf, SimulatedArchives
from varlog.wire.proto import varlog_pb2 as pb

LAST = 50
RANGES = [(1, 51, None), (1, 2, None), (13, 44, None), (50, 51, None), (5, 40, 2), (1, 51, 1)]
Known = list[varlog.Entry]


@asynccontextmanager
async def filed(folder: Path) -> AsyncIterator[tuple[Archives, pb.LogInfo, Known]]:
    async with filled() as (log, known):
        info = await archive(log, folder, LAST + 1, file_rows=20, group_rows=7)
        assert info.archive is not None
        yield FileArchives(), record(info.archive.location, info.archive.metadata), known


@asynccontextmanager
async def shelved(_: Path) -> AsyncIterator[tuple[Archives, pb.LogInfo, Known]]:
    async with filled() as (log, known):
        shelf = Shelf()
        batches = [to_archived(batch) async for batch in log.subscribe(1, LAST + 1).batches()]
        name = shelf.add("orders", "", batches)
        yield SimulatedArchives(shelf, RealClock(), Random(1)), record("sim://orders", name), known


def record(location: str, metadata: str) -> pb.LogInfo:
    where = pb.ArchiveInfo(location=location, metadata=metadata, first=1)
    return pb.LogInfo(id=1, name="orders", archive=where, archived=LAST + 1)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[varlog.Log, Known]]:
    async with varlog.local_cluster(nodes=1) as cluster:
        log = await cluster.create_log("orders", replicas=1, streams=2)
        for number in range(30):
            await log.append_batch([b"%d" % number] * (1 + number % 3), keys=[b"k"] * (1 + number % 3))
        known = [entry async for entry in log.subscribe(1, LAST + 1)]
        yield log, known


Made = Callable[[Path], AbstractAsyncContextManager[tuple[Archives, pb.LogInfo, Known]]]


@pytest.mark.parametrize("made", [filed, shelved])
def test_what_is_archived_is_found(made: Made, tmp_path: Path) -> None:
    async def story() -> None:
        async with made(tmp_path) as (archives, log, known):
            for start, stop, stream in RANGES:
                found = await positions(archives, log, start, stop, stream)
                wanted = [e for e in known if start <= e.glsn < stop and stream in (None, e.stream)]
                assert found == [(e.glsn, e.stream, e.slot, e.payload, e.key) for e in wanted]
            for entry in known:
                first = next(each.glsn for each in known if each.time >= entry.time)
                assert await archives.find(log, micros(entry)) == first
            assert await archives.find(log, 0) == 1
            assert await archives.find(log, micros(known[-1]) + 1_000_000) is None

    run(story())


def micros(entry: varlog.Entry) -> int:
    return round(entry.time.timestamp() * 1_000_000)


async def positions(
    archives: Archives, log: pb.LogInfo, start: int, stop: int, stream: int | None
) -> list[tuple[int, int, int, bytes, bytes | None]]:
    chosen = None if stream is None else StreamId(stream)
    found: list[tuple[int, int, int, bytes, bytes | None]] = []
    async for run_ in archives.batches(log, Glsn(start), Glsn(stop), chosen):
        for each in run_:
            rows = zip(each.batch.payloads(), each.batch.keys(), strict=True)
            found += [
                (each.glsn + index, each.stream, each.slot + index, payload, key)
                for index, (payload, key) in enumerate(rows)
                if start <= each.glsn + index < stop
            ]
    return found
