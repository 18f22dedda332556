"""The driver of a job on a Spark cluster, a process of its own: copies a log, and tells what it saw.

First by a streaming query, a few entries at a time, until it has all that are to come; then in one go, but the second
half only when there is a file with the name of the log that it goes to.

python -m tests.spark.job_program MASTER CLUSTER FROM STREAMED TO FOLDER
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import pyarrow
from pyspark.sql import SparkSession
from tests.spark.query_program import running

import varlog
from varlog.spark import local_session, read, ship

COUNT = 20_000
"""Entries that the log has in the end: their numbers, from 0 on."""
PARTS = 8
POLL_S = 0.05
TIMEOUT_S = 60.0
STEP = 2500
"""Entries of a micro-batch."""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "8",
}


def gated(gate: str) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """For tasks that stay where they are in the second half until somebody has done what is to be done meanwhile."""
    half, poll_s = COUNT // 2, POLL_S  # this module is not where tasks run

    def passed(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            if any(int(payload) >= half for payload in batch.column("payload").to_pylist()):
                while not os.path.exists(gate):
                    time.sleep(poll_s)
            yield batch

    return passed


def home(_: int) -> str:
    """Where an executor has the package from."""
    import varlog

    return varlog.__file__


def copy_as_stream(spark: SparkSession, cluster: str, source: str, target: str, folder: str) -> None:
    """In micro-batches of two tasks each, until all is there."""
    reader = spark.readStream.format("varlog").option("cluster", cluster).option("log", source)
    entries = reader.option("maxEntriesPerTrigger", STEP).option("minPartitions", 2).load()
    writer = entries.writeStream.format("varlog").option("cluster", cluster).option("log", target)
    query = running(writer.option("checkpointLocation", f"{folder}/checkpoint").start)
    with varlog.sync.connect(cluster, timeout=TIMEOUT_S) as client:
        while client.log(target).tail() < COUNT and query.isActive:
            time.sleep(POLL_S)
    query.processAllAvailable()
    query.stop()


def main() -> None:
    master, cluster, source, streamed, target, folder = sys.argv[1:]
    spark = local_session("job", master=master, settings=SETTINGS)
    ship(spark)
    homes = sorted(set(spark.sparkContext.parallelize(range(PARTS), PARTS).map(home).collect()))
    copy_as_stream(spark, cluster, source, streamed, folder)
    entries = read(spark, cluster, source, columns=["key", "payload"], minPartitions=PARTS)
    copied = entries.mapInArrow(gated(f"{folder}/{target}"), entries.schema)
    copied.write.format("varlog").option("cluster", cluster).option("log", target).mode("append").save()
    sums = read(spark, cluster, target).selectExpr("count(*)", "sum(cast(cast(payload AS string) AS bigint))")
    print(json.dumps({"homes": homes, "sums": list(sums.collect()[0])}))
    spark.stop()


if __name__ == "__main__":
    main()
