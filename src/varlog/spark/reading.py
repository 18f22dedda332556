"""What a task does to read: one range of positions, straight from archive and replicas, as Arrow record batches.

The range was fixed before the task began, so the task knows how many entries it must find. It hands on
no more than a record batch at a time; what is read ahead is bounded by the subscription.
"""

import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pyarrow
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from varlog import sync
from varlog.base.errors import Corrupt, Trimmed
from varlog.client import LogDescription
from varlog.spark.archived import archived_bytes, archived_end, read_archive
from varlog.spark.assemble import Assembler
from varlog.spark.columns import arrow_schema
from varlog.spark.connection import connected
from varlog.spark.limits import BATCH_BYTES, SMALL_ENTRIES
from varlog.spark.options import Options
from varlog.spark.plan import borders, entry_bytes, split
from varlog.spark.span import DataLossWarning, check_same


@dataclass
class Part(InputPartition):
    """The positions `[start, stop)` of the log with this id; what a task is given."""

    log: int
    start: int
    stop: int


def plan_parts(cluster: sync.Cluster, log: LogDescription, start: int, stop: int, options: Options) -> list[Part]:
    """The tasks that read a range; at least one, because Spark makes an empty one of its own otherwise."""
    if stop <= start:
        return [Part(log.id, start, start)]
    size = size_of_entries(cluster, log.name, start, stop)
    return split_parts(log.id, start, stop, borders(log), size, options)


def split_parts(log: int, start: int, stop: int, cuts: list[int], size: float, options: Options) -> list[Part]:
    """A range cut at certain positions and into parts of one size; `size` is that of an entry."""
    return [Part(log, *each) for each in _split(start, stop, cuts, size, options)]


def count_parts(cluster: sync.Cluster, log: sync.Log, start: int, stop: int, options: Options) -> int:
    """How many tasks a range is worth."""
    return len(_split(start, stop, [], size_of_entries(cluster, log.name, start, stop), options))


def even_parts(log: int, start: int, stop: int, count: int) -> list[Part]:
    """So many tasks for a range, always with the same borders."""
    ranges = split(start, stop, entry_bytes=0, part_bytes=1, least=count) or [(start, start)]
    return [Part(log, *each) for each in ranges]


def _split(start: int, stop: int, cuts: list[int], size: float, options: Options) -> list[tuple[int, int]]:
    return split(
        start,
        stop,
        cuts=cuts,
        entry_bytes=size,
        part_bytes=options.partition_bytes,
        least=options.min_partitions,
    )


def size_of_entries(cluster: sync.Cluster, log: str, start: int, stop: int) -> float:
    """What one takes, on average, on the nodes or in the archive. For few nobody is asked: they are one part."""
    if stop - start <= SMALL_ENTRIES:
        return 0.0
    status = next((each for each in cluster.status().logs if each.log.name == log), None)
    if status is None:
        return 0.0
    archived = archived_bytes(status.log) if start <= status.log.trimmed else 0.0
    return max(entry_bytes(status), archived)


def read_part(options: Options, schema: StructType, part: Part, *, junk: bool = False) -> Iterator[pyarrow.RecordBatch]:
    """Everything in the part, in order; raises rather than leaving anything out.

    With `junk` also positions that were given up, as rows without a payload.
    """
    if part.start >= part.stop:
        return
    with connected(options) as (_, log):
        info = log.info()
        check_same(info.name, part.log, info.id)
        start = archived_end(info, part.start, part.stop)
        yield from read_archive(info, options, schema, part.start, start, junk=junk)
        while start < part.stop:
            start = yield from _read(log, options, schema, start, part.stop, junk=junk)


def _read(
    log: sync.Log, options: Options, schema: StructType, start: int, stop: int, *, junk: bool
) -> Generator[pyarrow.RecordBatch, None, int]:
    """From the nodes. Returns where to go on: at `stop`, or behind what a trim took away meanwhile, if it may."""
    assembler = Assembler(arrow_schema(schema))
    found, reached, after = 0, start, stop
    try:
        for batch in log.subscribe(start, stop, stream=options.stream, wait=False, junk=True).batches():
            found += batch.count
            reached = batch.first + batch.count
            if batch.junk and not junk:
                continue
            assembler.add(batch)
            if assembler.rows >= options.batch_rows or assembler.bytes >= BATCH_BYTES:
                yield assembler.take()
        reached = stop
    except Trimmed as trimmed:
        if options.fail_on_data_loss:
            raise
        after = trimmed.first
        lost = f"positions {reached} to {min(after, stop) - 1} of log {log.name!r}"
        warnings.warn(f"{lost} were trimmed, and are left out", DataLossWarning, stacklevel=2)
    if assembler.rows:
        yield assembler.take()
    if options.stream is None and found != reached - start:
        raise Corrupt(f"positions {start} to {reached - 1} of log {log.name!r} gave {found} entries")
    return after
