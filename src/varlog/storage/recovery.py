"""Opening a replica: which files are there, how far the last one can be believed, and what they say.

A crash leaves any subset of the blocks that were written since the last sync. Only the last file can
be hit: a file gets its name after everything in the file before it was synced. In the last file:

    | header | synced groups ........ | group being written |  zeros, or records of older generations
                                      ^ O                 ^ any subset of its blocks
                                          ^ X: first record that is not whole and right

1. *A torn tail is never taken for rot.* All records ever written to this file say `synced` <= O, and
   all before O is intact, so X >= O: nothing behind X says `synced` > X.
2. *Rot is never taken for a torn tail while anything synced lies behind it.* If the record at X was
   synced, every record of a later group says `synced` > X. The search looks at every place where a
   header of this file could lie, so one whole header is enough: `Corrupt`.
   (Damage to the very last group, with nothing behind it, looks like a torn tail; nothing on this
   disk can tell them apart. A binding is written after its batch, so a bound batch has a witness; a seal
   is given one before it is answered for.)
3. *What is cut off never comes back.* Whole records of the lost group may lie behind X; a later group
   that ends just where one begins would bring it back to life. So everything from X to the last such
   header is overwritten with zeros before anything else is written. Older generations are no danger.
4. *What is believed is on disk.* After the death of the process alone, the last group may be in the
   page cache only, or, after a failed sync, look clean without being on disk. It is written again, with
   the zeros, and synced, before `open` returns and anybody is told of it; so are the names of the files.
   If that fails the replica has failed for good: the next opening could not tell the zeros from what is on disk.
5. *A second crash during 3 and 4* leaves, per block, the old bytes or the new: before X these are the
   same bytes; behind X the zeros only destroy, or make whole the very record that was lost, of which
   nobody was told. Opening again starts over, with the same or a later X, and 1 to 4 hold as before.

Files before the last were synced in full: their records must reach exactly to the end that the header
of the file behind them names, and no further look is taken at what lies beyond it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from varlog.base.errors import Corrupt, NoSpace, NotFound, ReplicaFailed
from varlog.base.ids import Slot
from varlog.ports.disk import Disk, DiskFailed, File
from varlog.storage import layout
from varlog.storage.damage import Damage
from varlog.storage.damage import decode as decode_damage
from varlog.storage.facts import Facts
from varlog.storage.files import DataFile, Files
from varlog.storage.index import BindingColumn, Columns
from varlog.storage.layout import FILE_HEADER_BYTES, data_name, index_name, slot_of_name
from varlog.storage.place import Place, mark_failed, read_whole
from varlog.storage.pool import FilePool
from varlog.storage.producers import ProducerTable
from varlog.storage.scan import FileScan, copy_bindings, scan_file
from varlog.storage.sidecar import NO_GOOD, read_sidecar, read_summary
from varlog.storage.walk import WINDOW_BYTES, search_behind
from varlog.wire.batch import BatchHeader


@dataclass(slots=True)
class Recovered:
    """What opening found."""

    place: Place
    spec: bytes
    files: Files
    pool: FilePool
    facts: Facts
    producers: ProducerTable
    seal_holds: bool = False
    """See `FileScan`."""
    notes: list[str] = field(default_factory=list)
    """For people: what was cut off or made anew."""
    damage: list[Damage] = field(default_factory=list)
    """What was found earlier, and is still there."""


async def recover(disk: Disk, folder: str, file_bytes: int) -> Recovered:
    """Read a replica's folder and leave it as if the crash had not happened."""
    names = await disk.list(folder)
    if layout.FAILED in names:
        reason = (await read_whole(disk, f"{folder}/{layout.FAILED}")).decode(errors="replace")
        raise ReplicaFailed(f"the replica in {folder} stopped earlier and is not trusted again: {reason}")
    await disk.sync_folder(folder)  # rule 4, of names: a file that only the cache knows would be lost with all in it
    place, spec = await _read_spec(disk, folder, names)
    recovery = _Recovery(place, spec, names, file_bytes)
    try:
        await recovery.run()
        if layout.DAMAGED in names:
            recovery.result.damage = decode_damage(await read_whole(disk, place.path(layout.DAMAGED)))
    except BaseException:
        recovery.result.files.close()  # what is removed later would keep its space
        raise
    return recovery.result


async def _read_spec(disk: Disk, folder: str, names: Sequence[str]) -> tuple[Place, bytes]:
    if layout.SPEC not in names or layout.DROPPED in names or layout.COPYING in names:
        raise NotFound(f"there is no replica in {folder}")
    try:
        replica, spec = layout.decode_spec(await read_whole(disk, f"{folder}/{layout.SPEC}"))
    except Corrupt as damage:
        raise Corrupt(f"{folder}/{layout.SPEC}: {damage.message}") from damage
    if not f"{folder.rpartition('/')[2]}.".startswith(f"{replica}."):
        raise Corrupt(f"{folder} holds replica {replica}: give it the name it had, or remove it")
    return Place(disk, folder, replica), spec


class _Recovery:
    """One opening, step by step."""

    def __init__(self, place: Place, spec: bytes, names: list[str], file_bytes: int) -> None:
        self._place = place
        self._names = names
        files, pool = Files(place), FilePool(place, file_bytes)
        self.result = Recovered(place, spec, files, pool, Facts(), ProducerTable())
        self._scans: dict[DataFile, FileScan] = {}

    async def run(self) -> None:
        await self._sweep()
        await self._open_files(await self._finish_removal())
        await self._use_sidecars()
        await self._scan_others()
        for file in self.result.files.full:
            if file.columns is not None:
                file.columns = await self.result.files.rebuild(file, self._scans)
        self._bind_last()
        await self.result.pool.follow(self.result.files.last.size)
        facts, first = self.result.facts, self.result.files[0].first_slot
        if facts.trimmed < first:
            raise self._place.corrupt(layout.BASE, facts.trimmed, f"slots up to {first} are gone, but were not trimmed")
        if facts.end is not None:
            self.result.producers.truncate(Slot(facts.end))

    # ------------------------------------------------------------ which files are there

    async def _sweep(self) -> None:
        """What a crash left half made."""
        for name in self._names:
            if name.endswith(layout.NEW_SUFFIX):
                await self._place.disk.remove(self._place.path(name))
        await self.result.pool.adopt(self._names)

    async def _finish_removal(self) -> list[int]:
        """Remove what lies before the base, if trimming was interrupted; gives the first slots of the files left."""
        firsts = [slot for name in self._names if (slot := slot_of_name(name)) is not None]
        base = await self._read_base()
        for first in [first for first in firsts if first < base]:
            await self._remove_if_there(index_name(first))
            await self._remove_if_there(data_name(first))
        firsts = [first for first in firsts if first >= base]
        if not firsts or firsts[0] != base:
            raise self._place.corrupt(data_name(base), base, "the file is missing")
        return firsts

    async def _read_base(self) -> int:
        if layout.BASE not in self._names:
            return 0
        try:
            replica, base, producers = layout.decode_base(
                await read_whole(self._place.disk, self._place.path(layout.BASE))
            )
            self.result.producers = ProducerTable.load(producers)
        except Corrupt as damage:
            raise self._place.corrupt(layout.BASE, 0, damage.message) from damage
        if replica != self._place.replica:
            raise self._place.corrupt(layout.BASE, 0, f"it belongs to replica {replica}")
        return base

    async def _remove_if_there(self, name: str) -> None:
        if name in self._names:
            await self._place.disk.remove(self._place.path(name))

    async def _open_files(self, firsts: list[int]) -> None:
        """Read every header, and check that the files form one chain."""
        before: DataFile | None = None
        for first in firsts:
            file = await self._open_file(first)
            header = file.header
            if before is not None:
                if header.previous_generation != before.header.generation:
                    raise self._place.corrupt(file.name, before.first_slot, f"it does not follow {before.name}")
                if not FILE_HEADER_BYTES < header.previous_end <= before.size:
                    raise self._place.corrupt(before.name, before.first_slot, "it is shorter than it was")
                before.end, before.end_slot = header.previous_end, first
            self.result.files.append(file)
            before = file

    async def _open_file(self, first: int) -> DataFile:
        name = data_name(first)
        handle = await self._place.disk.open(self._place.path(name))
        try:
            header = layout.decode_file_header(await handle.read(0, FILE_HEADER_BYTES))
            size = await handle.size()
        except Corrupt as damage:
            raise self._place.corrupt(name, first, damage.message) from damage
        finally:
            handle.close()
        if header.replica != self._place.replica or header.first_slot != first:
            raise self._place.corrupt(name, first, f"it is {data_name(header.first_slot)} of replica {header.replica}")
        if size < header.size:
            # A crash cannot do this: the size was synced with the header.
            raise self._place.corrupt(name, first, f"it was made with {header.size} bytes and has {size}")
        return DataFile(header, size)

    # ------------------------------------------------------------ what they hold

    async def _use_sidecars(self) -> None:
        """Of each full file the summary is enough; of the last that has one, the producers are wanted too."""
        for file in self.result.files.full:
            if index_name(file.first_slot) in self._names:
                await self._use_sidecar(file)
        for file in reversed(self.result.files.full):
            if file.columns is None and await self._load_producers(file):
                return

    async def _use_sidecar(self, file: DataFile) -> None:
        name = index_name(file.first_slot)
        try:
            summary = await read_summary(self._place.disk, self._place.path(name))
        except NO_GOOD as damage:
            self.result.notes.append(f"{name} is made anew: {damage.message}")
            return
        if (summary.generation, summary.first_slot, summary.end_slot, summary.end) != (
            file.header.generation,
            file.first_slot,
            file.end_slot,
            file.end,
        ):
            self.result.notes.append(f"{name} is made anew: it belongs to another file")
            return
        file.summarize(summary)

    async def _load_producers(self, file: DataFile) -> bool:
        name = index_name(file.first_slot)
        try:
            _, _, producers = await read_sidecar(self._place.disk, self._place.path(name))
            self.result.producers = ProducerTable.load(producers)
        except NO_GOOD as damage:
            self.result.notes.append(f"{name} is made anew: {damage.message}")
            file.distrust()
            return False
        return True

    async def _scan_others(self) -> None:
        """Read every file that has no sidecar; producers go on from the last that has one."""
        files = self.result.files
        with_sidecar = [number for number, file in enumerate(files.full) if file.columns is None]
        known = with_sidecar[-1] if with_sidecar else -1
        for number, file in enumerate(files.full):
            if file.columns is not None:
                await self._scan_full(file, files[number + 1], record=number > known)
        await self._scan_last(files.last)

    def _record(self, slot: Slot, header: BatchHeader) -> None:
        self.result.producers.record(header.producer, header.sequence, slot, header.count)

    async def _scan_full(self, file: DataFile, following: DataFile, *, record: bool) -> None:
        async with self.result.files.use(file) as handle:
            scan, stop = await scan_file(handle, file.header, file.end, self._record if record else None)
        if stop.reason is not None:
            raise self._place.corrupt(file.name, scan.end_slot, stop.reason, stop.offset)
        if scan.end_slot != following.first_slot or scan.facts != following.header.facts:
            raise self._place.corrupt(following.name, scan.end_slot, f"its header does not agree with {file.name}")
        self._scans[file] = scan

    async def _scan_last(self, file: DataFile) -> None:
        async with self.result.files.use(file) as handle:
            scan, stop = await scan_file(handle, file.header, file.size, self._record)
            dirty_end = stop.offset
            if stop.offset < file.size:
                behind = await search_behind(handle, file.header.generation, stop.offset, file.size)
                if behind.synced > stop.offset:
                    what = f"{stop.reason}, but what lies behind shows that it was synced"
                    raise self._place.corrupt(file.name, scan.end_slot, what, stop.offset)
                dirty_end = behind.end
            await self._settle(handle, scan.last_group, stop.offset, dirty_end)
        if dirty_end > stop.offset:
            self.result.notes.append(
                f"{file.name}: a torn tail of {dirty_end - stop.offset} bytes behind slot {scan.end_slot} was cut off"
            )
        file.end, file.end_slot = stop.offset, scan.end_slot
        self._scans[file] = scan
        self.result.facts = scan.facts
        self.result.seal_holds = scan.seal_holds

    async def _settle(self, file: File, last_group: int, end: int, dirty_end: int) -> None:
        try:
            await _write_anew(file, last_group, end, dirty_end)
        except DiskFailed as error:
            raise await mark_failed(self._place, error) from error

    def _bind_last(self) -> None:
        """The last file's slots can only be bound by records of its own."""
        last = self.result.files.last
        scan = self._scans[last]
        column = BindingColumn(last.first_slot)
        copy_bindings(column, scan.bound, last.end_slot)
        last.columns = Columns(scan.index, column)


async def _write_anew(file: File, last_group: int, end: int, dirty_end: int) -> None:
    """Write the last group and zeros behind it, in bounded pieces, and sync it all (rules 3 to 5).

    Also where there is nothing to write: zeros of an opening that was broken off may not be on disk.
    """
    offset = last_group
    while offset < end:
        data = await file.read(offset, min(WINDOW_BYTES, end - offset))
        await file.write(offset, [data], sync=False)
        offset += len(data)
    while offset < dirty_end:
        size = min(WINDOW_BYTES, dirty_end - offset)
        await file.write(offset, [bytes(size)], sync=False)
        offset += size
    first = await file.read(last_group, 8)
    try:
        await file.write(last_group, [first], sync=True)
    except NoSpace as full:
        raise DiskFailed(f"what was written could not be synced: {full.message}") from full
