"""The examples of docs/spark.md, run in their order."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cluster.cluster import RealCluster
from tests.docs.test_spark import EXAMPLES

import varlog


def test_the_examples_run(
    spark: SparkSession,
    servers: RealCluster,
    client: varlog.sync.Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders, copy = (client.create_log(name, replicas=2, streams=2) for name in ("orders", "copy"))
    orders.append_batch([b"order %d" % number for number in range(1200)])
    names: dict[str, object] = {}
    for example in EXAMPLES:
        shown = example.replace("varlog://127.0.0.1:7700", servers.url)
        exec(shown.replace("/tmp/orders", str(tmp_path / "orders")), names)
    assert names["spark"] is spark
    assert copy.tail() == 1203, "two rows, all entries, and the count of the one stream they are in"
    assert "|   1|order 0|" in capsys.readouterr().out
    for log in (orders, copy):
        client.remove_log(log.name)
