"""A connection for one task or one question, over the sync client: Spark's Python workers do one thing at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from varlog import sync
from varlog.runtime.memory import keep_memory
from varlog.spark.options import Options

ZONE = "VARLOG_ZONE"
"""Variable of the environment that says in which zone a machine is."""


@contextmanager
def connected(options: Options) -> Iterator[tuple[sync.Cluster, sync.Log]]:
    """The cluster and the log that the options name; everything ends with the block.

    Who reads is where the options say, or else where the machine's own environment says: executors differ.
    """
    keep_memory()
    zone = options.zone or os.environ.get(ZONE, "")
    with sync.connect(options.cluster, timeout=options.timeout, zone=zone) as cluster:
        yield cluster, cluster.log(options.log)
