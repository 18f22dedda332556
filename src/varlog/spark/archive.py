"""Copies ranges of a log into an Iceberg table of Parquet files, each range once.

    folder/catalog.db                                       which snapshot is the table, swapped by compare and swap
    folder/data/LOG/00..0001-00..5000-ID.parquet            positions [1, 5000): written, synced, read back, compared
    snapshot    {varlog.start: 1, varlog.stop: 10000}       all files of a run at once

The table itself says how far it is: a run goes on where the last snapshot ends. A run that is killed leaves files that
no snapshot names, which a later one sweeps away. Of two runs at once, one finds the snapshot changed and gives up.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from varlog.base.errors import Conflict, Corrupt, Trimmed
from varlog.spark.checksum import Checksum
from varlog.spark.columns import SCHEMA, arrow_schema
from varlog.spark.connection import connected
from varlog.spark.iceberg import ArchiveTable
from varlog.spark.options import Options
from varlog.spark.order import Range, out_of_order
from varlog.spark.reading import Part, plan_parts, read_part
from varlog.spark.span import extent

PLANNED = "start bigint, stop bigint"
WRITTEN = "start bigint, stop bigint, path string, bytes bigint"


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run copied: the positions `[start, stop)`."""

    log: str
    start: int
    stop: int
    files: int
    bytes: int


def archive(spark: SparkSession, options: Options, folder: str | Path, upto: int | None = None) -> Archived:
    """Copy everything committed that the table has not yet, or what of it lies at or below `upto`."""
    with connected(options) as (cluster, log):
        ids = {"varlog.cluster": cluster.status().cluster_id, "varlog.log": str(log.info().id)}
        table = ArchiveTable(Path(folder), options.log, ids)
        known = extent(log)
        start = table.stop or known.first
        stop = known.end if upto is None else min(known.end, upto + 1)
        if start >= stop:
            return Archived(options.log, start, start, 0, 0)
        if start < known.first:
            raise Trimmed(
                f"positions {start} to {known.first - 1} of log {options.log!r} are trimmed and not in the archive: "
                "begin another one",
                known.first,
            )
        parts = plan_parts(cluster, log, start, stop, options)
    table.sweep()
    files = _write(spark, options, table.data, parts)
    if wrong := out_of_order([Range("span", each[0], each[1]) for each in files], start, stop):
        raise Corrupt(f"the files of the archive do not cover positions {start} to {stop - 1}: {wrong[0]}")
    paths = [each[2] for each in files]
    if not table.add(paths, start, stop):
        for path in paths:
            Path(path).unlink(missing_ok=True)
        raise Conflict(f"another run has archived log {options.log!r} meanwhile: nothing was added; run it again")
    return Archived(options.log, start, stop, len(paths), sum(each[3] for each in files))


def archived(spark: SparkSession, folder: str | Path, log: str) -> DataFrame:
    """The table as Spark reads it, without Iceberg's jars: the files of its present snapshot."""
    paths = ArchiveTable(Path(folder), log, create=False).files()
    return spark.read.schema(SCHEMA).parquet(*paths) if paths else spark.createDataFrame([], SCHEMA)


def _write(spark: SparkSession, options: Options, data: Path, parts: list[Part]) -> list[tuple[int, int, str, int]]:
    rows = [(part.start, part.stop) for part in parts]
    planned = spark.sparkContext.parallelize(rows, len(rows)).toDF(PLANNED)
    written = planned.mapInArrow(lambda batches: _write_parts(options, data, batches), WRITTEN)
    # Not sorted by Spark: to find the borders of a sort it would run the tasks once more.
    return sorted((row.start, row.stop, row.path, row.bytes) for row in written.collect())


# ---------------------------------------------------------------- in a task


def _write_parts(options: Options, data: Path, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            path = write_part(options, data, Part(**row))
            yield pyarrow.RecordBatch.from_pylist([{**row, "path": str(path), "bytes": path.stat().st_size}])


def write_part(options: Options, data: Path, part: Part) -> Path:
    """One file: written, synced, read back and compared."""
    path = data / f"{part.start:020}-{part.stop:020}-{uuid4()}.parquet"
    schema = arrow_schema(SCHEMA)
    expected = Checksum()
    with path.open("xb") as file, pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in read_part(options, SCHEMA, part):
            expected.add(batch)
            writer.write_batch(batch)
    _sync(path)
    found = Checksum()
    with pyarrow.parquet.ParquetFile(path) as stored:
        for batch in stored.iter_batches():
            found.add(batch)
    if (found.rows, found.sums) != (expected.rows, expected.sums) or found.rows != part.stop - part.start:
        raise Corrupt(f"{path} does not hold what was written to it")
    return path


def _sync(path: Path) -> None:
    for each in (path, path.parent):
        number = os.open(each, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
