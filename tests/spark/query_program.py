"""Streaming queries in a process of their own, to be killed: one copies a log to another, one counts, a few at a time.

python -m tests.spark.query_program CLUSTER FROM TO COUNTS CHECKPOINTS
"""

import sys
import time
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from varlog.spark import local_session


def count(entries: DataFrame, cluster: str, log: str, checkpoint: str, *, now: bool = False) -> StreamingQuery:
    """Append how many entries there were by now of each last digit, whenever that changes."""

    def append_changes(changes: DataFrame, batch: int) -> None:
        rows = changes.selectExpr("key", "cast(`count` AS string) AS payload")
        target = rows.write.format("varlog").option("cluster", cluster).option("log", log)
        target.option("identity", f"{log}.{batch}").mode("append").save()

    counts = entries.selectExpr("substr(cast(payload AS string), -1) AS key").groupBy("key").count()
    counting = counts.writeStream.foreachBatch(append_changes).outputMode("update")
    counting = counting.option("checkpointLocation", checkpoint)
    return (counting.trigger(availableNow=True) if now else counting).start()


TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to begin its work, which on a busy machine are too few."""


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that ends by itself, begun again where it was not even begun."""
    while True:
        query = start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error):
                raise


def running(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Until the first micro-batch, begun again as often as that takes."""
    while True:
        query = start()
        while query.isActive and not query.recentProgress:
            time.sleep(0.1)
        if query.isActive:
            return query
        print(f"begun again: {query.exception()}", file=sys.stderr)


def main() -> None:
    cluster, source, target, counts, checkpoints = sys.argv[1:]
    spark = local_session("query")
    entries = spark.readStream.format("varlog").option("cluster", cluster).option("log", source)
    few = entries.option("maxEntriesPerTrigger", 500).option("minPartitions", 2).load()
    copying = few.writeStream.format("varlog").option("cluster", cluster).option("log", target)
    running(lambda: copying.option("checkpointLocation", f"{checkpoints}/{target}").start())
    running(lambda: count(few, cluster, counts, f"{checkpoints}/{counts}"))
    spark.streams.resetTerminated()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
