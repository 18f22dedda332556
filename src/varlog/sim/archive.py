"""Archives in the simulated world: a shelf that outlives every process, and who fills it while faults strike.

An archiver copies what is committed, puts it on the shelf as a snapshot, records it, and then has the nodes trim it,
as retention would. It may be killed between any two of these steps; there may be two of them at once. Nothing is ever
trimmed that is not on record, so no reader may ever be told that something is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

from varlog.base.errors import Timeout, VarlogError
from varlog.client import ArchiveDescription, Cluster, Log, LogDescription, ReadBatch
from varlog.ports.archive import ArchivedBatch
from varlog.runtime.timeout import within
from varlog.sim.checkers import Violation
from varlog.sim.history import Trim
from varlog.sim.host import Process
from varlog.sim.record import Recorder
from varlog.sim.shelf import Shelf
from varlog.wire.batch import Batch, encode_batch, junk_batch

PAUSE_SECONDS = 0.7
"""Between two rounds, on average."""

KILLED = 0.1
"""Chance to be killed at each of the steps."""

TRIMS = 0.6
"""Share of the rounds after which something is trimmed."""

PATIENCE_SECONDS = 15.0
"""How long a round bears that nobody can give what it reads. Where the only copy is out for good nobody ever will,
and the round must have given up by the time at which archivers must have come to their end."""


class Archiver:
    """Archives logs again and again, in the process of an administrator."""

    def __init__(
        self,
        admin: Process,
        names: list[str],
        connect: Callable[[Process], Awaitable[Cluster]],
        recorder: Recorder,
        shelf: Shelf,
        random: Random,
    ) -> None:
        self._admin = admin
        self._names = names
        self._connect = connect
        self._recorder = recorder
        self._shelf = shelf
        self._random = random
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._admin.spawn(self._run(), "archive")

    async def _run(self) -> None:
        cluster = await self._connect(self._admin)
        while not self._stopping:
            await self._admin.clock.sleep(self._random.expovariate(1 / PAUSE_SECONDS))
            name = self._random.choice(self._names)
            try:
                await self._round(cluster.log(name), name)
            except VarlogError:
                continue  # whatever it was, the next round goes by what is on record
        await cluster.close()

    async def _round(self, log: Log, name: str) -> None:
        info = await log.info()
        if info.archive is None:
            info = await log.record_archive(ArchiveDescription(f"sim://{name}", "", "", "", 1, 1), expected=0)
        stop = self._random.randint(info.archived, max(info.archived, await log.tail() + 1))  # a bug may move it back
        if stop > info.archived:
            archived = await self._archive(log, info, stop)
            if archived is None:
                return
            info = archived
        if info.archived - 1 > info.trimmed and self._random.random() < TRIMS:
            await self._trim(log, name, self._random.randint(info.trimmed + 1, info.archived - 1))

    async def _archive(self, log: Log, info: LogDescription, stop: int) -> LogDescription | None:
        """None: it was killed on the way."""
        assert info.archive is not None
        found = log.subscribe(info.archived, stop, junk=True, patience=PATIENCE_SECONDS).batches()
        batches = [to_archived(batch) async for batch in found]
        if self._random.random() < KILLED:
            return None
        metadata = self._shelf.add(info.name, info.archive.metadata, batches)
        if self._random.random() < KILLED:
            return None
        return await log.record_archive(replace(info.archive, metadata=metadata, stop=stop), expected=info.archived)

    async def _trim(self, log: Log, name: str, upto: int) -> None:
        trim = self._recorder.begin(self._admin, Trim(log=name, upto=upto, archived=True))
        try:
            await log.trim(upto)
        except VarlogError as error:
            self._recorder.end(self._admin, trim, error)
        else:
            trim.done = self._recorder.end(self._admin, trim)

    async def wait(self, seconds: float) -> list[Violation]:
        """Until the last round is over, for so long at most; what is wrong if it does not end."""
        self._stopping = True
        if self._task is None:
            return []
        try:
            await within(self._admin.clock, seconds, self._task)
        except Timeout:
            return [Violation("I14", "", f"an archiver did not come to its end in {seconds:g} s")]
        return []


def to_archived(batch: ReadBatch) -> ArchivedBatch:
    """What was asked for of a batch, as one of its own."""
    if batch.junk:
        return ArchivedBatch(Batch(junk_batch(batch.count)), batch.stream, batch.slot, batch.first)
    data = encode_batch(
        batch.payloads(), keys=batch.keys(), headers=[dict(each) for each in batch.headers()], time_us=batch.time_us
    )
    return ArchivedBatch(Batch(data), batch.stream, batch.slot, batch.first)
