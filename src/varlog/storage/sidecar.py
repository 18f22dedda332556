"""The sidecar of a full data file whose slots are all bound: its columns, and the producers as of its end.

    0        8     12        16                                                   112
    +--------+-----+---------+---------------------------------------------------+---------+----------+-----------+
    | magic  | crc | version | summary: positions, totals, sizes, crc of the rest | index   | bindings | producers |
    +--------+-----+---------+---------------------------------------------------+---------+----------+-----------+

All integers are little endian u64. The first part has its own checksum, so that opening a replica reads
only that of most files. A sidecar is never the only copy of anything: one that is missing, torn or of
another file is made anew from the data files.
"""

from array import array
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt, NotFound, Unsupported
from varlog.ports.disk import Disk, DiskFailed, File
from varlog.storage.index import BindingColumn, Columns, SparseIndex, column_bytes, column_from
from varlog.storage.layout import VERSION, check_crc, with_crc
from varlog.wire.frame import Buffer

MAGIC = b"VARLOGIX"
_SUMMARY = Struct("<8sII12Q")
SUMMARY_BYTES = _SUMMARY.size

NO_GOOD = (Corrupt, Unsupported, NotFound, DiskFailed)
"""What is raised of a file that is gone, rotten or cannot be read; a sidecar is made anew then."""


class Summary(NamedTuple):
    """What stays in memory of a file that has a sidecar."""

    generation: int
    first_slot: int
    end_slot: int
    end: int
    """Offset behind the last record."""
    batches: int
    max_time: int
    glsn_end: int
    """One past the GLSN of the file's last slot."""
    index_rows: int
    binding_rows: int
    producer_bytes: int
    body_crc: int
    spare: int

    @property
    def body_bytes(self) -> int:
        return 8 * (3 * self.index_rows + 2 * self.binding_rows) + self.producer_bytes


def encode_sidecar(generation: int, end: int, columns: Columns, producers: bytes) -> bytes:
    index, bindings = columns.index, columns.bindings
    body = b"".join(
        (
            *map(column_bytes, (index.slots, index.offsets, index.max_times, bindings.slots, bindings.glsns)),
            producers,
        )
    )
    summary = Summary(
        generation,
        bindings.start,
        bindings.end,
        end,
        index.batches,
        index.max_time,
        bindings.glsn_end,
        len(index),
        len(bindings.slots),
        len(producers),
        crc32c(body),
        0,
    )
    return with_crc(_SUMMARY.pack(MAGIC, 0, VERSION, *summary)) + body


def decode_summary(data: Buffer) -> Summary:
    if len(data) != SUMMARY_BYTES:
        raise Corrupt(f"a sidecar needs {SUMMARY_BYTES} bytes, {len(data)} are there")
    check_crc(data, MAGIC, "the sidecar")
    return Summary(*_SUMMARY.unpack(data)[3:])


def decode_body(summary: Summary, body: Buffer) -> tuple[Columns, bytes]:
    """The columns, and the snapshot of the producers."""
    if len(body) != summary.body_bytes or crc32c(body) != summary.body_crc:
        raise Corrupt("the sidecar does not match its checksum")
    view = memoryview(body)
    at = 0

    def column(rows: int) -> "array[int]":
        nonlocal at
        at += 8 * rows
        return column_from(view[at - 8 * rows : at])

    index = SparseIndex()
    index.slots = column(summary.index_rows)
    index.offsets = column(summary.index_rows)
    index.max_times = column(summary.index_rows)
    index.batches = summary.batches
    bindings = BindingColumn(summary.first_slot)
    bindings.slots = column(summary.binding_rows)
    bindings.glsns = column(summary.binding_rows)
    bindings.end = summary.end_slot
    return Columns(index, bindings), bytes(view[at:])


async def read_summary(disk: Disk, path: str) -> Summary:
    """Raises `NO_GOOD`; its size is judged too, so that a torn one is not taken for whole."""
    file = await disk.open(path)
    try:
        summary = decode_summary(await file.read(0, SUMMARY_BYTES))
        if await file.size() != SUMMARY_BYTES + summary.body_bytes:
            raise Corrupt("the sidecar is not as long as it says")
        return summary
    finally:
        file.close()


async def read_sidecar(disk: Disk, path: str) -> tuple[Summary, Columns, bytes]:
    """All of it, checked."""
    file = await disk.open(path)
    try:
        return await _read_all(file)
    finally:
        file.close()


async def _read_all(file: File) -> tuple[Summary, Columns, bytes]:
    size = await file.size()
    data = await file.read(0, size)
    summary = decode_summary(data[:SUMMARY_BYTES])
    columns, producers = decode_body(summary, data[SUMMARY_BYTES:])
    return summary, columns, producers
