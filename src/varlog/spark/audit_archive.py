"""The archive's part of an audit: that its files hold every position once, what was written, and what the log holds.

    files      [1 ... 5000)[5000 ... 9000)          they lie end to end
    each       its columns sum up to what they did when they came from the log: the footer says so
    with log   where the nodes still have it, row by row the same

Where the nodes have given entries up, the sums in the footers are the log's own word of what it held.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

from varlog.archive.files import ArchivedFile, Snapshot
from varlog.base.errors import Corrupt, VarlogError
from varlog.client import LogDescription
from varlog.spark.archive import CHECKSUM
from varlog.spark.archived import snapshot_of
from varlog.spark.checksum import Checksum
from varlog.spark.columns import ARCHIVED, arrow_schema
from varlog.spark.limits import MOST_FAULTS
from varlog.spark.options import Options
from varlog.spark.order import Range, out_of_order
from varlog.spark.reading import Part, read_part

PLANNED = "path string, start bigint, stop bigint"
FAULTS = "first bigint, stop bigint, what string"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the positions `[first, stop)`."""

    first: int
    stop: int
    what: str


def audit_archive(
    spark: SparkSession, options: Options, info: LogDescription, start: int, stop: int
) -> tuple[int, list[Fault]]:
    """Of positions `[start, stop)`, as far as they are archived: how many files were read, and what is wrong."""
    snapshot = snapshot_of(info)
    if snapshot is None:
        return 0, []
    start, stop = max(start, snapshot.archived.first), min(stop, snapshot.archived.stop)
    if start >= stop:
        return 0, []
    try:
        files = list(snapshot.listed(start, stop))
    except VarlogError as error:
        return 0, [Fault(start, stop, f"archive: {error.message}")]
    spans = [Range("span", max(each.start, start), min(each.stop, stop)) for each in files]
    joints = {"gap": "no file of the archive has it", "twice": "it is in the archive twice"}
    faults = [Fault(each.first, each.stop, joints[each.kind]) for each in out_of_order(spans, start, stop)]
    if files:
        rows = [(each.path, each.start, each.stop) for each in files]
        planned = spark.sparkContext.parallelize(rows, len(rows)).toDF(PLANNED)
        found = planned.mapInArrow(lambda batches: _audit_files(options, info, batches), FAULTS)
        faults += [Fault(row.first, row.stop, row.what) for row in found.limit(MOST_FAULTS).collect()]
    return len(files), sorted(faults, key=lambda each: each.first)


# ---------------------------------------------------------------- in a task


def _audit_files(
    options: Options, info: LogDescription, batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    snapshot = snapshot_of(info)
    assert snapshot is not None
    for batch in batches:
        for row in batch.to_pylist():
            faults = list(_audit_file(options, info, snapshot, ArchivedFile(**row)))
            columns = zip(*((each.first, each.stop, each.what) for each in faults), strict=True)
            kinds = (pyarrow.int64(), pyarrow.int64(), pyarrow.string())
            arrays = [pyarrow.array(values, kind) for values, kind in zip(columns, kinds, strict=False)]
            if arrays:
                yield pyarrow.RecordBatch.from_arrays(arrays, names=["first", "stop", "what"])


def _audit_file(options: Options, info: LogDescription, snapshot: Snapshot, file: ArchivedFile) -> Iterator[Fault]:
    """Row group by row group, so that damage is told with its positions."""
    live = max(file.start, info.trimmed + 1)
    held = _Held(read_part(options, ARCHIVED, Part(info.id, live, file.stop), junk=True))
    summed, wrong = Checksum(), False
    try:
        for first, stop in snapshot.groups(file):
            begin = max(first, min(live, stop))
            expected = held.take(stop - begin)
            try:
                rows = pyarrow.Table.from_batches(list(snapshot.rows(file, first, stop)))
            except Corrupt as damage:
                wrong = True
                yield Fault(first, stop, f"archive: {damage.message}")
                continue
            for batch in rows.to_batches():
                summed.add(batch)
            for fault in differences(rows.slice(begin - first), expected, begin):
                wrong = True
                yield fault
        if not wrong and summed.sums != _written_sums(snapshot, file):
            yield Fault(file.start, file.stop, "archive: a file does not hold what came from the log")
    except VarlogError as error:
        yield Fault(file.start, file.stop, f"archive: {error.message}")


class _Held:
    """What the log holds, in the portions in which it is compared."""

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self._batches = batches
        self._left = arrow_schema(ARCHIVED).empty_table()

    def take(self, count: int) -> pyarrow.Table:
        """The next rows."""
        while self._left.num_rows < count:
            self._left = pyarrow.concat_tables([self._left, pyarrow.Table.from_batches([next(self._batches)])])
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        return taken


def differences(archived: pyarrow.Table, held: pyarrow.Table, first: int) -> Iterator[Fault]:
    """Positions at which the archive and the log hold different things; both begin at `first`."""
    kind = arrow_schema(ARCHIVED)
    if archived.cast(kind).equals(held.cast(kind)):
        return
    pairs = zip(archived.to_pylist(), held.to_pylist(), strict=True)
    wrong = [first + index for index, (one, other) in enumerate(pairs) if one != other]
    for _, run in groupby(enumerate(wrong), key=lambda pair: pair[1] - pair[0]):
        positions = [position for _, position in run]
        yield Fault(positions[0], positions[-1] + 1, "archive and log differ")


def _written_sums(snapshot: Snapshot, file: ArchivedFile) -> dict[str, Any]:
    with snapshot.archived.place.reading(file.path) as source:
        footer = pyarrow.parquet.read_metadata(source).metadata or {}
    if CHECKSUM.encode() not in footer:
        raise Corrupt(f"{file.path} does not say what its columns sum up to")
    sums: dict[str, Any] = json.loads(footer[CHECKSUM.encode()])
    return sums
