"""Many batches of the log as one Arrow record batch, without a Python object per entry.

    batches     [offsets|values]  [offsets|values]  [offsets|values]     as received
                        \\______________|______________/
    record batch        offsets shifted | values end to end               one join each

What costs is the step into Python, so a batch takes one step whatever it holds, and columns that
nobody asked for are not made. Offsets come from the network: they are checked here, all at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pyarrow

from varlog.archive.files import LAST_US
from varlog.base.errors import Corrupt, TooLarge
from varlog.client.arrow import header_column, key_column, payload_buffers
from varlog.client.entry import ReadBatch, as_received
from varlog.wire.batch import HEADERS, KEYS

LAST_TIME_US = LAST_US
"""A sender may give any time; the last that a datetime can say is what readers of the log see of a later one, and all
that Python can take from Spark, or pyiceberg from the statistics of a file."""

MOST_BYTES = (1 << 31) - 1
"""Of one record batch: its offsets are 32 bits wide."""


class Assembler:
    """Gathers batches and makes record batches of one schema out of them."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._schema = schema
        self._batches: list[ReadBatch] = []
        self.rows = 0
        self.bytes = 0
        """What the batches take uncompressed, as they are in the record batch."""

    def add(self, batch: ReadBatch) -> None:
        size = self.bytes + as_received(batch)[0].header.raw_bytes
        if size > MOST_BYTES:
            raise TooLarge(
                f"a record batch of {size} bytes: take what was added before, or read fewer rows", MOST_BYTES
            )
        self._batches.append(batch)
        self.rows += batch.count
        self.bytes = size

    def take(self) -> pyarrow.RecordBatch:
        """Everything added since the last time."""
        batches, self._batches = self._batches, []
        self.rows = self.bytes = 0
        columns = []
        for field in self._schema:
            column = _COLUMNS[field.name](batches)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pyarrow.RecordBatch.from_arrays(columns, schema=self._schema)


def _counts(batches: Sequence[ReadBatch]) -> Any:
    return numpy.fromiter((batch.count for batch in batches), numpy.int64, len(batches))


def _fixed(kind: pyarrow.DataType, values: Any) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])


def _running(batches: Sequence[ReadBatch], firsts: list[int]) -> pyarrow.Array:
    """Numbers that grow by one inside each batch, from its first one."""
    counts = _counts(batches)
    starts = numpy.cumsum(counts) - counts
    shifts = numpy.array(firsts, numpy.int64) - starts
    return _fixed(pyarrow.int64(), numpy.repeat(shifts, counts) + numpy.arange(counts.sum(), dtype=numpy.int64))


def _glsn(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    return _running(batches, [batch.first for batch in batches])


def _slot(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    return _running(batches, [batch.slot for batch in batches])


def _stream(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    streams = numpy.array([batch.stream for batch in batches], numpy.int32)
    return _fixed(pyarrow.int32(), numpy.repeat(streams, _counts(batches)))


def _time(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    times = numpy.array([min(batch.time_us, LAST_TIME_US) for batch in batches], numpy.int64)
    return _fixed(pyarrow.timestamp("us", tz="UTC"), numpy.repeat(times, _counts(batches)))


def _payload(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    if any(batch.junk for batch in batches):
        none = pyarrow.binary()
        return pyarrow.concat_arrays(
            [pyarrow.nulls(batch.count, none) if batch.junk else _payload([batch]) for batch in batches]
        )
    parts = [payload_buffers(batch) for batch in batches]
    values = parts[0][1] if len(parts) == 1 else b"".join([part[1] for part in parts])
    offsets = numpy.frombuffer(b"".join([part[0] for part in parts]), numpy.int32)
    counts = _counts(batches)
    lengths = numpy.diff(offsets)
    if len(parts) > 1:
        # Between the offsets of two batches the difference says nothing.
        lengths = numpy.delete(lengths, numpy.cumsum(counts + 1)[:-1] - 1)
    if (len(lengths) and lengths.min() < 0) or int(lengths.sum(dtype=numpy.int64)) != len(values):
        raise Corrupt("the offsets of a batch go back, or lead outside of it")
    ends = numpy.zeros(len(lengths) + 1, numpy.int32)
    numpy.cumsum(lengths, out=ends[1:])
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(values)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(lengths), buffers)


def _any_has(flag: int, batches: Sequence[ReadBatch]) -> bool:
    return any(as_received(batch)[0].header.flags & flag for batch in batches)


def _key(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    if not _any_has(KEYS, batches):
        return pyarrow.nulls(sum(batch.count for batch in batches), pyarrow.binary())
    return pyarrow.concat_arrays(list(map(key_column, batches)))


def _headers(batches: Sequence[ReadBatch]) -> pyarrow.Array:
    if not _any_has(HEADERS, batches):
        lists = numpy.zeros(sum(batch.count for batch in batches) + 1, numpy.int32)
        none = pyarrow.array([], pyarrow.string()), pyarrow.array([], pyarrow.binary())
        return pyarrow.MapArray.from_arrays(_fixed(pyarrow.int32(), lists), *none)
    return pyarrow.concat_arrays(list(map(header_column, batches)))


_COLUMNS: dict[str, Callable[[Sequence[ReadBatch]], pyarrow.Array]] = {
    "glsn": _glsn,
    "stream": _stream,
    "slot": _slot,
    "time": _time,
    "key": _key,
    "headers": _headers,
    "payload": _payload,
}
