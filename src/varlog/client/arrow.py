"""Batches as Arrow record batches: the received bytes are Arrow's own layout, so they are wrapped, not copied.

The schema is the one that Spark sees. Offsets and texts come from the network: they are checked here,
because Arrow itself trusts them. pyarrow is an extra and is loaded at the first use.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from varlog.base.errors import Corrupt
from varlog.client.entry import ReadBatch, as_received
from varlog.wire.arrow import library, schema
from varlog.wire.batch import Batch

if TYPE_CHECKING:
    import pyarrow


def record_batch(read: ReadBatch) -> "pyarrow.RecordBatch":
    """The entries of a batch; of junk, none."""
    arrow = library()
    if read.junk:
        return arrow.RecordBatch.from_pylist([], schema=schema())
    count = read.count
    columns = [
        _fixed(arrow.int64(), array("q", range(read.first, read.first + count))),
        _fixed(arrow.int32(), array("i", [read.stream]) * count),
        _fixed(arrow.int64(), array("q", range(read.slot, read.slot + count))),
        _fixed(arrow.timestamp("us", tz="UTC"), array("q", [min(read.time_us, (1 << 63) - 1)]) * count),
        key_column(read),
        header_column(read),
        _sliced(_payload_column, read),
    ]
    return arrow.RecordBatch.from_arrays(columns, schema=schema())


def key_column(read: ReadBatch) -> "pyarrow.Array":
    return _sliced(_key_column, read)


def header_column(read: ReadBatch) -> "pyarrow.Array":
    return _sliced(_header_column, read)


def payload_buffers(read: ReadBatch) -> tuple[memoryview, memoryview]:
    """Offsets (one more than entries, not always from 0) and values end to end, as received. Unchecked."""
    batch, low = as_received(read)
    offsets, values = batch.payload_buffers()
    if read.count == len(batch):
        return offsets, values
    mine = offsets[low : low + read.count + 1]
    return mine, values[mine[0] : mine[read.count]]


def _sliced(column: Callable[[Batch], Any], read: ReadBatch) -> Any:
    batch, low = as_received(read)
    return column(batch).slice(low, read.count)


def _fixed(kind: Any, values: "array[int]") -> Any:
    arrow = library()
    return arrow.Array.from_buffers(kind, len(values), [None, arrow.py_buffer(values)])


def _binary(kind: Any, count: int, bitmap: memoryview | None, offsets: memoryview, values: memoryview) -> Any:
    arrow = library()
    buffers = [None if bitmap is None else arrow.py_buffer(bitmap), arrow.py_buffer(offsets), arrow.py_buffer(values)]
    return _checked(arrow.Array.from_buffers(kind, count, buffers))


def _checked(column: Any) -> Any:
    try:
        column.validate(full=True)
    except library().ArrowInvalid as invalid:
        raise Corrupt(f"a column of a batch makes no sense: {invalid}") from invalid
    return column


def _payload_column(batch: Batch) -> Any:
    return _binary(library().binary(), len(batch), None, *batch.payload_buffers())


def _key_column(batch: Batch) -> Any:
    buffers = batch.key_buffers()
    if buffers is None:
        return library().nulls(len(batch), library().binary())
    bitmap, offsets, values = buffers
    return _binary(library().binary(), len(batch), bitmap, offsets, values)


def _header_column(batch: Batch) -> Any:
    arrow = library()
    buffers = batch.header_buffers()
    if buffers is None:
        lists = _fixed(arrow.int32(), array("i", bytes(4 * (len(batch) + 1))))
        return arrow.MapArray.from_arrays(lists, arrow.array([], arrow.string()), arrow.array([], arrow.binary()))
    bounds, names, values = buffers
    lists = arrow.Array.from_buffers(arrow.int32(), len(batch) + 1, [None, arrow.py_buffer(bounds)])
    pairs = bounds[len(batch)]
    keys = _binary(arrow.string(), pairs, None, *names)
    return _checked(arrow.MapArray.from_arrays(lists, keys, _binary(arrow.binary(), pairs, None, *values)))
