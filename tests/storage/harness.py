"""Batches, logs and a naive model of a replica, for the tests of this room."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import pytest
from tests.storage.crash_disk import CrashDisk

from varlog.base.errors import Trimmed
from varlog.base.ids import Epoch, Glsn, LogId, ReplicaId, Slot, StreamId
from varlog.base.ranges import Binding
from varlog.ports.disk import Disk
from varlog.storage.replica_log import ReplicaLog
from varlog.wire.batch import NO_PRODUCER, BatchHeader, check_batch, encode_batch
from varlog.wire.record import RecordKind, walk_records

REPLICA = ReplicaId(LogId(7), Epoch(1), StreamId(3))
FOLDER = f"replicas/{REPLICA}"
SMALL = 16 << 10
"""Size of data files in most tests: a few dozen batches fill one."""

Result = TypeVar("Result")
Encoded = tuple[bytes, BatchHeader]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)


def batch(
    number: int, *, count: int = 1, size: int = 20, time_us: int = 0, producer: bytes = NO_PRODUCER, sequence: int = 0
) -> Encoded:
    """A batch whose payloads tell which it is."""
    payloads = [b"%d.%d." % (number, entry) + b"x" * size for entry in range(count)]
    data = encode_batch(payloads, producer=producer, sequence=sequence, time_us=time_us)
    return data, check_batch(data)


async def create(disk: Disk, file_bytes: int = SMALL, seed: int = 1) -> ReplicaLog:
    return await ReplicaLog.create(disk, FOLDER, REPLICA, b"the spec", random=Random(seed), file_bytes=file_bytes)


async def reopen(disk: Disk, file_bytes: int = SMALL, seed: int = 1) -> ReplicaLog:
    """The same seed on purpose: a process that draws the same numbers again must not confuse its files."""
    return await ReplicaLog.open(disk, FOLDER, random=Random(seed), file_bytes=file_bytes)


async def append(log: ReplicaLog, *batches: Encoded) -> None:
    log.stage_batches(log.appended, batches)
    await log.sync()


def bind(log: ReplicaLog, count: int, *, gap: int = 0) -> None:
    glsn = Glsn(max(log.next_glsn, 1) + gap)
    log.stage_binding(Binding(log.committed, glsn, count), glsn + count - 1)


async def fill(log: ReplicaLog, files: int, *, size: int = 500) -> int:
    """Append and bind one batch at a time until so many files are there; gives the number of batches."""
    number = 0
    while data_files(log) < files:
        await append(log, batch(number, size=size, time_us=number))
        bind(log, 1)
        number += 1
    await log.sync()
    return number


def data_files(log: ReplicaLog) -> int:
    return len(log._files)


def data_paths(disk: CrashDisk) -> list[str]:
    """Of data files in use, in order."""
    return [path for path in disk.paths() if path.endswith(".data") and "free-" not in path]


async def read_all(log: ReplicaLog, *, limit: Slot | None = None, max_bytes: int = 3000) -> list[tuple[int, bytes]]:
    """Slot and bytes of every batch from the trim point on."""
    found: list[tuple[int, bytes]] = []
    slot, limit = log.trimmed, log.durable if limit is None else limit
    while slot < limit:
        part = await log.read(slot, limit, max_bytes)
        assert part.end > slot
        found += [
            (record.slot, bytes(part.data[record.body : record.body + record.length]))
            for record in walk_records(part.data)
            if record.kind == RecordKind.BATCH
        ]
        slot = part.end
    return found


@dataclass
class Model:
    """What a replica should hold, kept the plain way."""

    batches: list[tuple[int, Encoded]] = field(default_factory=list)
    durable: int = 0
    """Slots that were synced."""
    glsns: list[int] = field(default_factory=list)
    """By slot, as far as it is bound."""
    bound: int = 0
    """Slots whose binding was synced."""
    trimmed_glsn: int = 0
    durable_trim: int = 0
    sealed: bool = False
    durable_seal: bool = False
    end: int | None = None
    durable_end: int | None = None

    @property
    def appended(self) -> int:
        return self.batches[-1][0] + self.batches[-1][1][1].count if self.batches else 0

    @property
    def trimmed(self) -> int:
        return sum(glsn <= self.trimmed_glsn for glsn in self.glsns)

    def synced(self) -> None:
        self.durable, self.bound, self.durable_trim = self.appended, len(self.glsns), self.trimmed_glsn
        self.durable_seal, self.durable_end = self.sealed, self.end

    def adopt(self, log: ReplicaLog) -> None:
        """After a crash: what the log says must lie between what was synced and what was staged."""
        if self.end is None:
            assert self.durable <= log.appended <= self.appended
            assert log.appended in {0, *(slot + encoded[1].count for slot, encoded in self.batches)}
        assert log.durable == log.appended
        assert self.bound <= log.committed <= len(self.glsns)
        assert log.bound == log.committed
        assert self.durable_trim <= log.trimmed_glsn <= self.trimmed_glsn
        assert (self.durable_seal, self.durable_end) <= (log.sealed, log.end or self.durable_end)
        self.batches = [each for each in self.batches if log.end is not None or each[0] < log.appended]
        self.glsns = self.glsns[: log.committed]
        self.trimmed_glsn, self.sealed, self.end = log.trimmed_glsn, log.sealed, log.end
        self.synced()

    async def check(self, log: ReplicaLog) -> None:
        """Everything a reader could ask."""
        end = log.durable
        expected = [(slot, data) for slot, (data, header) in self.batches if slot + header.count <= end]
        kept = [(slot, data) for slot, data in expected if slot + check_batch(data).count > log.trimmed]
        assert await read_all(log) == kept
        assert log.committed == len(self.glsns)
        assert log.next_glsn == (self.glsns[-1] + 1 if self.glsns else 0)
        await self._check_glsns(log)
        await self._check_times(log)
        for slot, (_, header) in self.batches:
            if log.trimmed <= slot < log.appended:
                assert await log.batch_at(Slot(slot)) == header

    async def _check_glsns(self, log: ReplicaLog) -> None:
        covered: list[int] = []
        start = log.trimmed
        bindings = await log.bindings(start, log.committed)
        for binding in bindings:
            assert binding.slot == start + len(covered)
            covered += range(binding.glsn, binding.glsn_end)
        assert covered == self.glsns[start:]
        assert not any(later.continues(earlier) for earlier, later in pairwise(bindings))
        top = self.glsns[-1] + 2 if self.glsns else 2
        for glsn in range(1, top):
            if glsn <= log.trimmed_glsn:
                with pytest.raises(Trimmed) as trimmed:
                    await log.find_glsn(Glsn(glsn))
                assert trimmed.value.first == log.trimmed_glsn + 1
            else:
                assert await log.find_glsn(Glsn(glsn)) == sum(each < glsn for each in self.glsns)

    async def _check_times(self, log: ReplicaLog) -> None:
        for time_us in (0, 3, 7, 1 << 40):
            later = [
                max(slot, log.trimmed)
                for slot, (_, header) in self.batches
                if header.time_us >= time_us and slot + header.count > log.trimmed and slot < log.committed
            ]
            expected = later[0] if later else log.committed
            assert await log.find_time(time_us) == expected
