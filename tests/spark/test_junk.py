"""Positions that were given up, under `sequencer`: no rows in frames, rows without a payload in archives, no gaps."""

from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from tests.cluster.cluster import RealCluster

import varlog
from varlog.base.errors import Junk
from varlog.spark import read
from varlog.spark.archive import archive, archived
from varlog.spark.audit import audit
from varlog.spark.options import Options

ENTRIES = [glsn for glsn in range(1, 40) if glsn % 4]
"""Batches of three in stripes of four: every fourth position is left, and filled."""


def test_what_was_given_up_has_no_rows_and_leaves_no_gap(
    spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster, tmp_path: Path
) -> None:
    log = client.create_log("striped", ordering="sequencer", replicas=2, streams=2, unit=4)
    for _ in range(10):
        log.append_batch([b"a", b"b", b"c"])
    options = Options(cluster=servers.url, log="striped", batch_rows=7)
    frame = read(spark, servers.url, "striped", columns=["glsn"])
    assert [row.glsn for row in frame.collect()] == ENTRIES
    assert archive(spark, options, tmp_path, upto=38).stop == 39
    log.trim(30)
    frame = read(spark, servers.url, "striped", columns=["glsn"])
    assert [row.glsn for row in frame.collect()] == ENTRIES
    assert [entry.glsn for entry in log.subscribe(None, wait=False)] == ENTRIES
    with pytest.raises(Junk):
        log.read(8)
    assert log.read(9).payload == b"a"
    assert archived(spark, tmp_path, "striped").count() == len([glsn for glsn in ENTRIES if glsn < 39])
    (path,) = tmp_path.glob("**/*.parquet")
    payloads = pyarrow.parquet.read_table(path)["payload"].to_pylist()
    assert [index + 1 for index, payload in enumerate(payloads) if payload is None] == list(range(4, 39, 4))
    report = audit(spark, options)
    assert (report.faults, report.start, report.stop) == ((), 1, 40)
