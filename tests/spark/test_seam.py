"""Spark reads through archive and nodes without a seam, and an audit holds them against each other (I9, I15)."""

from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import varlog
from varlog.base.errors import Trimmed
from varlog.cli.audit import verdict
from varlog.spark import read
from varlog.spark.archive import archive
from varlog.spark.archived import snapshot_of
from varlog.spark.audit import audit
from varlog.spark.audit_archive import Fault, _audit_file
from varlog.spark.columns import SCHEMA
from varlog.spark.options import Options
from varlog.spark.reading import Part, plan_parts, read_part
from varlog.spark.stream import StreamReader


def fill(log: varlog.sync.Log, count: int = 50) -> list[varlog.Entry]:
    for number in range(count):
        log.append_batch([b"%d" % number, b""], keys=[None, b"k"], headers=[{"n": b"%d" % number}, {}])
    return list(log.subscribe(wait=False))


def rows_of(options: Options, log: varlog.sync.Log, start: int, stop: int) -> list[tuple[object, ...]]:
    batches = list(read_part(options, SCHEMA, Part(log.info().id, start, stop)))
    assert all(batch.num_rows <= options.batch_rows + 1 for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["glsn"], row["stream"], row["slot"], row["payload"], row["key"], dict(row["headers"])) for row in rows]


def expected(entries: list[varlog.Entry], start: int, stop: int) -> list[tuple[object, ...]]:
    chosen = entries[start - 1 : stop - 1]
    return [(e.glsn, e.stream, e.slot, e.payload, e.key, dict(e.headers)) for e in chosen]


def test_batches_and_streams_over_the_seam(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    entries = fill(log)
    archive(spark, replace(options, min_partitions=3), tmp_path, upto=70)
    log.trim(60)
    for start, stop in ((1, 101), (1, 2), (60, 62), (61, 101), (17, 44)):
        assert rows_of(options, log, start, stop) == expected(entries, start, stop)
    small = replace(options, batch_rows=7)
    assert rows_of(small, log, 1, 101) == expected(entries, 1, 101)
    one = replace(options, stream=entries[0].stream)
    assert rows_of(one, log, 1, 101) == [row for row in expected(entries, 1, 101) if row[1] == one.stream]

    frame = read(spark, options.cluster, log.name)
    assert [tuple(row) for row in frame.select("glsn", "payload", "time").orderBy("glsn").collect()] == [
        (entry.glsn, entry.payload, entry.time.astimezone().replace(tzinfo=None)) for entry in entries
    ]
    by_time = read(spark, options.cluster, log.name, start=entries[30].time, columns=["glsn"])
    first = next(entry.glsn for entry in entries if entry.time >= entries[30].time)
    assert by_time.count() == 101 - first

    reader = StreamReader(options, SCHEMA)
    offset = reader.initialOffset()
    assert offset["next"] == 1
    end = {**offset, "next": 101, "parts": 3}
    read_ahead = (batch for part in reader.partitions(offset, end) for batch in reader.read(part))
    got = [row["glsn"] for batch in read_ahead for row in batch.to_pylist()]
    reader.stop()
    assert got == list(range(1, 101))


def test_trimmed_between_plan_and_task(
    spark: SparkSession, client: varlog.sync.Cluster, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    entries = fill(log)
    parts = plan_parts(client, log.info(), 1, 101, replace(options, min_partitions=4))
    archive(spark, options, tmp_path, upto=90)
    log.trim(80)
    assert [row for part in parts for row in rows_of(options, log, part.start, part.stop)] == expected(entries, 1, 101)
    log.trim(95)  # further than the archive
    assert rows_of(options, log, 1, 91) == expected(entries, 1, 91)
    with pytest.raises(Trimmed):
        rows_of(options, log, 80, 101)


def test_an_audit_of_archive_and_log(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    fill(log)
    archive(spark, replace(options, min_partitions=3), tmp_path, upto=70)
    log.trim(30)
    report = audit(spark, options)
    assert (report.start, report.stop, report.files, report.faults) == (1, 101, 3, ())
    assert "3 files of the archive agree" in verdict(report)

    last = max(tmp_path.glob("*/data/*.parquet"))
    whole = last.read_bytes()
    changed = pyarrow.parquet.read_table(last)
    at, first = 5, changed["glsn"][0].as_py()
    payloads = changed["payload"].to_pylist()
    payloads[at] = b"other"
    changed = changed.set_column(6, changed.schema.field("payload"), [pyarrow.array(payloads, pyarrow.binary())])
    pyarrow.parquet.write_table(changed, last)
    report = audit(spark, options)
    (fault,) = report.faults
    assert (fault.first, fault.stop, fault.what) == (first + at, first + at + 1, "archive and log differ")

    def faults_of_the_file() -> list[Fault]:
        info = log.info()
        snapshot = snapshot_of(info)
        assert snapshot is not None
        file = list(snapshot.listed(1, 71))[-1]
        return list(_audit_file(options, info, snapshot, file))

    log.trim(70)  # the log itself cannot tell any more; the sums in the footer can
    pyarrow.parquet.write_table(changed.replace_schema_metadata(footer(whole)), last)
    assert faults_of_the_file() == [Fault(first, 71, "archive: a file does not hold what came from the log")]
    last.write_bytes(whole[:40] + bytes(200) + whole[240:])
    (fault,) = faults_of_the_file()
    assert (fault.first, fault.stop) == (first, 71)
    assert "damaged" in fault.what
    last.unlink()
    (fault,) = faults_of_the_file()
    assert "lacks a file" in fault.what
    last.write_bytes(whole)
    assert not faults_of_the_file()


def footer(file: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = pyarrow.parquet.read_metadata(pyarrow.BufferReader(file)).metadata
    return {key: value for key, value in found.items() if key.startswith(b"varlog")}
