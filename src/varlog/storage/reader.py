"""The read path: one look-up in memory and one read of the file, which holds the walk and the answer.

    index entry          wanted                    limit, or enough bytes
        |  up to 64 KiB    |  whole batches               |
        [ one read of the file ........................... ]
                           [ the run that is returned     ]

The offset of a recent batch, and of what follows the last run, is known exactly: a reader that goes on
where it stopped walks over nothing. Every checksum on the way is verified.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from varlog.base.errors import Corrupt
from varlog.base.ids import Slot
from varlog.base.invariant import invariant
from varlog.runtime.give_way import give_way
from varlog.storage.files import DataFile, Files
from varlog.storage.index import INDEX_EVERY_BYTES
from varlog.storage.walk import check_record, plain_batch, size_at, skip_to
from varlog.wire.batch import BatchHeader, read_header
from varlog.wire.record import RECORD_HEADER_BYTES, RecordKind, walk_records

MOST_READ_BYTES = 32 << 20
"""Of one run, whatever the caller asks for; a single batch is read in any case."""

LEAST_READ_BYTES = 4 << 10
"""Reading less costs as much."""

TURN_BATCHES = 1 << 10
"""After so many others have their turn: what lies in the page cache is read without a pause."""

HEADER_STRETCHES = 4
"""Of the index, looked through at once at most by who wants the headers of batches alone."""

HINTS = 64
"""Ends of runs whose offset is remembered."""

Recent = Mapping[int, tuple[BatchHeader, int]]
"""Slot -> header and offset (negative: in no file yet) of the newest batches, in order and without gap."""


@dataclass(slots=True)
class Run:
    """Consecutive batches as they lie in a file; records of other kinds may lie between them."""

    slot: Slot
    """Slot of the first batch."""
    end: Slot
    """One past the last entry."""
    data: memoryview
    batches: int = 0


class _Found(NamedTuple):
    """A batch in bytes that were read."""

    slot: int
    end_slot: int
    start: int
    """Where its record begins in the bytes."""
    end: int


class _Place(NamedTuple):
    """Where to begin: an offset at or before the batch wanted, and the slot that comes next there."""

    offset: int
    slot: int


class Reader:
    """Finds and reads what is synced."""

    def __init__(self, files: Files, recent: Recent) -> None:
        self._files = files
        self._recent = recent
        self._hints: dict[int, tuple[DataFile, int]] = {}

    async def read(self, start: int, limit: int, max_bytes: int, max_batches: int = 0) -> Run:
        """Whole batches below `limit` from the one with `start` on, which must be in a file.

        All from one file, at most `max_bytes` (but at least one batch) and `max_batches` (0: any number).
        """
        file = self._files.find(start)
        limit = min(limit, file.end_slot)
        max_bytes = min(max_bytes, MOST_READ_BYTES)
        with self._files.pinned(file):
            place = await self._locate(file, start)
            length = max(max_bytes, LEAST_READ_BYTES) + (INDEX_EVERY_BYTES if place.slot != start else 0)
            while True:
                async with self._files.use(file) as handle:
                    data = await handle.read(place.offset, min(length, file.end - place.offset))
                found = self._batches_in(file, data, place, start)
                first = next(found, None)
                if first is not None:
                    break
                place, length = self._go_on(file, data, place, start, length)
        return await self._run(file, place.offset, data, first, found, limit, max_bytes, max_batches)

    async def _run(
        self,
        file: DataFile,
        offset: int,
        data: memoryview,
        first: _Found,
        following: Iterator[_Found],
        limit: int,
        max_bytes: int,
        max_batches: int,
    ) -> Run:
        if first.end_slot > limit:
            return Run(Slot(first.slot), Slot(first.slot), data[:0])
        last, count = first, 1
        try:
            while count != max_batches and last.end_slot < limit:
                batch = next(following, None)
                if batch is None or batch.end_slot > limit or batch.end - first.start > max_bytes:
                    break
                last, count = batch, count + 1
                if not count % TURN_BATCHES:
                    await give_way()
        except Corrupt:
            pass  # what lies before the damage is served; who goes on from there is told
        self._hint(last.end_slot, file, offset + last.end)
        return Run(Slot(first.slot), Slot(last.end_slot), data[first.start : last.end], count)

    async def header_at(self, slot: int) -> BatchHeader | None:
        """The header of the batch that begins at `slot`, if one does."""
        known = self._recent.get(slot)
        if known is not None:
            return known[0]
        if self._recent and slot >= next(iter(self._recent)):
            return None
        headers, _ = await self.headers_from(slot, slot + 1)
        return next((header for at, header in headers if at == slot), None)

    async def headers_from(self, start: int, limit: int) -> tuple[list[tuple[int, BatchHeader]], int]:
        """Slot and header of some batches from the one with `start` on that begin below `limit`; where to go on."""
        file = self._files.find(start)
        max_bytes = min(limit - start, HEADER_STRETCHES) * INDEX_EVERY_BYTES
        run = await self.read(start, file.end_slot, max_bytes, limit - start)
        headers = [
            (record.slot, read_header(run.data, record.body))
            for record in walk_records(run.data)
            if record.kind == RecordKind.BATCH and record.slot < limit
        ]
        return headers, run.end

    # ------------------------------------------------------------ where a slot lies

    async def _locate(self, file: DataFile, slot: int) -> _Place:
        recent = self._recent.get(slot)
        if recent is not None and recent[1] >= 0:
            return _Place(recent[1], slot)
        hint = self._hints.get(slot)
        if hint is not None and hint[0] is file:
            return _Place(hint[1], slot)
        index = (await self._files.columns(file)).index
        stretch = index.stretch_of(slot)
        invariant(stretch >= 0, "a file's index begins at its first slot", file=file.name, slot=slot)
        return _Place(index.offsets[stretch], index.slots[stretch])

    def _hint(self, slot: int, file: DataFile, offset: int) -> None:
        """The batch that begins at `slot` lies at `offset`, behind records of other kinds at most."""
        self._hints.pop(slot, None)
        self._hints[slot] = (file, offset)
        if len(self._hints) > HINTS:
            del self._hints[next(iter(self._hints))]

    # ------------------------------------------------------------ walking over bytes

    def _batches_in(self, file: DataFile, data: memoryview, place: _Place, start: int) -> Iterator[_Found]:
        """The whole batches in `data`, which was read from `place` on, beginning with the one that has `start`.

        What lies before it is passed over unverified: damage there does not hide what lies behind.
        """
        generation = file.header.generation
        position = skip_to(data, 0, generation, start) if place.slot < start else 0
        slot, inside = start, place.slot < start
        try:
            while True:
                batch = plain_batch(data, position, generation)
                if batch is None:
                    size = size_at(data, position)
                    if size is None or position + size > len(data):
                        return
                    check_record(data, position, generation)
                    position += size
                    continue
                first, count, end = batch
                if first != slot and not (inside and first < slot < first + count):
                    raise Corrupt(f"a batch for slot {first} where slot {slot} comes next")
                slot, inside = first + count, False
                yield _Found(first, slot, position, end)
                position = end
        except Corrupt as damage:
            raise self._files.place.corrupt(file.name, slot, damage.message, place.offset + position) from damage

    def _go_on(self, file: DataFile, data: memoryview, place: _Place, start: int, length: int) -> tuple[_Place, int]:
        """The batch with `start` is not whole in `data`: where to read, and how much, to have it."""
        position = skip_to(data, 0, file.header.generation, start)
        size = size_at(data, position)
        offset = place.offset + position
        rest = file.end - offset
        wanted = LEAST_READ_BYTES if size is None else max(size, LEAST_READ_BYTES)
        again = not position and wanted <= length
        if again or rest < (RECORD_HEADER_BYTES if size is None else size):
            raise self._files.place.corrupt(file.name, start, "a batch is cut off by the end of the file", offset)
        return _Place(offset, place.slot), wanted
