"""A connection for one task or one question, over the sync client: Spark's Python workers do one thing at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from varlog import sync
from varlog.spark.options import Options


@contextmanager
def connected(options: Options) -> Iterator[tuple[sync.Cluster, sync.Log]]:
    """The cluster and the log that the options name; everything ends with the block."""
    with sync.connect(options.cluster, timeout=options.timeout) as cluster:
        yield cluster, cluster.log(options.log)
