"""Batch jobs on a real Spark: rows as they are, each once, and errors from the driver."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from tests.cluster.cluster import RealCluster

import varlog
from varlog.spark import read


def load(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("varlog").option("cluster", servers.url).option("log", log.name).options(**given).load()


def fill(log: varlog.sync.Log, count: int = 1000) -> None:
    for start in range(0, count, 100):
        log.append_batch([b"%d" % number for number in range(start, start + 100)], stream=start // 100 % 2 + 1)


def save(frame: DataFrame, servers: RealCluster, log: varlog.sync.Log, **options: str) -> None:
    writer = frame.write.format("varlog").option("cluster", servers.url).option("log", log.name)
    writer.options(**options).mode("append").save()


# ---------------------------------------------------------------- reading


def test_a_read_equals_a_subscription(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log) -> None:
    """I15."""
    fill(log)
    log.append_batch([b"x", b"y"], keys=[b"k", None], headers=[{"a": b"1", "b": b""}, {}])
    frame = load(spark, servers, log, start=5, stop=1003, minPartitions=3, batchRows=64)
    assert frame.rdd.getNumPartitions() == 3
    found = [{**row.asDict(), "time": row.time.timestamp()} for row in frame.orderBy("glsn").collect()]
    expected = [entry._asdict() | {"time": entry.time.timestamp()} for entry in log.subscribe(5, 1003)]
    assert found == expected


def test_a_range_stays_what_it_was(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log) -> None:
    fill(log)
    ranged, whole = load(spark, servers, log, start=1, stop=1001), load(spark, servers, log)
    assert (ranged.count(), whole.count()) == (1000, 1000)
    fill(log)
    assert (ranged.count(), whole.count()) == (1000, 1000)
    assert load(spark, servers, log, start=1, stop=1001).count() == 1000
    assert load(spark, servers, log).count() == 2000


def test_narrow_schemas(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log) -> None:
    fill(log)
    assert read(spark, servers.url, log.name, 1, 3, ["payload", "glsn"]).collect() == [(b"0", 1), (b"1", 2)]
    reader = spark.read.format("varlog").option("cluster", servers.url).option("log", log.name)
    assert reader.schema("glsn bigint").load().agg({"glsn": "sum"}).collect() == [(500500,)]


def test_sql_over_a_view(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log) -> None:
    fill(log)
    options = f"OPTIONS (cluster '{servers.url}', log '{log.name}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW entries USING varlog {options}")
    found = spark.sql("SELECT stream, count(*), max(glsn) FROM entries GROUP BY stream ORDER BY stream")
    assert found.collect() == [(1, 500, 900), (2, 500, 1000)]


# ---------------------------------------------------------------- the traps of filter push-down


class Pushed(DataSource):
    """A source that takes filters, as the log's does not: numbers 1 to 1000, from `least` to `most`."""

    @classmethod
    def name(cls) -> str:
        return "pushed"

    def schema(self) -> str:
        return "number bigint"

    def reader(self, schema: Any) -> "PushedReader":
        return PushedReader()


class PushedReader(DataSourceReader):
    most = 1000

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        for each in filters:
            if type(each).__name__ == "LessThanOrEqual":
                self.most = each.value  # type: ignore[attr-defined]
            else:
                yield each

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.most)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.record_batch({"number": pyarrow.array(range(1, partition.value + 1), pyarrow.int64())})


def test_spark_still_gives_wrong_rows_where_a_source_takes_filters(spark: SparkSession) -> None:
    """Why the log's source takes none. Once this fails, Spark has been mended, and it may."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(Pushed)
        frame = spark.read.format("pushed").load()
        assert frame.where("number <= 10").count() == 10
        assert frame.count() == 10  # there are 1000
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_on_one_frame_do_not_meet(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log) -> None:
    fill(log)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, servers, log)
        assert frame.where("glsn <= 10").count() == 10
        assert frame.count() == 1000
        both = frame.where("glsn <= 10").union(frame.where("glsn > 990"))
        assert [row.glsn for row in both.orderBy("glsn").collect()] == [*range(1, 11), *range(991, 1001)]
        first, second = load(spark, servers, log, stop=11), load(spark, servers, log, start=991)
        assert first.union(second).count() == 20
        assert first.join(second, "glsn").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ---------------------------------------------------------------- writing


def test_a_frame_is_appended(
    spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster, log: varlog.sync.Log
) -> None:
    fill(log)
    log.append_batch([b"x", b"y"], keys=[b"k", None], headers=[{"a": b"1", "b": b""}, {}])
    copy = client.create_log(f"{log.name}-copy", replicas=2, streams=2)
    save(load(spark, servers, log, minPartitions=2), servers, copy)

    def contents(of: varlog.sync.Log) -> list[tuple[bytes, bytes | None, dict[str, bytes]]]:
        found = [(entry.payload, entry.key, dict(entry.headers)) for entry in of.subscribe(wait=False)]
        return sorted(found, key=lambda each: each[0])

    assert contents(copy) == contents(log)
    save(spark.createDataFrame([("text", "key")], "payload string, key string"), servers, copy)
    assert copy.read(copy.tail())[3:5] == (b"text", b"key")


def test_a_job_with_an_identity_adds_nothing_twice(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log
) -> None:
    frame = spark.range(0, 500, 1, 3).selectExpr("cast(id AS string) AS payload")
    for _ in range(2):
        save(frame, servers, log, identity="nightly-7")
    assert log.tail() == 500
    save(frame, servers, log)
    assert log.tail() == 1000


def test_a_task_that_fails_and_is_run_again(
    servers: RealCluster, spark: SparkSession, log: varlog.sync.Log, tmp_path: Path
) -> None:
    """The first run of the job ends in the middle of a task; its second run has the rows in another order."""
    failed = tmp_path / "failed"

    def break_once(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = [row for batch in batches for row in batch.column("payload").to_pylist()]
        if failed.exists():
            rows.reverse()
        for start in range(0, len(rows), 1000):
            if start == 90_000 and not failed.exists():
                failed.touch()
                raise RuntimeError("the task is broken off")
            yield pyarrow.record_batch({"payload": pyarrow.array(rows[start : start + 1000], pyarrow.binary())})

    frame = spark.range(0, 100_000, 1, 1).selectExpr("cast(cast(id AS string) AS binary) AS payload")
    broken = frame.mapInArrow(break_once, "payload binary")
    with pytest.raises(PySparkException, match="the task is broken off"):
        save(broken, servers, log, identity="job")
    assert 0 < log.tail() < 100_000
    save(broken, servers, log, identity="job")
    payloads = [payload for batch in log.subscribe(wait=False).batches() for payload in batch.payloads()]
    assert len(payloads) == 100_000
    assert set(payloads) == {b"%d" % number for number in range(100_000)}


# ---------------------------------------------------------------- bad input


def test_errors_come_from_the_driver_before_any_task(
    spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster, log: varlog.sync.Log
) -> None:
    fill(log, 100)
    log.trim(10)
    nobody = spark.read.format("varlog").option("cluster", "varlog://127.0.0.1:9").option("timeout", 1)
    good = spark.createDataFrame([("a",)], "payload string")
    tracker = spark.sparkContext.statusTracker()
    before = tracker.getJobIdsForGroup()
    nothing = client.log("nothing")
    for work, says in (
        (lambda: load(spark, servers, nothing).count(), "no log named 'nothing'"),
        (lambda: load(spark, servers, log, stop=5000).count(), "stop 5000 lies beyond the tail"),
        (lambda: load(spark, servers, log, start=10, stop=20).count(), "positions 10 to 10 .* are trimmed"),
        (lambda: nobody.option("log", "x").load().count(), "no repository answers"),
        (lambda: load(spark, servers, log, start="soon"), "'earliest', 'latest' or a time"),
        (lambda: load(spark, servers, log, colums="glsn"), "no option 'colums'"),
        (lambda: spark.read.format("varlog").option("log", "x").load(), "'cluster' is missing"),
        (lambda: save(good.selectExpr("payload AS value"), servers, log), "needs a column `payload`"),
        (lambda: save(good, servers, nothing), "no log named 'nothing'"),
        (lambda: save(good, servers, log, stop="3"), "'stop' is for reading"),
    ):
        with pytest.raises(AnalysisException, match=says):
            work()
    writer = good.write.format("varlog").option("cluster", servers.url).option("log", log.name)
    with pytest.raises(AnalysisException, match="only appended to"):
        writer.mode("overwrite").save()
    log.seal()
    with pytest.raises(AnalysisException, match="sealed"):
        save(good, servers, log)
    assert tracker.getJobIdsForGroup() == before
    assert log.tail() == 100
