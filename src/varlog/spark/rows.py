"""Rows of a frame as batches to append: cut by number and bytes alone, so that the same rows make the same batches.

However Spark hands rows over, the cuts depend on nothing but the rows since the last cut. A task that is repeated
with the same rows in the same order therefore sends the same batches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy
import pyarrow

from varlog.base.errors import InvalidArgument
from varlog.client.columns import headers_bytes
from varlog.spark.limits import WRITE_BYTES, WRITE_ENTRIES


@dataclass(slots=True)
class Rows:
    """Entries to append, by column."""

    payloads: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[dict[str, bytes]] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        return len(self.payloads)

    def part(self, start: int, stop: int) -> "Rows":
        return Rows(self.payloads[start:stop], self.keys[start:stop], self.headers[start:stop])

    def extend(self, other: "Rows", size: int) -> None:
        self.payloads += other.payloads
        self.keys += other.keys
        self.headers += other.headers
        self.size += size

    def only(self, wanted: list[bool]) -> "Rows":
        return Rows(
            list(compress(self.payloads, wanted)),
            list(compress(self.keys, wanted)),
            list(compress(self.headers, wanted)),
        )


def rows_of(batch: pyarrow.RecordBatch) -> Rows:
    """What is appended of a record batch."""
    names = batch.schema.names
    payload = _binary(batch.column("payload"))
    if payload.null_count:
        raise InvalidArgument(
            "a row has no payload (null): leave such rows out, or fill them with coalesce(payload, ...)"
        )
    keys = _binary(batch.column("key")).to_pylist() if "key" in names else [None] * batch.num_rows
    headers = _headers(batch.column("headers")) if "headers" in names else [{} for _ in range(batch.num_rows)]
    return Rows(payload.to_pylist(), keys, headers)


def _binary(column: pyarrow.Array) -> pyarrow.Array:
    return column if column.type == pyarrow.binary() else column.cast(pyarrow.binary())


def _headers(column: pyarrow.Array) -> list[dict[str, bytes]]:
    found = [dict(pairs) if pairs else {} for pairs in column.to_pylist()]
    if any(None in each.values() for each in found):
        raise InvalidArgument("a header has no value (null): leave it out, or give it an empty one")
    return found


def sizes_of(rows: Rows) -> Any:
    """Bytes of each row, in round figures."""
    sizes = numpy.fromiter(map(len, rows.payloads), numpy.int64, len(rows))
    if any(rows.keys):
        sizes += numpy.fromiter((len(key or b"") for key in rows.keys), numpy.int64, len(rows))
    if any(rows.headers):
        sizes += numpy.fromiter(map(headers_bytes, rows.headers), numpy.int64, len(rows))
    return sizes


def batches_of(parts: Iterable[Rows], most: int | None = None) -> Iterator[Rows]:
    """The same rows, in batches that are full by number or bytes; a larger row is a batch of its own.

    `most` is what the log takes as one batch, if there is such a limit.
    """
    full = WRITE_ENTRIES if most is None else min(WRITE_ENTRIES, most)
    pending = Rows()
    for rows in parts:
        ends = numpy.cumsum(sizes_of(rows))
        at = 0
        while at < len(rows):
            before = int(ends[at - 1]) if at else 0
            fitting = int(numpy.searchsorted(ends, before + WRITE_BYTES - pending.size, "right")) - at
            count = min(fitting, full - len(pending), len(rows) - at)
            if count <= 0 and len(pending):
                yield pending
                pending = Rows()
                continue
            count = max(1, count)
            pending.extend(rows.part(at, at + count), int(ends[at + count - 1]) - before)
            at += count
    if len(pending):
        yield pending
