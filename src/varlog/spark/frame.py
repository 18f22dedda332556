"""A batch read in one call, for those who would rather not write options."""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from varlog.base.errors import InvalidArgument
from varlog.spark.source import VarlogDataSource

Bound = int | str | datetime


def read(
    spark: SparkSession,
    url: str,
    log: str,
    start: Bound = "earliest",
    stop: Bound | None = None,
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """Positions `[start, stop)` of a log, as a frame with these columns.

    `start` and `stop` are positions, 'earliest', 'latest' or times with a zone; without `stop` the range ends at the
    tail of the moment the frame is first used. Only what is asked for is made; further options are those of the source.
    """
    spark.dataSource.register(VarlogDataSource)
    reader = spark.read.format(VarlogDataSource.name()).option("cluster", url).option("log", log)
    reader = reader.option("start", _text(start))
    if stop is not None:
        reader = reader.option("stop", _text(stop))
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if "minPartitions" not in options:
        options["minPartitions"] = spark.sparkContext.defaultParallelism
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def _text(bound: Bound) -> str:
    if isinstance(bound, bool):
        raise InvalidArgument(f"a position is a number, not {bound}")
    return bound.isoformat() if isinstance(bound, datetime) else str(bound)
