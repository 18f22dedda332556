"""What the nodes have given up, read by tasks from the files of the archive: as Arrow, as it lies there."""

from collections.abc import Iterator
from dataclasses import asdict

import pyarrow
import pyarrow.compute
from pyspark.sql.types import StructType

from varlog.archive.files import ArchivedRange, Snapshot
from varlog.base.errors import Corrupt
from varlog.client import LogDescription
from varlog.spark.columns import arrow_schema
from varlog.spark.options import Options


def snapshot_of(info: LogDescription) -> Snapshot | None:
    """The archive as of a log's record; None if nothing is archived."""
    archive = info.archive
    if archive is None or archive.stop <= archive.first:
        return None
    return Snapshot(ArchivedRange(**asdict(archive)))


def archived_end(info: LogDescription, start: int, stop: int) -> int:
    """Up to where a range that begins at `start` is read from the archive: as far as the nodes have given it up."""
    archive = info.archive
    if archive is None or not archive.first <= start < archive.stop:
        return start
    return max(start, min(stop, archive.stop, info.trimmed + 1))


def archived_bytes(info: LogDescription) -> float:
    """What an archived entry takes, on average."""
    snapshot = snapshot_of(info)
    return 0.0 if snapshot is None else snapshot.entry_bytes


def read_archive(
    info: LogDescription, options: Options, schema: StructType, start: int, stop: int
) -> Iterator[pyarrow.RecordBatch]:
    """Positions `[start, stop)`, all of which the archive has."""
    snapshot = snapshot_of(info)
    if snapshot is None or start >= stop:
        return
    wanted, names, found = arrow_schema(schema), list(schema.fieldNames()), 0
    columns = names if options.stream is None or "stream" in names else [*names, "stream"]
    for file in snapshot.files(start, stop):
        for rows in snapshot.rows(file, start, stop, columns):
            found += rows.num_rows
            if options.stream is not None:
                rows = rows.filter(pyarrow.compute.equal(rows["stream"], options.stream))
            for low in range(0, rows.num_rows, options.batch_rows):
                yield _shaped(rows.slice(low, options.batch_rows), wanted)
    if found != stop - start:
        raise Corrupt(f"positions {start} to {stop - 1} of the archive of log {info.name!r} gave {found} entries")


def _shaped(rows: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """As Spark compares it, the names and nullability of inner fields included."""
    columns = []
    for field in schema:
        column = rows[field.name]
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)
