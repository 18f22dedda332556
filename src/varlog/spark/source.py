"""`format("varlog")`: what Spark asks of a data source, and the batch reader."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from varlog.spark.columns import check_read, chosen
from varlog.spark.connection import connected
from varlog.spark.options import Options, parse_options
from varlog.spark.reading import Part, plan_parts, read_part
from varlog.spark.sink import BatchWriter, StreamWriter
from varlog.spark.span import find_range
from varlog.spark.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow


class VarlogDataSource(DataSource):
    """The log as a table: see docs/spark.md for the options.

    There is no `pushFilters`: Spark keeps the partitions that are left after a filter for other uses of the same
    frame, and gives wrong rows. A range is an option, and each range is a `load()` of its own.
    """

    @classmethod
    def name(cls) -> str:
        return "varlog"

    @cached_property
    def _options(self) -> Options:
        return parse_options(self.options)

    def schema(self) -> StructType:
        return chosen(self._options.columns)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(self._options, check_read(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._options, check_read(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(self._options, schema, overwrite)


class BatchReader(DataSourceReader):
    """One range, fixed when the query is planned: the same rows for ever."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with connected(self._options) as (cluster, log):
            info = log.info()
            start, stop = find_range(log, self._options)
            return list(plan_parts(cluster, info, start, stop, self._options))

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        assert isinstance(partition, Part)
        return read_part(self._options, self._schema, partition)
