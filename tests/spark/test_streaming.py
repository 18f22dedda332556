"""Streaming queries on a real Spark: every entry once, through restarts, broken tasks and kill -9 (I15)."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.cluster.cluster import RealCluster
from tests.cluster.processes import Process
from tests.spark.query_program import count, ended

import varlog
from varlog.spark import read


@pytest.fixture
def copy(client: varlog.sync.Cluster, log: varlog.sync.Log) -> varlog.sync.Log:
    return client.create_log(f"{log.name}-copy", replicas=2, streams=2)


@pytest.fixture(params=["cut", "leader"])
def pair(
    request: pytest.FixtureRequest, client: varlog.sync.Cluster, log: varlog.sync.Log
) -> tuple[varlog.sync.Log, varlog.sync.Log]:
    """Source and sink of each ordering."""
    streams = 1 if request.param == "leader" else 2
    names = (f"{log.name}-{request.param}-{what}" for what in ("source", "sink"))
    source, sink = (client.create_log(name, ordering=request.param, replicas=2, streams=streams) for name in names)
    return source, sink


def fill(log: varlog.sync.Log, count: int) -> None:
    first = log.tail()
    log.append_batch([b"%d" % (first + index) for index in range(count)])


def payloads(log: varlog.sync.Log) -> list[int]:
    return [int(payload) for batch in log.subscribe(wait=False).batches() for payload in batch.payloads()]


def stream(spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, **options: object) -> DataFrame:
    reader = spark.readStream.format("varlog").option("cluster", servers.url).option("log", log.name)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def append_all(frame: DataFrame, servers: RealCluster, log: varlog.sync.Log, checkpoint: Path) -> StreamingQuery:
    """Everything there is now, then the query ends."""
    writer = frame.writeStream.format("varlog").option("cluster", servers.url).option("log", log.name)
    return ended(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)


def test_restarts_and_limits(
    spark: SparkSession, servers: RealCluster, pair: tuple[varlog.sync.Log, varlog.sync.Log], tmp_path: Path
) -> None:
    log, copy = pair
    fill(log, 1000)
    query = append_all(stream(spark, servers, log, maxEntriesPerTrigger=400), servers, copy, tmp_path)
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [400, 400, 200]
    assert payloads(copy) == list(range(1000))
    fill(log, 100)
    append_all(stream(spark, servers, log), servers, copy, tmp_path)
    append_all(stream(spark, servers, log), servers, copy, tmp_path)
    assert payloads(copy) == list(range(1100))
    frame = read(spark, servers.url, copy.name, 101, 201, columns=["glsn", "payload"])
    frame.write.format("varlog").option("cluster", servers.url).option("log", log.name).mode("append").save()
    assert sorted(payloads(log)) == sorted([*range(1100), *range(100, 200)]), "a range of one, appended to the other"


def test_a_micro_batch_that_breaks_off_in_the_middle(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, copy: varlog.sync.Log, tmp_path: Path
) -> None:
    """Its task had appended most of its rows, which come in another order the second time."""
    failed = tmp_path / "failed"

    def break_once(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = [row for batch in batches for row in batch.column("payload").to_pylist()]
        if failed.exists():
            rows.reverse()
        for start in range(0, len(rows), 10_000):
            yield pyarrow.record_batch({"payload": pyarrow.array(rows[start : start + 10_000], pyarrow.binary())})
        if not failed.exists():
            failed.touch()
            raise RuntimeError("the task is broken off")

    fill(log, 70_000)
    frame = stream(spark, servers, log).select("payload").mapInArrow(break_once, "payload binary")
    with pytest.raises(StreamingQueryException, match="the task is broken off"):
        append_all(frame, servers, copy, tmp_path / "checkpoint")
    assert 0 < copy.tail() < 70_000
    append_all(frame, servers, copy, tmp_path / "checkpoint")
    assert sorted(payloads(copy)) == list(range(70_000))


def test_kill_9(
    spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster, log: varlog.sync.Log, tmp_path: Path
) -> None:
    """Of a query that copies, and of one whose state goes on in the checkpoint. There is more to come for both."""
    copy, counts = (client.create_log(f"{log.name}-{name}", replicas=2, streams=2) for name in ("copy", "counts"))
    fill(log, 15_000)
    program = ["-m", "tests.spark.query_program", servers.url, log.name, copy.name, counts.name, str(tmp_path)]
    query = Process("query", tmp_path, [sys.executable, *program])
    query.start()
    try:
        query.brings(lambda: counts.tail() >= 20, "both queries are at work", 240)
    finally:
        os.killpg(query.pid, signal.SIGKILL)  # Python and Java at once
        query.kill()
    fill(log, 5_000)
    entries = stream(spark, servers, log)
    append_all(entries, servers, copy, tmp_path / copy.name)
    ended(lambda: count(entries, servers.url, counts.name, str(tmp_path / counts.name), now=True))
    assert sorted(payloads(copy)) == list(range(20_000))
    told: dict[bytes, list[int]] = {}
    for entry in counts.subscribe(wait=False):
        told.setdefault(entry.key or b"", []).append(int(entry.payload))
    assert {key: max(values) for key, values in told.items()} == {b"%d" % digit: 2000 for digit in range(10)}
    assert all(len(set(values)) == len(values) for values in told.values()), "no change is told twice"


def test_a_count_that_goes_on_where_it_was(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, tmp_path: Path
) -> None:
    fill(log, 500)
    for expected in (500, 800):
        counts = stream(spark, servers, log, maxEntriesPerTrigger=200).groupBy().count()
        writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
        ended(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)
        assert spark.table("counts").collect() == [(expected,)]
        fill(log, 300)


def test_bad_input_ends_the_query_with_a_clear_error(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, copy: varlog.sync.Log, tmp_path: Path
) -> None:
    fill(log, 10)
    fill(copy, 10)
    append_all(stream(spark, servers, log), servers, copy, tmp_path)
    with pytest.raises(StreamingQueryException, match="the checkpoint is of another log"):
        append_all(stream(spark, servers, copy), servers, log, tmp_path)
    fill(log, 10)
    log.trim(15)
    with pytest.raises(StreamingQueryException, match=r"positions 11 to 15 .* are trimmed"):
        append_all(stream(spark, servers, log), servers, copy, tmp_path)
    append_all(stream(spark, servers, log, failOnDataLoss="false"), servers, copy, tmp_path)
    assert copy.tail() == 25
