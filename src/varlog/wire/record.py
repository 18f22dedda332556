"""Records: how batches and a replica's other facts lie in its segment files, and travel to readers.

    0      4      5       6     8        12    16     24           32       40
    +------+------+-------+-----+--------+-----+------+------------+--------+------------------+
    | VREC | kind | flags |  0  | length | crc | slot | generation | synced | body ... padding |
    +------+------+-------+-----+--------+-----+------+------------+--------+------------------+

`length` is that of the body, which is padded with zeros to a multiple of eight. `crc` is the crc32c
of the header without itself and, for every kind but BATCH, of the body; a batch has its own.
`generation` is the number of the file this record was written to: what an earlier use of recycled
blocks left behind carries another. `synced` is the file offset up to which everything was synced
before this record was written: the evidence by which recovery tells a torn tail from rot.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt
from varlog.base.limits import BATCH_BYTES
from varlog.wire.batch import HEADER_BYTES, padding
from varlog.wire.frame import Buffer

MAGIC = b"VREC"
HEADER = Struct("<4sBBHIIQQQ")
RECORD_HEADER_BYTES = HEADER.size
_START = Struct("<4sBBHI")
_REST = Struct("<QQQ")


class RecordKind(IntEnum):
    BATCH = 1
    """Body: an encoded batch, whose first entry has `slot`."""
    BIND = 2
    """Body: GLSN, count, high watermark (u64 each); slots from `slot` on are bound."""
    TRIM = 3
    """Body: GLSN (u64); everything below `slot`, at or below the GLSN, is gone."""
    SEAL = 4
    """No store after this one, but by settling. `slot` is the tail at that moment."""
    FINISH = 5
    """The segment ends at `slot`; batches at or beyond it are not part of the log."""
    WRITER = 6
    """Body: writer generation (u64)."""
    JUNK = 7
    """Body: count (u64); slots from `slot` on were filled, not written."""


_BATCH = int(RecordKind.BATCH)


class Record(NamedTuple):
    """Where a record lies in a buffer."""

    kind: int
    slot: int
    generation: int
    synced: int
    body: int
    """Offset of the body in the buffer."""
    length: int

    @property
    def end(self) -> int:
        """Offset behind the body and its padding."""
        return self.body + self.length + padding(self.length)


def encode_record_header(kind: int, slot: int, generation: int, synced: int, body: Buffer) -> bytes:
    """The header that goes before `body`."""
    start = _START.pack(MAGIC, kind, 0, 0, len(body))
    rest = _REST.pack(slot, generation, synced)
    crc = crc32c(rest, crc32c(start))
    if kind != _BATCH:
        crc = crc32c(body, crc)
    return start + crc.to_bytes(4, "little") + rest


def read_record(data: Buffer, offset: int = 0) -> Record:
    """Decode the record at `offset` and check its header; the crc of a BATCH body is left to the caller."""
    body = offset + RECORD_HEADER_BYTES
    if body > len(data):
        raise Corrupt("a record is cut off inside its header")
    magic, kind, _flags, _zero, length, crc, slot, generation, synced = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        raise Corrupt(f"not a record: it begins with {magic!r}")
    if length > BATCH_BYTES + HEADER_BYTES:
        raise Corrupt(f"a record of {length} bytes")
    if body + length > len(data):
        raise Corrupt("a record is cut off inside its body")
    view = memoryview(data)
    found = crc32c(view[offset + 16 : body], crc32c(view[offset : offset + 12]))
    if kind != RecordKind.BATCH:
        found = crc32c(view[body : body + length], found)
    if found != crc:
        raise Corrupt("a record does not match its checksum")
    return Record(kind, slot, generation, synced, body, length)


def walk_records(data: Buffer) -> Iterator[Record]:
    """All records that lie end to end in `data`."""
    offset = 0
    while offset < len(data):
        record = read_record(data, offset)
        yield record
        offset = record.end


def batches_in(data: Buffer) -> list[memoryview]:
    """The batches among the records in `data`, unchecked and not copied."""
    view = memoryview(data)
    return [
        view[record.body : record.body + record.length]
        for record in walk_records(view)
        if record.kind == RecordKind.BATCH
    ]
