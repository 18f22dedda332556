"""What the driver refuses before any task runs; without Spark."""

from dataclasses import replace

import pytest
from pyspark.sql.types import StructType

import varlog
from varlog.base.errors import Unsupported
from varlog.spark.options import Options
from varlog.spark.sink import BatchWriter, StreamWriter

PAYLOAD = StructType().add("payload", "binary")


@pytest.mark.parametrize("writer", [BatchWriter, StreamWriter])
def test_a_journal_is_no_target(
    client: varlog.sync.Cluster, options: Options, writer: type[BatchWriter] | type[StreamWriter]
) -> None:
    target = replace(options, log=f"{options.log}-journal")
    writer(options, PAYLOAD, False)
    with client.journal(target.log, replicas=1):
        pass  # it is there
    with pytest.raises(Unsupported, match="is a journal") as refused:
        writer(target, PAYLOAD, False)
    assert refused.value.capability == "many_writers"
