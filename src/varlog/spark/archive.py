"""Copies ranges of a log into an Iceberg table of Parquet files, each range once, and records how far it came.

    tasks       one file for each range of positions: written, synced, read back, compared
    snapshot    {varlog.start: 1, varlog.stop: 10000}       names all files of a run at once
    record      archived: 1 -> 10000                        in the repository, by compare-and-swap

A run goes on where the record ends. One that is killed leaves files that no snapshot names, which a later one sweeps
away, or a snapshot that is not recorded, which a later one records without copying anything. Of two runs at once, one
finds the snapshot or the record changed, and goes on from there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from varlog import sync
from varlog.archive.limits import ROW_GROUP_ROWS, WINDOW
from varlog.archive.place import Place, parse_place
from varlog.archive.table import ArchiveTable, find_table, open_table
from varlog.base.errors import Conflict, Corrupt, Trimmed
from varlog.client import ArchiveDescription, LogDescription
from varlog.spark.checksum import Checksum
from varlog.spark.columns import ARCHIVED, SCHEMA, arrow_schema
from varlog.spark.connection import connected
from varlog.spark.limits import ARCHIVE_ROUNDS, TIMEOUT_SECONDS
from varlog.spark.options import Options
from varlog.spark.order import Range, out_of_order
from varlog.spark.reading import Part, read_part, size_of_entries, split_parts
from varlog.spark.span import extent

WRITTEN = "start bigint, stop bigint, path string, bytes bigint"
CHECKSUM = "varlog.checksum"
"""In the footer of each file: what its columns summed up to when they came from the log."""
FILE = {
    "compression": "zstd",
    "write_statistics": ["glsn", "time"],
    "write_page_checksum": True,
    "use_dictionary": ["stream", "time", "key", "headers.key_value.key"],
    "column_encoding": {
        "glsn": "DELTA_BINARY_PACKED",
        "slot": "DELTA_BINARY_PACKED",
        "payload": "DELTA_LENGTH_BYTE_ARRAY",
    },
}
"""Values that repeat are written once; positions as what they grow by; payloads end to end, behind their lengths."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run copied: the positions `[start, stop)`."""

    log: str
    start: int
    stop: int
    files: int
    bytes: int


class _Overtaken(Exception):
    """Another run has archived meanwhile."""


def archive_log(
    spark: SparkSession,
    url: str,
    log: str,
    location: str,
    *,
    upto: int | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Archived:
    """For schedulers: copy what is new in a log to its archive in a folder or at `s3://bucket/prefix`, and record it.

    May be run at any time, twice at once, and again after it was killed. `upto` is the last position to copy.
    """
    place = parse_place(location, endpoint=endpoint, region=region)
    return archive(spark, Options(url, log, timeout=timeout), place, upto)


def archive(spark: SparkSession, options: Options, where: str | Path | Place, upto: int | None = None) -> Archived:
    """Copy everything committed that is not archived yet, or what of it lies at or below `upto`."""
    place = where if isinstance(where, Place) else parse_place(str(where))
    for _ in range(ARCHIVE_ROUNDS):
        try:
            return _round(spark, options, place, upto)
        except _Overtaken:
            continue
    raise Conflict(f"others archive log {options.log!r} all the time: nothing was added; run it again later")


def _round(spark: SparkSession, options: Options, place: Place, upto: int | None) -> Archived:
    with connected(options) as (cluster, log):
        table, info = _open(cluster, log, place)
        known = extent(log)
        start, stop = info.archived, known.end if upto is None else min(known.end, upto + 1)
        if start >= stop:
            return Archived(options.log, start, start, 0, 0)
        if start <= info.trimmed:
            raise Trimmed(
                f"positions {start} to {info.trimmed} of log {options.log!r} are trimmed and not in the archive: "
                "begin another one, elsewhere",
                info.trimmed + 1,
            )
        size = size_of_entries(cluster, log.name, start, stop)
    table.sweep()
    windows = list(range(start - start % WINDOW + WINDOW, stop, WINDOW))
    files = _write(spark, options, table, split_parts(info.id, start, stop, windows, size, options))
    if wrong := out_of_order([Range("span", each[0], each[1]) for each in files], start, stop):
        raise Corrupt(f"the files of the archive do not cover positions {start} to {stop - 1}: {wrong[0]}")
    assert info.archive is not None, "an archive is recorded before anything is written to it"
    if not table.add([each[2] for each in files], info.archive.first, start, stop):
        raise _Overtaken  # the next round sweeps the files away
    with connected(options) as (_, log):
        _record(log, place, table, info.archive, stop)
    return Archived(options.log, start, stop, len(files), sum(each[3] for each in files))


def archived(spark: SparkSession, folder: str | Path, log: str) -> DataFrame:
    """The table in a folder as Spark reads it, without Iceberg's jars: the files of its present snapshot."""
    paths = find_table(parse_place(str(folder)), log).files()
    if not paths:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(ARCHIVED).parquet(*paths).where("payload IS NOT NULL")


# ---------------------------------------------------------------- the record


def _open(cluster: sync.Cluster, log: sync.Log, place: Place) -> tuple[ArchiveTable, LogDescription]:
    """The table, and the log with a record of all that is in it."""
    info, cluster_id = log.info(), cluster.status().cluster_id
    known = info.archive
    if known is not None and known.location != place.url:
        if known.stop > max(known.first, info.trimmed):
            raise Conflict(f"the archive of log {info.name!r} is {known.location}: a log has one", known.stop)
        known = None
    ids = {"varlog.cluster": cluster_id, "varlog.log": str(info.id)}
    name = f"{info.name}-{cluster_id[:8]}-{info.id}"
    recorded, first = ("", 0) if known is None else (known.metadata, known.first)
    table = open_table(place, info.name, ids, name, recorded, first)
    there = table.range
    if known is not None and known.first == known.stop <= info.trimmed and (there is None or there[0] != known.first):
        known = None  # a trim overtook its first run, which left nothing: it begins anew behind that
    if known is None:
        empty = ArchiveDescription(place.url, "", place.endpoint, place.region, info.trimmed + 1, info.trimmed + 1)
        info = _compare_and_swap(log, empty, info.archived)
    if known is not None and known.first < known.stop and (there is None or there[1] < known.stop):
        raise Conflict(
            f"the table at {place.url} ends {'before it begins' if there is None else f'at {there[1] - 1}'}, though "
            f"log {info.name!r} is archived up to {known.stop - 1}: it is an older copy of it; put back the last"
        )
    if there is not None and there[1] > info.archived:
        if info.archive is None or there[0] != info.archive.first:
            raise Conflict(f"the table at {place.url} begins at {there[0]}, and the archive of the log does not")
        info = _record(log, place, table, info.archive, there[1])
    return table, info


def _record(log: sync.Log, place: Place, table: ArchiveTable, known: ArchiveDescription, stop: int) -> LogDescription:
    now = replace(known, metadata=table.metadata, endpoint=place.endpoint, region=place.region, stop=stop)
    return _compare_and_swap(log, now, known.stop)


def _compare_and_swap(log: sync.Log, archive: ArchiveDescription, expected: int) -> LogDescription:
    try:
        return log.record_archive(archive, expected=expected)
    except Conflict as conflict:
        if conflict.value == expected:
            raise
        raise _Overtaken from conflict


# ---------------------------------------------------------------- the files


def _write(
    spark: SparkSession, options: Options, table: ArchiveTable, parts: list[Part]
) -> list[tuple[int, int, str, int]]:
    place, data = table.place, table.data
    # Only numbers go through Spark: rows of our own would come from Python, by a worker more for each task.
    numbers = spark.range(0, len(parts), 1, len(parts))
    written = numbers.mapInArrow(lambda batches: _write_parts(options, place, data, parts, batches), WRITTEN)
    # Not sorted by Spark: to find the borders of a sort it would run the tasks once more.
    return sorted((row.start, row.stop, row.path, row.bytes) for row in written.collect())


def _write_parts(
    options: Options, place: Place, data: str, parts: list[Part], batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """In a task, which is given the numbers of its parts."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part = parts[number]
            path = write_part(options, place, data, part)
            row = {"start": part.start, "stop": part.stop, "path": path, "bytes": place.size(path)}
            yield pyarrow.RecordBatch.from_pylist([row])


def write_part(options: Options, place: Place, data: str, part: Part) -> str:
    """One file: written, synced, read back and compared. A record batch becomes a row group."""
    path = f"{data}/{part.start:020}-{part.stop:020}-{uuid4()}.parquet"
    bounded = replace(options, batch_rows=ROW_GROUP_ROWS)
    expected = Checksum()
    with place.writing(path) as file, pyarrow.parquet.ParquetWriter(file, arrow_schema(ARCHIVED), **FILE) as writer:
        for batch in read_part(bounded, ARCHIVED, part, junk=True):
            expected.add(batch)
            writer.write_batch(batch)
        writer.add_key_value_metadata({CHECKSUM: json.dumps(expected.sums)})
    found = read_back(place, path)
    if (found.rows, found.sums) != (expected.rows, expected.sums) or found.rows != part.stop - part.start:
        raise Corrupt(f"{path} does not hold what was written to it")
    place.leave(path)
    return path


def read_back(place: Place, path: str) -> Checksum:
    """What a file holds, summed up."""
    found = Checksum()
    with place.reading(path) as file, pyarrow.parquet.ParquetFile(file, page_checksum_verification=True) as stored:
        for batch in stored.iter_batches(use_threads=False):
            found.add(batch)
    return found
