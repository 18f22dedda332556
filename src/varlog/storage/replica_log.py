"""The files of one replica: passive, staged in memory, made durable by `sync()`. Dense streams.

    0 ......... trimmed ........... bound ...... committed ...... durable ...... appended
      gone        |   GLSNs on disk   |  GLSNs in   |  synced, not  |  staged, not  |
                                         memory        bound yet       synced yet

Whoever drives it stages what has been judged right, calls `sync()` now and then (one at a time), and
tells others only what the positions say. Nothing here decides, waits for a clock, or knows a node.

After a failed write or sync the page cache cannot be believed: the log is failed for good, and says so
to every later call and, by a marker in its folder, to every later opening.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from varlog.base.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    NotWritten,
    ReplicaFailed,
    Sealed,
    Trimmed,
    VarlogError,
)
from varlog.base.ids import Glsn, ReplicaId, Slot
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding
from varlog.ports.disk import Disk, DiskFailed, replace_file
from varlog.storage import damage as damages
from varlog.storage import layout, search
from varlog.storage.damage import Damage
from varlog.storage.facts import Facts
from varlog.storage.files import Files
from varlog.storage.folders import complete_copy, drop_folder, make_folder
from varlog.storage.group import finish_record, seal_record, trim_record
from varlog.storage.housekeeping import free_trimmed, write_sidecars
from varlog.storage.layout import FILE_BYTES, SMALLEST_FILE_BYTES, FileHeader
from varlog.storage.place import Place, mark_failed
from varlog.storage.pool import FilePool, first_bytes
from varlog.storage.producers import ProducerTable
from varlog.storage.reader import Reader, Run
from varlog.storage.recovery import Recovered, recover
from varlog.storage.search import DigestRow
from varlog.storage.sidecar import NO_GOOD
from varlog.storage.verify import STRETCH_SLOTS, Verification
from varlog.storage.walk import Pause
from varlog.storage.writer import Writer
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer

__all__ = ["Beginning", "DigestRow", "ReplicaLog", "Run"]


class Beginning(NamedTuple):
    """Where a copy begins: what lies before is trimmed."""

    slot: Slot
    """Of the first batch that is there."""
    trimmed_glsn: Glsn
    producers: bytes
    """A snapshot of the table of producers as of there."""


class ReplicaLog:
    """One replica's log on one disk. Made by `create` or `open`."""

    def __init__(self, recovered: Recovered, random: Random) -> None:
        self.replica: ReplicaId = recovered.place.replica
        self.spec = recovered.spec
        self.producers: ProducerTable = recovered.producers
        self.notes = recovered.notes
        """What opening had to mend, for people."""
        self.damage: list[Damage] = recovered.damage
        """What does not match its checksum, as far as it is known."""
        self.on_damage: Callable[[], None] = lambda: None
        """Called when a reader meets what does not match its checksum, or cannot be read."""
        self._place = recovered.place
        self._files = recovered.files
        self._pool = recovered.pool
        self._pool.table_bytes = lambda: self.producers.snapshot_bytes
        self.facts: Facts = recovered.facts.copy()
        """With what is staged; to be read, not to be changed, by others."""
        self.written: Facts = recovered.facts
        """The same as far as it is on disk."""
        self._writer = Writer(self._place, self._files, self._pool, recovered.facts, random)
        self._writer.seal_holds = recovered.seal_holds
        self._reader = Reader(self._files, self._writer.recent)
        self._trim_to = 0
        """GLSN of a trim that is not yet a record."""
        self._syncing = False
        self._collecting = asyncio.Lock()
        self._failure: ReplicaFailed | None = None
        self._closed = False

    # ------------------------------------------------------------ positions

    @property
    def appended(self) -> Slot:
        """Slots staged or written; the end, once there is one."""
        return self._writer.appended if self.facts.end is None else Slot(self.facts.end)

    @property
    def durable(self) -> Slot:
        """Contiguous and synced."""
        end = self.facts.end
        return self._writer.durable if end is None else Slot(min(self._writer.durable, end))

    @property
    def committed(self) -> Slot:
        """Bound, in memory at least."""
        return Slot(self.facts.committed)

    @property
    def bound(self) -> Slot:
        """Bound, and the binding synced."""
        return Slot(self.written.committed)

    @property
    def trimmed(self) -> Slot:
        """Slots below are gone."""
        return Slot(self.facts.trimmed)

    @property
    def trimmed_glsn(self) -> Glsn:
        """Entries at or below are gone; durable after the next sync."""
        return Glsn(self.facts.trimmed_glsn)

    @property
    def durable_trimmed_glsn(self) -> Glsn:
        """The trim point as it would be after a crash."""
        return Glsn(self.written.trimmed_glsn)

    @property
    def high_watermark(self) -> int:
        return self.facts.high_watermark

    @property
    def next_glsn(self) -> Glsn:
        """One past the last bound GLSN; 0 while nothing is bound."""
        return Glsn(self.facts.next_glsn)

    @property
    def sealed(self) -> bool:
        return self.facts.sealed

    @property
    def seal_holds(self) -> bool:
        """It is on disk, and with it a witness: one flipped bit cannot make an open replica of this one."""
        return self._writer.seal_holds

    @property
    def end(self) -> Slot | None:
        return None if self.facts.end is None else Slot(self.facts.end)

    @property
    def staged(self) -> bool:
        """Something waits for `sync()`."""
        return self._writer.staged or bool(self._trim_to)

    @property
    def folder(self) -> str:
        return self._place.folder

    @property
    def stored_bytes(self) -> int:
        return self._files.stored_bytes

    @property
    def failure(self) -> ReplicaFailed | None:
        return self._failure

    # ------------------------------------------------------------ life

    @classmethod
    async def create(
        cls, disk: Disk, folder: str, replica: ReplicaId, spec: bytes, *, random: Random, file_bytes: int = FILE_BYTES
    ) -> "ReplicaLog":
        """Make a new replica. Its spec is written last: without one, nothing was created."""
        _check_file_bytes(file_bytes)
        place = Place(disk, folder, replica)
        pool, files = FilePool(place, file_bytes), Files(place)
        await make_folder(place, spec, pool, files, FileHeader.first(replica, first_bytes(file_bytes), random))
        return cls(Recovered(place, spec, files, pool, Facts(), ProducerTable()), random)

    @classmethod
    async def create_copy(
        cls,
        disk: Disk,
        folder: str,
        replica: ReplicaId,
        spec: bytes,
        beginning: Beginning,
        *,
        random: Random,
        file_bytes: int = FILE_BYTES,
    ) -> "ReplicaLog":
        """Make a replica that is to become a copy of another. It does not exist for `open` before `complete`."""
        _check_file_bytes(file_bytes)
        place = Place(disk, folder, replica)
        pool, files = FilePool(place, file_bytes), Files(place)
        facts = Facts(beginning.slot, beginning.trimmed_glsn, beginning.slot)
        header = FileHeader.first(replica, first_bytes(file_bytes), random, beginning.slot, facts.copy())
        producers = ProducerTable.load(beginning.producers)
        await make_folder(place, spec, pool, files, header, beginning.producers)
        return cls(Recovered(place, spec, files, pool, facts, producers), random)

    def forget_recent(self) -> None:
        """Of one that is finished: what was written last is read from the disk as all else is."""
        self._writer.recent.clear()

    def be_lazy(self, lazy: bool) -> None:
        """Of a copy: a file is synced when it is full, the last one with the first `sync` after this is off."""
        self._writer.lazy = lazy

    async def complete(self) -> None:
        """The copy is whole and right: from now on it counts, durably."""
        self._check()
        invariant(self.facts.end is not None and not self.staged, "only what is finished is complete")
        invariant(not self._writer.lazy, "all of it is synced")
        await complete_copy(self._place.disk, self._place.folder)

    @classmethod
    async def open(cls, disk: Disk, folder: str, *, random: Random, file_bytes: int = FILE_BYTES) -> "ReplicaLog":
        """Open an existing replica and mend what a crash left.

        Raises `NotFound`, `Corrupt` (with replica and slot), or `ReplicaFailed` if it stopped for good earlier.
        """
        _check_file_bytes(file_bytes)
        return cls(await recover(disk, folder, file_bytes), random)

    async def close(self) -> None:
        """Give handles back. What is staged and not synced is forgotten."""
        self._closed = True
        await self._writer.close()
        self._files.close()

    async def drop(self) -> None:
        """Close, and remove everything."""
        await self.close()
        await drop_folder(self._place.disk, self._place.folder)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise InvalidArgument(f"replica {self.replica} is closed")

    async def _fail(self, cause: VarlogError) -> None:
        """Stop for good."""
        self._failure = ReplicaFailed(f"replica {self.replica} has stopped: {cause.message}", self.durable)
        marked = await mark_failed(self._place, cause)
        self._failure = ReplicaFailed(marked.message, self.durable)
        self._failure.__cause__ = cause

    # ------------------------------------------------------------ staging

    def stage_batches(self, slot: Slot, batches: Sequence[tuple[Buffer, BatchHeader]]) -> None:
        """Take batches at the end, checked by the caller. `NoSpace`: none of them was taken."""
        self._check()
        writer = self._writer
        if self.facts.end is not None:
            raise Sealed(f"replica {self.replica} ends at slot {self.facts.end}", self.facts.end)
        if slot != writer.appended:
            invariant(False, "batches go to the end", slot=slot, appended=writer.appended)
        writer.stage_batches(batches)
        for _, header in batches:
            self.producers.record(header.producer, header.sequence, slot, header.count)
            slot = Slot(slot + header.count)

    def stage_binding(self, binding: Binding, high_watermark: int) -> None:
        """Bind slots that are synced; readers see it at once."""
        self._check()
        end = binding.slot_end
        if end > self.durable:
            raise InvalidArgument(f"slots up to {end} cannot be bound, {self.durable} are synced")
        self.facts.bind(binding, high_watermark)
        for file in self._files.from_slot(binding.slot):
            if file.first_slot >= end:
                break
            if file.columns is not None:
                file.columns.bindings.add_part(binding, file.end_slot)
        self._writer.stage_binding(binding, high_watermark)

    def stage_trim(self, upto: Glsn) -> None:
        """Everything at or below `upto` is gone, also what will be bound there only later."""
        self._check()
        self.facts.trimmed_glsn = max(self.facts.trimmed_glsn, upto)
        self._trim_to = max(self._trim_to, upto)

    def stage_seal(self) -> None:
        """Again, once it is synced: another behind it, as its witness."""
        self._check()
        if not self.facts.sealed or (self.written.sealed and not self.seal_holds):
            self.facts.seal()
            self._writer.stage(seal_record(self._writer.appended))

    def stage_finish(self, end: Slot) -> None:
        """The segment ends at `end`: what lies beyond is not part of the log."""
        self._check()
        if end > self.appended:
            raise InvalidArgument(f"replica {self.replica} cannot end at slot {end}, it has {self.appended}")
        known = self.facts.end
        self.facts.finish(end)
        if known is None:
            self.producers.truncate(end)
            self._writer.stage(finish_record(end))

    async def sync(self) -> None:
        """Make everything staged before this call durable: one write and one sync, unless a file ends.

        `NoSpace`, `Unavailable`: what was staged stays staged, and a later call may succeed (bindings that find no
        room wait without an error; `bound` says how far they got). `DiskFailed`: the log has failed for good. A trim
        whose slot is not found, because of what cannot be read, has to be staged again; the rest does not wait for it.
        """
        self._check()
        if self._syncing:
            invariant(False, "one sync at a time", replica=self.replica)
        self._syncing = True
        try:
            if self._trim_to:
                await self._stage_trim_record()
            await self._writer.sync()
        except (DiskFailed, NotFound, AlreadyExists) as error:
            # The latter two: somebody else is at work in our folder.
            await self._fail(error)
            raise DiskFailed(error.message) from error
        finally:
            self._syncing = False

    async def _stage_trim_record(self) -> None:
        """Only now, because finding the slot may take a look at a sidecar."""
        glsn = self._trim_to
        try:
            with self._watching():
                slot = await search.slot_of_glsn(self._files, glsn + 1, self.facts.committed)
        except VarlogError:
            return  # nothing was written; `durable_trimmed_glsn` says that it was not trimmed
        finally:
            self._trim_to = 0 if glsn == self._trim_to else self._trim_to
        self.facts.trim(slot, glsn)
        written = self.written
        if (slot, glsn) != (written.trimmed, written.trimmed_glsn):
            self._writer.stage(trim_record(slot, glsn))

    # ------------------------------------------------------------ reading

    async def read(self, start: Slot, limit: Slot, max_bytes: int, max_batches: int = 0) -> Run:
        """Batches from the one with `start` on, as they lie in one file, all below `limit`.

        `limit` is `committed` for readers and `durable` for copying. An empty run means: nothing there yet.
        """
        self._check()
        self._refuse_trimmed(start)
        limit = min(limit, self.durable)
        if start >= limit:
            return Run(start, start, memoryview(b""))
        with self._watching():
            return await self._reader.read(start, limit, max_bytes, max_batches)

    async def find_glsn(self, glsn: Glsn) -> Slot:
        """The first committed slot whose GLSN is `glsn` or greater; `committed` if there is none."""
        self._check()
        if glsn <= self.facts.trimmed_glsn:
            first = self.facts.trimmed_glsn + 1
            raise Trimmed(f"positions below {first} are trimmed", first)
        with self._watching():
            return await search.slot_of_glsn(self._files, glsn, self.facts.committed)

    async def find_time(self, time_us: int) -> Slot:
        """The first committed slot of a batch with this time or a later one; `committed` if there is none."""
        self._check()
        start = self.facts.trimmed
        with self._watching():
            while True:
                committed = self.facts.committed
                found = await search.slot_of_time(self._files, self._reader, time_us, start, committed)
                if found < committed or committed == self.facts.committed:
                    return found
                start = committed  # what was committed while we looked is not what was not found

    def marks(self) -> list[tuple[int, int]]:
        """Some positions, rising, and the bytes of what is committed that are stored from there on at least."""
        self._check()
        return search.marks_of(self._files, self.facts.trimmed, self.facts.committed)

    async def bindings(self, start: Slot, end: Slot) -> list[Binding]:
        """What covers exactly `[start, end)`, joined where it is continuous."""
        self._check()
        if start >= end:
            return []
        self._refuse_trimmed(start)
        if end > self.committed:
            raise NotWritten(f"slots up to {end} are not all bound, {self.committed} are", self.committed)
        with self._watching():
            return await search.bindings_of(self._files, start, end)

    async def batch_at(self, slot: Slot) -> BatchHeader | None:
        """The header of the batch that begins exactly at `slot`, staged ones too; None if none does."""
        self._check()
        self._refuse_trimmed(slot)
        if slot >= self.appended:
            return None
        with self._watching():
            return await self._reader.header_at(slot)

    async def digest(self, low: Slot, high: Slot) -> list[DigestRow]:
        """What each slot of `[low, high)` holds; at most `search.DIGEST_ROWS` rows, to be asked on from the last."""
        self._check()
        with self._watching():
            return await search.digest(self._files, self._reader, low, high, self.facts.trimmed, self.durable)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Whoever reads finds damage for all."""
        try:
            yield
        except NO_GOOD as error:
            if self.damage:
                error.message += f"; damaged: {damages.describe(self.damage)}"
            elif not self._closed:
                self.on_damage()
            raise

    def _refuse_trimmed(self, slot: Slot) -> None:
        if slot < self.facts.trimmed:
            raise Trimmed(f"slots below {self.facts.trimmed} are trimmed", self.facts.trimmed)

    # ------------------------------------------------------------ scrub

    def verification(self, pause: Pause) -> Verification:
        """A pass over everything that is on disk, to be run beside whatever else is going on."""
        self._check()
        return Verification(self._files, pause, self.end)

    async def located(self, found: Damage) -> Damage:
        """With its GLSNs, without what is trimmed or lies beyond the end."""
        self._check()
        end = found.end if self.end is None else min(found.end, self.end)
        slot = min(max(found.slot, self.trimmed), end)
        try:
            bound = await self.bindings(Slot(slot), Slot(min(end, self.committed)))
        except NO_GOOD:
            bound = []  # what would tell them is damaged, too
        glsns = (bound[0].glsn, bound[-1].glsn_end) if bound else (0, 0)
        return Damage(slot, max(slot, end), *glsns, found.what)

    async def mark_damaged(self, found: Sequence[Damage]) -> None:
        """Remember it over restarts, together with what is known already."""
        self._check()
        self.damage = [*self.damage, *found][: damages.MOST_RANGES]
        await replace_file(self._place.disk, self._place.path(layout.DAMAGED), damages.encode(self.damage))

    async def fingerprint(self, stretches: dict[int, int]) -> tuple[int, list[int]]:
        """The first whole stretch of an ended replica, and a crc for it and each after it: batches and positions."""
        self._check()
        first = -(-self.trimmed // STRETCH_SLOTS)
        crcs: list[int] = []
        for number in range(first, -(-self.committed // STRETCH_SLOTS)):
            low, high = number * STRETCH_SLOTS, min((number + 1) * STRETCH_SLOTS, self.committed)
            if low < self.trimmed:  # since we began
                first, crcs = number + 1, []
                continue
            crcs.append(search.fold_bindings(await self.bindings(Slot(low), Slot(high)), stretches.get(number, 0)))
        return first, crcs

    # ------------------------------------------------------------ housekeeping

    async def has_room(self) -> bool:
        """The volume has a file for what comes next. It is made when something does."""
        self._check()
        return await self._pool.has_room()

    async def collect(self) -> None:
        """Give the space of trimmed files back, and move what is known about full ones from memory to disk."""
        self._check()
        async with self._collecting:
            # By what is on disk: what a crash could take back must not have removed or settled anything.
            await free_trimmed(self._files, self._pool, self.written.trimmed, self.producers)
            await write_sidecars(self._files, self._pool, self.written.committed, self.producers)
            if self.written.end is not None:
                await self._pool.release()  # nothing more comes that would want one


def _check_file_bytes(file_bytes: int) -> None:
    if file_bytes < SMALLEST_FILE_BYTES:
        raise InvalidArgument(f"data files of {file_bytes} bytes; the least is {SMALLEST_FILE_BYTES}")
