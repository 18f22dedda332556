"""Positions by GLSN and by time, bindings of a range, and what a range of slots holds."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.ids import FIRST_GLSN, Slot
from varlog.base.ranges import Binding
from varlog.runtime.give_way import give_way
from varlog.storage.files import DataFile, Files
from varlog.storage.reader import Reader
from varlog.wire.proto import varlog_pb2 as pb

_BINDING = Struct("<QQQ")

DIGEST_ROWS = 1 << 16
"""Most rows of one digest; who gets so many asks again from where the last one ends."""


MOST_MARKS = 1 << 10
"""Of one answer; where there would be more, some are left out."""


class DigestRow(NamedTuple):
    """What the slots `[slot, slot + entries)` hold; a row a batch."""

    slot: Slot
    entries: int
    content: int
    """`SlotContent` of the protocol."""
    crc: int
    """Of the batch; 0 for anything else."""


async def bindings_of(files: Files, start: int, end: int) -> list[Binding]:
    """What covers exactly `[start, end)`, joined where it is continuous, also over the ends of files."""
    found: list[Binding] = []
    with files.pinned(files.find(start)):
        while start < end:
            file = files.find(start)
            stop = min(end, file.end_slot)
            for binding in (await files.columns(file)).bindings.ranges(start, stop):
                if found and binding.continues(found[-1]):
                    before = found.pop()
                    binding = Binding(before.slot, before.glsn, before.count + binding.count)
                found.append(binding)
            start = stop
    return found


def fold_bindings(bindings: list[Binding], crc: int) -> int:
    """A checksum goes on over joined bindings: the same for the same positions, however they were recorded."""
    for binding in bindings:
        crc = crc32c(_BINDING.pack(binding.slot, binding.glsn, binding.count), crc)
    return crc


async def slot_of_glsn(files: Files, glsn: int, committed: int) -> Slot:
    """The first bound slot whose GLSN is `glsn` or greater; `committed` if there is none."""
    low, high = 0, len(files) - 1
    while low < high:
        middle = (low + high) // 2
        file = files[middle]
        if file.glsn_end > glsn or file.bound_end < file.end_slot:
            high = middle
        else:
            low = middle + 1
    column = (await files.columns(files[low])).bindings
    return Slot(min(column.first_at_or_after(glsn), committed))


async def slot_of_time(files: Files, reader: Reader, time_us: int, start: int, committed: int) -> Slot:
    """The first bound slot from `start` on of a batch with this time or a later one; `committed` if there is none.

    Times need not grow: the answer is the first such batch, whatever comes behind it.
    """
    if start >= committed:
        return Slot(committed)
    with files.pinned(files.find(start)):
        for file in files.from_slot(start):
            if file.max_time >= time_us and file.first_slot < committed:
                found = await _time_in_file(files, file, reader, time_us, start, committed)
                if found is not None:
                    return Slot(max(found, start))
    return Slot(committed)


async def _time_in_file(
    files: Files, file: DataFile, reader: Reader, time_us: int, start: int, committed: int
) -> int | None:
    index = (await files.columns(file)).index
    for stretch in range(max(index.stretch_of(start), 0), len(index)):
        if index.max_times[stretch] < time_us:
            continue
        at = max(index.slots[stretch], start)
        end = index.slots[stretch + 1] if stretch + 1 < len(index) else file.end_slot
        end = min(end, committed)
        while at < end:
            headers, at = await reader.headers_from(at, end)
            for slot, header in headers:
                if header.time_us >= time_us:
                    return slot
    return None


def marks_of(files: Files, trimmed: int, committed: int) -> list[tuple[int, int]]:
    """Some positions from which on so many bytes of what is committed are stored at least, rising.

    Without a look at the disk: stretches of the files whose columns are in memory, and the ends of all others; in
    front of them, if nothing is trimmed, the first position of all. What is not committed does not count: it may be
    cut off yet.
    """
    found: list[tuple[int, int]] = []
    behind = 0
    for file in reversed(files.from_slot(trimmed)):
        end = _committed_end(file, committed)
        if file is not files.last and file.end_slot <= min(file.bound_end, committed):
            found.append((file.glsn_end, behind))
        found += reversed([(glsn, behind + end - at) for glsn, at in _stretches(file, trimmed, committed)])
        behind += end
    if committed and not trimmed:
        found.append((FIRST_GLSN, behind))
    found.reverse()
    return found[:: -(-len(found) // MOST_MARKS) or 1]


def _committed_end(file: DataFile, committed: int) -> int:
    """The offset up to which all in a file is committed, as far as is known: where a stretch begins, or the end."""
    if file.end_slot <= committed:
        return file.end
    if file.columns is None or committed < file.first_slot:
        return 0
    index = file.columns.index
    return index.offsets[index.stretch_of(committed)]


def _stretches(file: DataFile, trimmed: int, committed: int) -> Iterator[tuple[int, int]]:
    """Positions at which those in memory begin, and where in the file."""
    if file.columns is not None:
        index, bindings = file.columns.index, file.columns.bindings
        for slot, offset in zip(index.slots, index.offsets, strict=True):
            if trimmed < slot < min(bindings.end, committed):
                yield bindings.glsn_of(slot), offset


async def digest(files: Files, reader: Reader, low: int, high: int, trimmed: int, durable: int) -> list[DigestRow]:
    """What `[low, high)` holds. Trimmed slots are unknown, not empty; a batch that reaches over an edge is whole."""
    rows: list[DigestRow] = []
    if low < trimmed:
        stop = min(trimmed, high)
        rows.append(DigestRow(Slot(low), stop - low, pb.SLOT_UNKNOWN, 0))
        low = stop
    end = min(high, durable)
    if low < end:
        with files.pinned(files.find(low)):
            while low < end and len(rows) < DIGEST_ROWS:
                headers, low = await reader.headers_from(low, end)
                rows += [DigestRow(Slot(slot), each.count, pb.SLOT_DATA, each.crc) for slot, each in headers]
                await give_way()  # what lies in the page cache is read without a pause
    if low >= durable and low < high:
        rows.append(DigestRow(Slot(low), high - low, pb.SLOT_EMPTY, 0))
    return rows
