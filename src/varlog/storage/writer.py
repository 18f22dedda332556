"""The write path: everything staged since the last sync becomes one write and one sync.

    file:   | header | group | group | group |   free   | reserve |
                                     ^ end: all before is synced
    memory:                          [ pending records ............. ]   the next group

Records keep their place in `pending` until their write has succeeded: a group that found no space, or
whose caller was cancelled, is written again by the next sync, byte for byte at the same offset.

A group that does not fit goes into the next file. That one was made ahead, so a roll costs its header,
its name and a sync of the folder. On a full volume batches are refused as soon as the current file
cannot take them, but bindings, trims and seals go on into the reserve at its end. Should even that run
out, bindings wait in memory: the repository keeps every cut until it is reported bound on disk.
"""

from collections import OrderedDict
from collections.abc import Sequence
from random import Random

from varlog.base.errors import NoSpace, ReplicaFailed, Unavailable, VarlogError
from varlog.base.ids import Slot
from varlog.base.ranges import Binding
from varlog.ports.disk import DiskFailed, File
from varlog.runtime.scope import Scope
from varlog.storage.facts import Facts
from varlog.storage.files import DataFile, Files
from varlog.storage.group import Staged, batch_record, bind_record, encode_group, joined_bind
from varlog.storage.layout import (
    FILE_HEADER_BYTES,
    MOST_RESERVE_BYTES,
    FileHeader,
    encode_file_header,
    last_reserve_bytes,
    next_generation,
    reserve_bytes,
)
from varlog.storage.place import Place
from varlog.storage.pool import FilePool
from varlog.storage.scan import fold
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer
from varlog.wire.record import RecordKind

LARGE = 8
"""A group of more than this part of a file goes on in the next one, rather than leave the rest of a file empty."""

RECENT_BATCHES = 4096
"""Headers of the newest batches kept in memory; those not yet synced are kept in any case."""

STAGED = -1
"""Offset of a batch that is in no file yet."""


class Writer:
    """Owns the end of the last file and what is to be written there."""

    def __init__(self, place: Place, files: Files, pool: FilePool, facts: Facts, random: Random) -> None:
        """`facts` are those of the records in the files."""
        self.written = facts
        """As far as it is on disk."""
        self.seal_holds = False
        """Something was synced behind the seal: if that rots, it is missed."""
        self.appended = self.durable = Slot(files.last.end_slot)
        self.recent: OrderedDict[int, tuple[BatchHeader, int]] = OrderedDict()
        """Slot -> header and offset of the newest batches."""
        self._place = place
        self._files = files
        self._pool = pool
        self._random = random
        self._scope = Scope()
        self._preparing = False
        self._pending: list[Staged] = []
        self._pending_bytes = 0
        self._rolling = False
        self._named: DataFile | None = None
        """The next file: it has its name, which may not be durable yet. Nothing else is written before it is."""
        self.lazy = False
        """Of a copy that counts for nothing yet: each file is synced when it is full, and what is written last when
        this is off again; `durable` then says only what is written."""
        self._unsettled = False
        """The last file has something that was written lazily, and not synced since."""
        self._in_flight = 0
        """How many of the pending records are being written; they must not change."""

    @property
    def staged(self) -> bool:
        return bool(self._pending)

    async def close(self) -> None:
        await self._scope.close()

    # ------------------------------------------------------------ staging

    def stage_batches(self, batches: Sequence[tuple[Buffer, BatchHeader]]) -> None:
        records: list[Staged] = []
        slot: int = self.appended
        size = 0
        for data, header in batches:
            record = batch_record(slot, data, header)
            records.append(record)
            size += record.size
            slot += header.count
        if self._pool.full and not len(self._pool) and self._room(self._files.last) < self._pending_bytes + size:
            self._prepare()
            raise NoSpace(f"the volume of replica {self._place.replica} is full")
        for record, (_, header) in zip(records, batches, strict=True):
            self.recent[record.slot] = (header, STAGED)
        self._pending += records
        self._pending_bytes += size
        self.appended = Slot(slot)

    def stage_binding(self, binding: Binding, high_watermark: int) -> None:
        if len(self._pending) > self._in_flight:
            joined = joined_bind(self._pending[-1], binding, high_watermark)
            if joined is not None:
                self._pending[-1] = joined
                return
        self.stage(bind_record(binding, high_watermark))

    def stage(self, record: Staged) -> None:
        self._pending.append(record)
        self._pending_bytes += record.size

    # ------------------------------------------------------------ writing

    async def sync(self) -> None:
        """Write and sync everything staged so far; see the module about `NoSpace`."""
        if self._named is not None:
            await self._end_roll(self._named)
        elif self._rolling:
            # The next file may have its name already; what is written to this one would not be found.
            raise ReplicaFailed(f"replica {self._place.replica} was stopped between two files: open it again")
        if not self.lazy:
            await self._settle()
        left = len(self._pending)
        while left:
            count = await self._make_room(left)
            if not count:
                await self._write_into_reserve(left)
                return
            await self._write(self._pending[:count])
            del self._pending[:count]
            left -= count
        file = self._files.last
        if file.end > file.size // 2 and self.written.end is None:
            self._prepare()

    async def _write(self, records: list[Staged]) -> None:
        """Write some of the pending records as one group; taking them off `pending` is left to the caller."""
        file = self._files.last
        self._in_flight = len(self._pending)
        try:
            handle = file.handle or await self._files.open(file)
            await handle.write(file.end, encode_group(records, file.end, file.header.generation), sync=not self.lazy)
        finally:
            self._in_flight = 0
        self._unsettled = self.lazy
        self._take_in(file, records)

    async def _settle(self) -> None:
        """Sync what was written lazily: it is not pending any more, so nobody would write it again if that fails."""
        if self._unsettled:
            file = self._files.last
            handle = file.handle or await self._files.open(file)
            try:
                await handle.write(file.end, [], sync=True)
            except NoSpace as full:
                raise DiskFailed(f"what was written could not be synced: {full.message}") from full
            self._unsettled = False

    def _take_in(self, file: DataFile, records: list[Staged]) -> None:
        """The records are on disk: now they count."""
        self.seal_holds = self.seal_holds or (self.written.sealed and not self.lazy)
        columns = file.columns
        assert columns is not None, "the file being written has its columns in memory"
        for kind, slot, body, size, batch in records:
            if batch is not None:
                columns.index.add(slot, file.end, batch.time_us)
                self.recent[slot] = (batch, file.end)
                file.end_slot = slot + batch.count
            else:
                fold(self.written, file.end_slot, kind, slot, body)
            file.end += size
            self._pending_bytes -= size
        self.durable = Slot(file.end_slot)
        while len(self.recent) > RECENT_BATCHES and next(iter(self.recent)) < self.durable:
            self.recent.popitem(last=False)

    # ------------------------------------------------------------ room

    def _room(self, file: DataFile) -> int:
        """Bytes a group may take in a file."""
        return file.size - reserve_bytes(file.size) - file.end

    def _fitting(self, left: int, room: int) -> tuple[int, int]:
        """How many pending records fit into `room`, and their bytes."""
        taken = 0
        for number in range(left):
            size = self._pending[number].size
            if taken + size > room:
                return number, taken
            taken += size
        return left, taken

    async def _make_room(self, left: int) -> int:
        """See to it that the last file can take some of the pending records; gives how many, 0 on a full volume."""
        file = self._files.last
        if self._pending_bytes <= file.size - MOST_RESERVE_BYTES - file.end:  # the usual case
            return left
        room = self._room(file)
        if self._pending_bytes <= room:
            return left
        count, _ = self._fitting(left, room)
        has_batches = file.end_slot > file.first_slot
        if count == left or (count and (not has_batches or self._pending_bytes > file.size // LARGE)):
            return count
        usual = self._pool.file_bytes - reserve_bytes(self._pool.file_bytes) - FILE_HEADER_BYTES
        count, needed = self._fitting(left, usual)
        if not count:
            count, needed = 1, self._pending[0].size
        try:
            if has_batches:
                await self._roll(self._size_for(FILE_HEADER_BYTES + needed))
            else:
                # A file after this one would begin at the same slot: make this one longer instead.
                await self._grow(file, self._size_for(file.end + needed))
        except NoSpace:
            self._pool.full = True
            return 0
        return count

    def _size_for(self, end: int) -> int:
        """Size of a file whose records are to reach `end`."""
        if end <= self._pool.file_bytes - reserve_bytes(self._pool.file_bytes):
            return self._pool.file_bytes
        return end + min(MOST_RESERVE_BYTES, end // 7 + 8) + 4095 & ~4095

    async def _roll(self, size: int) -> None:
        before = self._files.last
        await self._settle()
        generation = next_generation(before.header.generation, self._random)
        header = FileHeader(
            self._place.replica,
            before.end_slot,
            size,
            generation,
            before.header.generation,
            before.end,
            self.written.copy(),
        )
        self._rolling = True
        try:
            self._named = await _name_file(self._place, self._pool, header)
        except (NoSpace, Unavailable):  # before the file had its name
            self._rolling = False
            raise
        await self._end_roll(self._named)

    async def _end_roll(self, file: DataFile) -> None:
        """`Unavailable`: the node lacks something; to be tried again before anything else is written."""
        handle = await _open_named(self._place, file)
        self._named, self._rolling = None, False
        self._files.append(file)
        self._files.adopt(file, handle)
        await self._pool.follow(file.size)

    async def _grow(self, file: DataFile, size: int) -> None:
        free, _ = await self._place.disk.space()
        if free < size - file.size + self._pool.margin_bytes:
            raise NoSpace(f"{free} bytes are free, {size - file.size} are needed")
        async with self._files.use(file) as handle:
            await handle.allocate(size)
        file.size = size
        self._pool.full = False
        await self._pool.follow(size)

    def _prepare(self) -> None:
        """Have the next file made, off the write path."""
        if not self._preparing and not len(self._pool):
            self._preparing = True
            self._scope.spawn(self._prepare_file(), name=f"prepare a file for {self._place.replica}")

    async def _prepare_file(self) -> None:
        try:
            await self._pool.ensure()
        except VarlogError:
            pass  # the next roll meets it again, where somebody waits for the outcome; of a full volume the pool knows
        finally:
            self._preparing = False

    # ------------------------------------------------------------ a full volume

    async def _write_into_reserve(self, left: int) -> None:
        """Write what may go ahead of batches; raises `NoSpace` if more than bindings has to wait."""
        chosen = self._chosen_for_reserve(left)
        going = frozenset(chosen)
        waiting = [record for number, record in enumerate(self._pending[:left]) if number not in going]
        if chosen:
            await self._write([self._pending[number] for number in chosen])
            self._pending[:left] = waiting
        if any(record.kind != RecordKind.BIND for record in waiting):
            raise NoSpace(f"the volume of replica {self._place.replica} is full")

    def _chosen_for_reserve(self, left: int) -> list[int]:
        """Bindings and trims pass batches; nothing passes what it depends on."""
        file = self._files.last
        room = file.size - file.end
        chosen: list[int] = []
        passed_batch = passed_binding = False
        for number, record in enumerate(self._pending[:left]):
            is_binding = record.kind == RecordKind.BIND
            waits = (
                record.batch is not None
                or (is_binding and passed_binding)
                or (record.kind in (RecordKind.SEAL, RecordKind.FINISH) and (passed_batch or passed_binding))
                or record.size > room - self._kept_back(record)
            )
            if waits:
                passed_batch = passed_batch or record.batch is not None
                passed_binding = passed_binding or is_binding
            else:
                chosen.append(number)
                room -= record.size
        return chosen

    def _kept_back(self, record: Staged) -> int:
        """What a record must leave of the reserve: the last of it is for trims, and of that for trims that help."""
        kept = last_reserve_bytes(self._files.last.size)
        if record.kind == RecordKind.BIND:
            return kept
        frees = len(self._files) > 1 and self._files[0].end_slot <= record.slot
        return 0 if record.kind == RecordKind.TRIM and frees else kept // 2


async def begin_file(place: Place, pool: FilePool, header: FileHeader) -> tuple[DataFile, File]:
    """Make the next data file. Its name appears only when its header is on disk, and is durable on return."""
    file = await _name_file(place, pool, header)
    return file, await _open_named(place, file)


async def _name_file(place: Place, pool: FilePool, header: FileHeader) -> DataFile:
    name, size = await pool.take(header.size)
    file = DataFile(header._replace(size=size), size)
    try:
        handle = await place.disk.open(place.path(name))
        try:
            await handle.write(0, [encode_file_header(file.header)], sync=True)
        finally:
            handle.close()
        await place.disk.rename(place.path(name), place.path(file.name))
    except NoSpace:
        # Its blocks cannot be written, reserved as they are: as long as it counted, batches would be taken for it.
        await place.disk.remove(place.path(name))
        raise
    except Unavailable:
        await pool.put_back(name, size)  # or the next try would leave another one
        raise
    return file


async def _open_named(place: Place, file: DataFile) -> File:
    try:
        await place.disk.sync_folder(place.folder)
        return await place.disk.open(place.path(file.name))
    except Unavailable:
        raise
    except VarlogError as error:
        # Its header says where the file before it ends: what went there now would be beyond that, and lost.
        raise DiskFailed(f"{file.name} has its name, and cannot be used: {error.message}") from error
