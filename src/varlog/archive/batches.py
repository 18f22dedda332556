"""Rows of an archive as batches of a log: those that were appended together, as far as rows can tell, come together.

A row without a payload stands for a position that was given up: junk, like a batch of it on a node.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from varlog.archive.limits import BATCH_BYTES, BATCH_ENTRIES
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.ports.archive import ArchivedBatch
from varlog.wire.batch import Batch, encode_batch, junk_batch
from varlog.wire.frame import Buffer

if TYPE_CHECKING:
    import pyarrow


def to_batches(rows: "pyarrow.RecordBatch") -> list[ArchivedBatch]:
    """All columns of a log in, in the order of positions; those of other streams may be left out."""
    if not rows.num_rows:
        return []
    names = ("glsn", "stream", "slot", "time")
    glsn, stream, slot, time = (rows[name].cast("int64").to_pylist() for name in names)
    payloads = rows["payload"].to_pylist()
    keys = rows["key"].to_pylist() if rows["key"].null_count < rows.num_rows else None
    bounds = rows["headers"].offsets
    headers = [dict(each) for each in rows["headers"].to_pylist()] if bounds[0] != bounds[-1] else None
    sizes = [len(each or b"") for each in payloads]
    if keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    if headers is not None:
        sizes = [size + _headers_bytes(each) for size, each in zip(sizes, headers, strict=True)]
    made = []
    for low, high in _cut(_edges(rows), sizes):
        data: Buffer = junk_batch(high - low)
        if payloads[low] is not None:
            data = encode_batch(
                payloads[low:high],
                keys=keys and keys[low:high],
                headers=headers and headers[low:high],
                time_us=time[low],
            )
        made.append(ArchivedBatch(Batch(data), StreamId(stream[low]), Slot(slot[low]), Glsn(glsn[low])))
    return made


def _edges(rows: "pyarrow.RecordBatch") -> list[int]:
    """Where another stream or time begins, or junk, or something lies between; the first and the last included."""
    import pyarrow.compute as compute

    def steps(name: str, usual: int) -> Any:
        return compute.not_equal(compute.pairwise_diff(rows[name].cast("int64"))[1:], usual)

    breaks = compute.or_(compute.or_(steps("stream", 0), steps("time", 0)), steps("glsn", 1))
    breaks = compute.or_(breaks, steps("slot", 1))
    if rows["payload"].null_count:
        junk = rows["payload"].is_null()
        breaks = compute.or_(breaks, compute.not_equal(junk[1:], junk[:-1]))
    return [0, *(index + 1 for index in compute.indices_nonzero(breaks).to_pylist()), rows.num_rows]


def _headers_bytes(headers: dict[str, bytes]) -> int:
    """In round figures."""
    return sum(4 * len(name) + len(value) for name, value in headers.items())


def _cut(edges: list[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """No more than a batch may hold."""
    for low, high in pairwise(edges):
        begin, size = low, 0
        for index in range(low, high):
            size += sizes[index]
            if index > begin and (index - begin >= BATCH_ENTRIES or size > BATCH_BYTES):
                yield begin, index
                begin, size = index, sizes[index]
        yield begin, high
