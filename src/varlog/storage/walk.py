"""Walking over the records of one data file, every checksum on the way included.

Memory is bounded: a file is read in windows of `WINDOW_BYTES`, or of one record if that is larger.
"""

from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt, TooLarge, Unsupported
from varlog.base.limits import BATCH_BYTES, BATCH_ENTRIES
from varlog.ports.disk import File
from varlog.wire.batch import CRC_AT, CRC_FROM, HEADER_BYTES, KNOWN_FLAGS, BatchHeader, check_batch, padding
from varlog.wire.batch import HEADER as BATCH_HEADER
from varlog.wire.batch import MAGIC as BATCH_MAGIC
from varlog.wire.batch import VERSION as BATCH_VERSION
from varlog.wire.frame import Buffer
from varlog.wire.record import HEADER, MAGIC, RECORD_HEADER_BYTES, Record, RecordKind, read_record

WINDOW_BYTES = 1 << 20
"""What is read of a file at once."""

_OVERLAP = 128
"""Windows of a search overlap by more than the largest record other than a batch."""

_ZEROS = bytes(WINDOW_BYTES + _OVERLAP)
"""Most of a file that was just made; comparing is many times faster than searching."""

LARGEST_BODY = BATCH_BYTES + HEADER_BYTES
_LENGTH = Struct("<I")
_LENGTH_AT = 8
_COUNT_AT = RECORD_HEADER_BYTES + 12
_GENERATION = Struct("<Q")
_GENERATION_AT = 24
_BODY_BYTES: dict[int, int] = {RecordKind.BIND: 24, RecordKind.TRIM: 8, RecordKind.SEAL: 0, RecordKind.FINISH: 0}
"""Of the kinds besides BATCH that a dense stream has."""

Visit = Callable[[memoryview, Record, BatchHeader | None, int], None]
"""Called for each record with the bytes, where it lies in them, a batch's header, and the file offset of the bytes."""


def record_bytes(length: int) -> int:
    """What a record with a body of `length` bytes takes in a file."""
    return RECORD_HEADER_BYTES + length + padding(length)


def size_at(data: Buffer, position: int) -> int | None:
    """What the record at `position` takes by its own word; None if even its header is cut off."""
    if position + RECORD_HEADER_BYTES > len(data):
        return None
    if data[position : position + 4] != MAGIC:
        raise Corrupt(f"not a record: it begins with {bytes(data[position : position + 4])!r}")
    length: int = _LENGTH.unpack_from(data, position + _LENGTH_AT)[0]
    if length > LARGEST_BODY:
        raise Corrupt(f"a record of {length} bytes")
    return record_bytes(length)


def check_record(data: Buffer, position: int, generation: int) -> tuple[Record, BatchHeader | None]:
    """Judge the whole record at `position`; a batch's own checksum is part of it."""
    record = read_record(data, position)
    if record.generation != generation:
        raise Corrupt("a record of another generation: left there by an earlier use of the file")
    if record.kind != RecordKind.BATCH:
        _check_other(record)
        return record, None
    try:
        header = check_batch(data, record.body)
    except (TooLarge, Unsupported) as wrong:
        if _matches_checksum(data, record):
            raise
        raise Corrupt(wrong.message) from wrong
    if header.total_bytes != record.length:
        raise Corrupt(f"a record of {record.length} bytes holds a batch of {header.total_bytes}")
    return record, header


def plain_batch(data: memoryview, position: int, generation: int) -> tuple[int, int, int] | None:
    """Slot, count and end of the batch record at `position`, if all is right with it: `check_record` in a hurry.

    None: it is something else, cut off or damaged; `check_record` says what.
    """
    body = position + RECORD_HEADER_BYTES
    if body + HEADER_BYTES > len(data):
        return None
    magic, kind, _, _, length, crc, slot, found, _ = HEADER.unpack_from(data, position)
    end = body + length
    if magic != MAGIC or kind != RecordKind.BATCH or found != generation or end > len(data):
        return None
    if crc32c(data[position + 16 : body], crc32c(data[position : position + 12])) != crc:
        return None
    magic, version, flags, _, crc, count, body_bytes, raw_bytes, _, _, _ = BATCH_HEADER.unpack_from(data, body)
    if magic != BATCH_MAGIC or version != BATCH_VERSION or flags & ~KNOWN_FLAGS or body_bytes + HEADER_BYTES != length:
        return None
    if not 0 < count <= BATCH_ENTRIES or raw_bytes > BATCH_BYTES:
        return None
    if crc32c(data[body + CRC_FROM : end], crc32c(data[body : body + CRC_AT])) != crc:
        return None
    return slot, count, end + padding(length)


def skip_to(data: memoryview, position: int, generation: int, slot: int) -> int:
    """Where the batch with `slot` begins, or the first record that is not whole; nothing on the way is verified.

    Whoever goes on from there checks the batch he finds, its slot included: a wrong turn taken over
    damage ends in `Corrupt`, never in another batch.
    """
    while position + RECORD_HEADER_BYTES + HEADER_BYTES <= len(data):
        magic, kind, _, _, length, _, first, found, _ = HEADER.unpack_from(data, position)
        if magic != MAGIC or found != generation or length > LARGEST_BODY:
            break
        if kind == RecordKind.BATCH:
            count = _LENGTH.unpack_from(data, position + _COUNT_AT)[0]
            if first + count > slot:
                break
        end = position + record_bytes(length)
        if end > len(data):
            break
        position = end
    return position


def _matches_checksum(data: Buffer, record: Record) -> bool:
    """Whether a batch we do not understand is one that was written so, by another release."""
    batch = memoryview(data)[record.body : record.body + record.length]
    return crc32c(batch[CRC_FROM:], crc32c(batch[:CRC_AT])) == int.from_bytes(batch[CRC_AT:CRC_FROM], "little")


def _check_other(record: Record) -> None:
    expected = _BODY_BYTES.get(record.kind)
    if expected is None:
        raise Unsupported(f"a record of kind {record.kind} is unknown to this release")
    if record.length != expected:
        raise Corrupt(f"a record of kind {record.kind} with {record.length} bytes")


def records_in(data: Buffer, position: int, generation: int) -> Iterator[tuple[Record, BatchHeader | None]]:
    """Every whole record from `position` on; ends where the bytes do, raises `Corrupt` where they are wrong."""
    while True:
        size = size_at(data, position)
        if size is None or position + size > len(data):
            return
        yield check_record(data, position, generation)
        position += size


class Stop(NamedTuple):
    """Where a walk ended."""

    offset: int
    reason: str | None
    """Why it could not go on; None: the limit was reached."""


Pause = Callable[[int], Awaitable[None]]
"""Called with the size of each piece that was read, before the next one is."""


async def walk_file(
    file: File,
    generation: int,
    start: int,
    limit: int,
    visit: Visit,
    *,
    window_bytes: int = WINDOW_BYTES,
    pause: Pause | None = None,
) -> Stop:
    """Visit the records of `[start, limit)` one after the other, up to the first that is not whole and right."""
    offset = start
    window = window_bytes
    while offset < limit:
        data = await file.read(offset, min(window, limit - offset))
        if pause is not None:
            await pause(len(data))
        position = 0
        try:
            for record, header in records_in(data, 0, generation):
                visit(data, record, header, offset)
                position = record.end
            if not position:
                size = size_at(data, 0)
                if size is None or offset + size > limit or len(data) < min(window, limit - offset):
                    return Stop(offset, "a record is cut off by the end of the file")
                window = size
                continue
        except Corrupt as bad:
            return Stop(offset + position, bad.message)
        offset += position
        window = window_bytes
    return Stop(offset, None)


class Leftovers(NamedTuple):
    """What lies behind the first bad record of a file."""

    end: int
    """One past the last header of this generation; the place searched from if there is none."""
    synced: int
    """The furthest offset that any of those records says was synced before it was written."""


async def search_behind(file: File, generation: int, start: int, limit: int) -> Leftovers:
    """Look for record headers of this generation anywhere in `[start, limit)`, whole records or not.

    A header that is not whole counts as something that lies there, but not as evidence.
    """
    pattern = _GENERATION.pack(generation)
    end, synced = start, 0
    offset = start & ~7
    while offset + RECORD_HEADER_BYTES <= limit:
        data = bytes(await file.read(offset, min(WINDOW_BYTES + _OVERLAP, limit - offset)))
        for position in _headers_in(data, pattern) if data != _ZEROS[: len(data)] else ():
            end = max(end, offset + position + RECORD_HEADER_BYTES)
            synced = max(synced, _evidence(data, position, offset + position))
        if len(data) < WINDOW_BYTES + _OVERLAP:
            break
        offset += WINDOW_BYTES
    return Leftovers(end, synced)


async def next_record(file: File, generation: int, start: int, limit: int) -> tuple[int, int | None] | None:
    """Where a walk can go on after damage: at the first whole header of this generation in `[start, limit)`.

    Gives its offset and, if it is that of a batch, its slot.
    """
    pattern = _GENERATION.pack(generation)
    offset = start + 7 & ~7
    while offset + RECORD_HEADER_BYTES <= limit:
        data = bytes(await file.read(offset, min(WINDOW_BYTES + _OVERLAP, limit - offset)))
        for position in _headers_in(data, pattern):
            if _evidence(data, position, offset + position):
                _, kind, _, _, _, _, slot, _, _ = HEADER.unpack_from(data, position)
                return offset + position, slot if kind == RecordKind.BATCH else None
        if len(data) < WINDOW_BYTES + _OVERLAP:
            break
        offset += WINDOW_BYTES
    return None


def _headers_in(data: bytes, pattern: bytes) -> Iterator[int]:
    """Where something that looks like a header of this generation begins; records begin at multiples of eight."""
    at = data.find(pattern, _GENERATION_AT)
    while at >= 0:
        position = at - _GENERATION_AT
        if not position & 7 and data.startswith(MAGIC, position):
            yield position
        at = data.find(pattern, at + 1)


def _evidence(data: bytes, position: int, own_offset: int) -> int:
    """The `synced` of a header that is whole, else 0. No record knows of a sync beyond its own place."""
    body = position + RECORD_HEADER_BYTES
    if body > len(data):
        return 0
    _, kind, _, _, length, crc, _, _, synced = HEADER.unpack_from(data, position)
    found = crc32c(data[position + 16 : body], crc32c(data[position : position + 12]))
    if kind != RecordKind.BATCH:
        found = crc32c(data[body : body + length], found)
    return synced if found == crc and synced <= own_offset else 0
