"""Where simulated archives lie, and how simulated clients read them: the twin of `varlog.archive`."""

from collections.abc import AsyncGenerator
from random import Random

from varlog.base.errors import NotFound, Unavailable
from varlog.base.ids import Glsn, StreamId
from varlog.ports import Clock
from varlog.ports.archive import ArchivedBatch
from varlog.wire.proto import varlog_pb2 as pb

RUN_BATCHES = 5
"""Most batches that are read at once."""

LATENCY_SECONDS = 0.02
"""That reading takes, at most twice as long."""


class Shelf:
    """Snapshots by name: each holds everything that the one before it held, and more. None ever changes."""

    def __init__(self) -> None:
        self._snapshots: dict[str, list[ArchivedBatch]] = {"": []}
        self.failing = 0.0
        """Chance of each read to fail."""

    def add(self, log: str, before: str, batches: list[ArchivedBatch]) -> str:
        """The name of a new snapshot."""
        name = f"sim://{log}/{len(self._snapshots)}"
        self._snapshots[name] = self._snapshots[before] + batches
        return name

    def snapshot(self, name: str) -> list[ArchivedBatch]:
        if name not in self._snapshots:
            raise NotFound(f"there is no snapshot {name}")
        return self._snapshots[name]


class SimulatedArchives:
    """The shelf as one process reaches it: slowly, and not always."""

    def __init__(self, shelf: Shelf, clock: Clock, random: Random) -> None:
        self._shelf = shelf
        self._clock = clock
        self._random = random

    async def batches(
        self, log: pb.LogInfo, start: Glsn, stop: Glsn, stream: StreamId | None
    ) -> AsyncGenerator[list[ArchivedBatch], None]:
        run: list[ArchivedBatch] = []
        for each in self._shelf.snapshot(log.archive.metadata):
            if start < each.glsn + len(each.batch) and each.glsn < stop and stream in (None, each.stream):
                run.append(each)
                if len(run) == RUN_BATCHES:
                    await self._reach()
                    yield run
                    run = []
        await self._reach()
        if run:
            yield run

    async def find(self, log: pb.LogInfo, time_us: int) -> Glsn | None:
        await self._reach()
        found = (each for each in self._shelf.snapshot(log.archive.metadata) if each.batch.header.time_us >= time_us)
        first = next(found, None)
        return None if first is None else first.glsn

    async def _reach(self) -> None:
        await self._clock.sleep(self._random.random() * 2 * LATENCY_SECONDS)
        if self._random.random() < self._shelf.failing:
            raise Unavailable("the archive cannot be reached just now")
