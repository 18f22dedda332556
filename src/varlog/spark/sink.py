"""The log as a sink. Everything is judged in the driver; the tasks append under names that survive their repetition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from varlog.base.errors import InvalidArgument, Sealed, TooLarge, Unsupported
from varlog.spark.columns import check_written
from varlog.spark.connection import connected
from varlog.spark.deliver import deliver
from varlog.spark.limits import IDENTITY_CHARACTERS
from varlog.spark.options import Options
from varlog.spark.rows import rows_of

if TYPE_CHECKING:
    import pyarrow

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Properties of a task of a streaming query; both are the same when a micro-batch is repeated after a crash."""


@dataclass
class Written(WriterCommitMessage):
    """What a task appended."""

    entries: int


def check_target(options: Options, schema: StructType, overwrite: bool) -> None:
    """Raises what is wrong with a frame or a log before any task runs."""
    check_written(schema)
    if overwrite:
        raise Unsupported('a log is only appended to: write with mode("append")')
    if options.identity is not None and len(options.identity) > IDENTITY_CHARACTERS:
        raise TooLarge(f"an identity of {len(options.identity)} characters", IDENTITY_CHARACTERS)
    for name in ("stop", "stream", "columns"):
        if getattr(options, name) is not None:
            raise InvalidArgument(f"the option {name!r} is for reading, not for writing")
    with connected(options) as (_, log):
        info = log.info()
        if info.sealed:
            raise Sealed(f"log {info.name!r} is sealed and takes no more entries", info.chain[-1].end or 0)
        if "many_writers" not in log.capabilities:
            refused = Unsupported(
                f"{info.name!r} is a journal: only the client that leads it appends to it, and the tasks of a sink are "
                "many; write to a log that is none"
            )
            refused.capability = "many_writers"
            raise refused


def append(options: Options, identity: str, batches: "Iterator[pyarrow.RecordBatch]") -> Written:
    """What a task does."""
    with connected(options) as (_, log):
        return Written(deliver(log, identity, map(rows_of, batches), options.timeout))


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise Unsupported("only a task of Spark can write")
    return context


class BatchWriter(DataSourceArrowWriter):
    """Appends a frame. A task that is run again adds nothing twice; with the option `identity`, nor does a job."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        check_target(options, schema, overwrite)
        self._options = options
        self._identity = options.identity or f"spark.{uuid4()}"

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        return append(self._options, f"{self._identity}.{_task().partitionId()}", iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends what a streaming query gives, once: the checkpoint keeps the query's id and the batch's number."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        check_target(options, schema, overwrite)
        self._options = options

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise Unsupported("this Spark does not tell its tasks which query and batch they belong to; 4.2 is needed")
        query = self._options.identity or f"spark.{query}"
        return append(self._options, f"{query}.{batch}.{task.partitionId()}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: what is acknowledged is in the log."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: the batch comes again under the same identity, and what is there is left out."""
