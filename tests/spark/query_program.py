"""A streaming query in a process of its own, to be killed: copies one log to another, a few entries at a time.

python -m tests.spark.query_program CLUSTER FROM TO CHECKPOINT
"""

import sys

from varlog.spark import local_session


def main() -> None:
    cluster, source, target, checkpoint = sys.argv[1:]
    spark = local_session("query")
    entries = spark.readStream.format("varlog").option("cluster", cluster).option("log", source)
    copying = entries.option("maxEntriesPerTrigger", 500).option("minPartitions", 2).load().writeStream
    query = copying.format("varlog").option("cluster", cluster).option("log", target)
    query.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
