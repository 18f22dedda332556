"""The driver of a job on a Spark cluster, a process of its own: copies a log, slowly, and tells what it saw.

First by a streaming query, a few entries at a time, then in one go.

python -m tests.spark.job_program MASTER CLUSTER FROM STREAMED TO CHECKPOINT
"""

import json
import sys
import time
from collections.abc import Iterator

import pyarrow
from pyspark.sql import SparkSession

from varlog.spark import local_session, read, ship

PARTS = 8
PAUSE_S = 0.4
STEP = 2500
"""Entries of a micro-batch."""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "8",
}


def slowly(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    time.sleep(PAUSE_S)
    yield from batches


def home(_: int) -> str:
    """Where an executor has the package from."""
    import varlog

    return varlog.__file__


def copy_as_stream(spark: SparkSession, cluster: str, source: str, target: str, checkpoint: str) -> None:
    """In micro-batches of two tasks each, until all is there."""
    reader = spark.readStream.format("varlog").option("cluster", cluster).option("log", source)
    entries = reader.option("maxEntriesPerTrigger", STEP).option("minPartitions", 2).load()
    writer = entries.writeStream.format("varlog").option("cluster", cluster).option("log", target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    master, cluster, source, streamed, target, checkpoint = sys.argv[1:]
    spark = local_session("job", master=master, settings=SETTINGS)
    ship(spark)
    homes = sorted(set(spark.sparkContext.parallelize(range(PARTS), PARTS).map(home).collect()))
    copy_as_stream(spark, cluster, source, streamed, checkpoint)
    entries = read(spark, cluster, source, columns=["key", "payload"], minPartitions=PARTS)
    copied = entries.mapInArrow(slowly, entries.schema)
    copied.write.format("varlog").option("cluster", cluster).option("log", target).mode("append").save()
    sums = read(spark, cluster, target).selectExpr("count(*)", "sum(cast(cast(payload AS string) AS bigint))")
    print(json.dumps({"homes": homes, "sums": list(sums.collect()[0])}))
    spark.stop()


if __name__ == "__main__":
    main()
