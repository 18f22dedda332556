"""Proves a range of a log: every copy is read for itself, and Spark compares them all.

    copies     node 1  [batch][batch][batch]        tasks read copies, and give where each batch lies and what
               node 2  [batch][batch][batch]        its bytes sum up to; the checksum is verified on the way
    compared   slot, positions and checksum are the same on all members of a stream
    in order   [1 ... 5)[5 ... 9)[9 ...             sorted by position: no gap, none twice, from end to end
    archive    its files likewise, and row by row the same as the log where the nodes still have it

Nothing is taken on trust from the node: bytes come over, and are summed up here.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from varlog import client, sync
from varlog.base.errors import Corrupt, VarlogError
from varlog.client.log import replica_of
from varlog.client.replica import StoredBatch
from varlog.runtime.loop import loop_factory
from varlog.spark.audit_archive import Fault, audit_archive
from varlog.spark.columns import arrow_schema
from varlog.spark.limits import AUDIT_ENTRIES, MOST_FAULTS
from varlog.spark.options import Options
from varlog.spark.order import Range, out_of_order
from varlog.spark.plan import entry_bytes, split
from varlog.spark.span import find_range

FOUND = "segment int, stream int, node int, slot bigint, first bigint, stop bigint, crc bigint, trouble string"
PLANNED = "segment int, stream int, node int, others array<int>, start bigint, stop bigint, committed bigint"


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit of the positions `[start, stop)` found."""

    log: str
    start: int
    stop: int
    copies: int
    """Of streams, that were read."""
    batches: int
    """In all copies together."""
    faults: tuple[Fault, ...]
    """At most `MOST_FAULTS` of each kind."""
    files: int = 0
    """Of the archive, that were read."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A part of one copy of a stream; what a task reads. Fields as in `PLANNED`."""

    segment: int
    stream: int
    node: int
    others: list[int]
    start: int
    stop: int
    committed: int


def audit(spark: SparkSession, options: Options) -> Report:
    """Read every copy of the range and compare; raises only what keeps it from being done at all."""
    with sync.connect(options.cluster, timeout=options.timeout) as cluster:
        log = cluster.log(options.log)
        start, stop = find_range(log, options)
        info = log.info()
        kept = max(start, info.trimmed + 1)
        copies = _plan(cluster, log, kept, stop, options)
    files, faults = audit_archive(spark, options, info, start, stop)
    if not copies:
        return Report(options.log, start, stop, 0, 0, tuple(faults), files)
    rows = [tuple(getattr(each, name) for name in _Copy.__slots__) for each in copies]
    planned = spark.sparkContext.parallelize(rows, len(rows)).toDF(PLANNED)
    schema = _schema(spark)
    found = planned.mapInArrow(lambda batches: _read_copies(options, schema, batches), FOUND).persist()
    try:
        return Report(
            options.log,
            start,
            stop,
            len({(each.segment, each.stream, each.node) for each in copies}),
            found.where("trouble IS NULL").count(),
            (*faults, *_troubles(found), *_differences(spark, found, copies), *_disorder(found, kept, stop)),
            files,
        )
    finally:
        found.unpersist()


def _schema(spark: SparkSession) -> pyarrow.Schema:
    return arrow_schema(spark.createDataFrame([], FOUND).schema)


def _plan(cluster: sync.Cluster, log: sync.Log, start: int, stop: int, options: Options) -> list[_Copy]:
    status = next(each for each in cluster.status().logs if each.log.name == log.name)
    committed = {(each.segment, each.stream): each.committed for each in status.streams}
    size = max(entry_bytes(status), options.partition_bytes / AUDIT_ENTRIES)
    copies = []
    for segment in log.info().chain:
        for stream in segment.streams:
            first, end = max(start, stream.start), min(stop, stream.stop or stop)
            slots = committed.get((segment.epoch, stream.id), stream.end_slot or 0)
            for part in split(first, end, entry_bytes=size, part_bytes=options.partition_bytes):
                for node in stream.members:
                    others = [each for each in stream.members if each != node]
                    copies.append(_Copy(segment.epoch, stream.id, node, others, *part, slots))
    return copies


# ---------------------------------------------------------------- in a task


def _read_copies(
    options: Options, schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from _read_copy(options, schema, _Copy(**row))


def _read_copy(options: Options, schema: pyarrow.Schema, copy: _Copy) -> Iterator[pyarrow.RecordBatch]:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        cluster = client.connect(options.cluster, timeout=options.timeout)
        runner.run(cluster.__aenter__())
        try:
            found = _heads(cluster.log(options.log), copy)
            while rows := runner.run(_next(found)):
                columns = zip(*rows, strict=True)
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
                    schema=schema,
                )
        finally:
            runner.run(cluster.close())


async def _next(found: "AsyncGenerator[list[tuple[Any, ...]], None]") -> list[tuple[Any, ...]] | None:
    return await anext(found, None)


async def _heads(log: client.Log, copy: _Copy) -> "AsyncGenerator[list[tuple[Any, ...]], None]":
    """Rows of `FOUND`. Damage is told with its positions, as another copy has them, and passed over."""
    replica = replica_of(log, copy.segment, copy.stream, copy.node)
    slot: int | None = None
    reached = copy.start
    while True:
        try:
            async for batches in replica.batches(copy.start, copy.stop, committed=copy.committed, slot=slot):
                reached = batches[-1].end
                yield [_row(copy, each) for each in batches]
            return
        except Corrupt as damage:
            whole = await _elsewhere(log, copy, damage.slot)
            if whole is None:
                yield [_trouble(copy, reached, copy.stop, damage.message)]
                return
            yield [_trouble(copy, whole.first, whole.end, damage.message)]
            slot, reached = whole.slot + whole.count, whole.end
            if reached >= copy.stop:
                return
        except VarlogError as error:
            yield [_trouble(copy, reached, copy.stop, error.message)]
            return


async def _elsewhere(log: client.Log, copy: _Copy, slot: int) -> StoredBatch | None:
    for node in copy.others:
        try:
            return await replica_of(log, copy.segment, copy.stream, node).batch_at(slot)
        except VarlogError:
            continue  # the audit of that copy tells what is wrong there
    return None


def _row(copy: _Copy, batch: StoredBatch) -> tuple[Any, ...]:
    """Cut to the task's range: a batch that reaches beyond it is seen by the next task too."""
    first, stop = max(batch.first, copy.start), min(batch.end, copy.stop)
    return (copy.segment, copy.stream, copy.node, batch.slot, first, stop, batch.crc, None)


def _trouble(copy: _Copy, first: int, stop: int, why: str) -> tuple[Any, ...]:
    return (copy.segment, copy.stream, copy.node, None, max(first, copy.start), min(stop, copy.stop), None, why)


# ---------------------------------------------------------------- comparing


def _troubles(found: DataFrame) -> Iterator[Fault]:
    for row in found.where("trouble IS NOT NULL").orderBy("first", "node").limit(MOST_FAULTS).collect():
        yield Fault(row.first, row.stop, f"stream {row.stream} on node {row.node}: {row.trouble}")


def _differences(spark: SparkSession, found: DataFrame, copies: list[_Copy]) -> Iterator[Fault]:
    """Batches that are not the same on all members; a member that could not be read was told of already."""
    members = {(each.segment, each.stream, tuple(sorted([each.node, *each.others]))) for each in copies}
    wanted = spark.createDataFrame([(*each[:2], list(each[2])) for each in sorted(members)], MEMBERS)
    unread = found.where("trouble IS NOT NULL").selectExpr(
        "segment", "stream", "node AS bad", "first AS low", "stop AS high"
    )
    kinds = found.where("trouble IS NULL").groupBy("segment", "stream", "first", "stop")
    counted = kinds.agg(sql.collect_set("node").alias("nodes"), sql.count_distinct("slot", "crc").alias("kinds"))
    compared = counted.join(wanted, ["segment", "stream"]).selectExpr(
        "segment", "stream", "first", "stop", "kinds", "array_sort(array_except(members, nodes)) AS lacking"
    )
    wrong = compared.where("kinds > 1 OR size(lacking) > 0").orderBy("first").limit(MOST_FAULTS)
    known = [(row.stream, row.bad, row.low, row.high) for row in unread.limit(MOST_FAULTS).collect()]
    for row in wrong.collect():
        if row.kinds > 1:
            yield Fault(row.first, row.stop, f"stream {row.stream}: its copies differ")
        for node in row.lacking:
            if not any(
                row.stream == stream and node == bad and low <= row.first < high for stream, bad, low, high in known
            ):
                yield Fault(row.first, row.stop, f"stream {row.stream}: node {node} lacks it")


MEMBERS = "segment int, stream int, members array<int>"


def _disorder(found: DataFrame, start: int, stop: int) -> Iterator[Fault]:
    """What is missing and what is there twice, over all streams together."""
    ranges = found.where("trouble IS NULL").select("segment", "stream", "first", "stop").distinct()
    ordered = ranges.repartitionByRange("first").sortWithinPartitions("first", "stop")
    checked = ordered.mapInArrow(_check_order, "kind string, first bigint, stop bigint")
    for wrong in out_of_order([Range(*row) for row in checked.collect()], start, stop):
        text = "no copy has it" if wrong.kind == "gap" else "it is there twice"
        yield Fault(wrong.first, wrong.stop, text)


def _check_order(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    from varlog.spark.order import check_order

    pairs = (
        pair for batch in batches for pair in zip(*(batch[name].to_pylist() for name in ("first", "stop")), strict=True)
    )
    for rows in check_order(pairs):
        kinds, firsts, stops = zip(*rows, strict=True)
        yield pyarrow.record_batch(
            {
                "kind": kinds,
                "first": pyarrow.array(firsts, pyarrow.int64()),
                "stop": pyarrow.array(stops, pyarrow.int64()),
            }
        )
