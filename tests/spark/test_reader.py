"""Readers as plain objects: what they plan, what they give, and what they say to bad input. No Spark runs here."""

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import varlog
from varlog.base.errors import InvalidArgument, NotFound, NotWritten, Trimmed, Unavailable
from varlog.spark.columns import SCHEMA
from varlog.spark.limits import BATCH_BYTES
from varlog.spark.options import Options
from varlog.spark.reading import Part, read_part
from varlog.spark.source import BatchReader
from varlog.spark.span import DataLossWarning
from varlog.spark.stream import StreamReader


def fill(log: varlog.sync.Log, count: int = 30) -> None:
    """Batches of one to five entries, on both streams in turn."""
    number = turn = 0
    while number < count:
        size = min(turn % 5 + 1, count - number)
        log.append_batch([b"%d" % (number + index) for index in range(size)], stream=turn % 2 + 1)
        number, turn = number + size, turn + 1


def rows(reader: BatchReader | StreamReader, parts: Iterable[InputPartition]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def ranges(parts: Iterable[InputPartition]) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in parts if isinstance(part, Part)]


def batch(options: Options, **changes: Any) -> BatchReader:
    return BatchReader(replace(options, **changes), SCHEMA)


# ---------------------------------------------------------------- batches


def test_record_batches_of_a_compressed_log_are_no_larger(log: varlog.sync.Log, options: Options) -> None:
    for _ in range(6):
        log.append_batch([bytes(1 << 20)] * 3, compress=True)
    batches = list(read_part(options, SCHEMA, Part(log.info().id, 1, 19)))
    assert [each.num_rows for each in batches] == [6, 6, 6]
    assert all(each.nbytes < BATCH_BYTES + (4 << 20) for each in batches)


@pytest.mark.parametrize("least", [1, 4, 100])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_rows_equal_a_subscription(log: varlog.sync.Log, options: Options, least: int, batch_rows: int) -> None:
    fill(log)
    log.append_batch([b"a", b"b"], keys=[None, b"k"], headers=[{"h": b"1"}, {}])
    reader = batch(options, start=4, stop=33, min_partitions=least, batch_rows=batch_rows)
    found = [{**row, "headers": dict(row["headers"])} for row in rows(reader, reader.partitions())]
    assert found == [entry._asdict() for entry in log.subscribe(4, 33)]


def test_a_range_is_cut_where_streams_begin(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    assert ranges(batch(options).partitions()) == [(1, 31)]
    assert ranges(batch(options, start=5, stop=9).partitions()) == [(5, 9)]
    assert ranges(batch(options, min_partitions=3).partitions()) == [(1, 11), (11, 21), (21, 31)]


def test_one_stream_alone(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = batch(options, stream=2, min_partitions=4)
    expected = [entry.glsn for entry in log.subscribe(wait=False) if entry.stream == 2]
    assert [row["glsn"] for row in rows(reader, reader.partitions())] == expected


def test_an_empty_range(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    readers = [batch(options, stop=1), batch(options, start=7, stop=7), batch(options, start="latest")]
    assert [rows(reader, reader.partitions()) for reader in readers] == [[], [], []]


def test_an_empty_log(options: Options) -> None:
    reader = batch(options)
    assert rows(reader, reader.partitions()) == []


def test_times(log: varlog.sync.Log, options: Options) -> None:
    log.append_batch([b"old"] * 3)
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    log.append_batch([b"new"] * 3)
    assert ranges(batch(options, start=between).partitions()) == [(4, 7)]
    assert ranges(batch(options, stop=between).partitions()) == [(1, 4)]
    assert ranges(batch(options, start=datetime(1999, 1, 1, tzinfo=UTC)).partitions()) == [(1, 7)]


def test_ranges_that_do_not_exist(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    with pytest.raises(NotWritten, match=r"stop 32 lies beyond the tail .* at most 31"):
        batch(options, stop=32).partitions()
    with pytest.raises(NotWritten, match="start 32 lies beyond the tail"):
        batch(options, start=32).partitions()
    with pytest.raises(InvalidArgument, match="start 9 lies behind stop 5"):
        batch(options, start=9, stop=5).partitions()
    reader = batch(options, stream=9)
    with pytest.raises(NotFound, match="no stream 9"):
        rows(reader, reader.partitions())


def test_below_the_trim_point(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    log.trim(10)
    assert ranges(batch(options).partitions()) == [(11, 31)]
    with pytest.raises(Trimmed, match=r"positions 3 to 10 .* begin at 11, or set failOnDataLoss"):
        batch(options, start=3).partitions()
    tolerant = batch(options, start=3, fail_on_data_loss=False)
    with pytest.warns(DataLossWarning, match=r"positions 3 to 10 of log .* are left out"):
        assert ranges(tolerant.partitions()) == [(11, 31)]


def test_trimmed_between_plan_and_read(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    log.trim(10)
    part = Part(log.info().id, 5, 20)
    with pytest.raises(Trimmed):
        rows(batch(options), [part])
    tolerant = batch(options, fail_on_data_loss=False)
    with pytest.warns(DataLossWarning, match="positions 5 to 10"):
        assert [row["glsn"] for row in rows(tolerant, [part])] == list(range(11, 20))
    with pytest.warns(DataLossWarning, match="positions 2 to 4"):
        assert rows(tolerant, [replace(part, start=2, stop=5)]) == []


def test_overtaken_by_a_trim(log: varlog.sync.Log, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it is handed on."""
    fill(log)
    whole, asked = varlog.sync.Log.subscribe, []

    class Overtaken:
        def batches(self) -> Iterator[varlog.ReadBatch]:
            yield from whole(log, 1, 11).batches()
            log.trim(20)
            raise Trimmed("gone", 21)

    def subscribe(log: varlog.sync.Log, start: int, stop: int, **settings: Any) -> Any:
        asked.append(start)
        return Overtaken() if start == 1 else whole(log, start, stop, **settings)

    reader, part = batch(options, fail_on_data_loss=False), Part(log.info().id, 1, 31)
    monkeypatch.setattr(varlog.sync.Log, "subscribe", subscribe)
    with pytest.warns(DataLossWarning, match="positions 11 to 20"):
        assert [row["glsn"] for row in rows(reader, [part])] == [*range(1, 11), *range(21, 31)]
    assert asked == [1, 21]


def made_anew(client: varlog.sync.Cluster, log: varlog.sync.Log, count: int) -> None:
    client.remove_log(log.name)
    fill(client.create_log(log.name, replicas=2, streams=2), count)


def test_made_anew_between_plan_and_read(client: varlog.sync.Cluster, log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = batch(options)
    parts = reader.partitions()
    made_anew(client, log, 30)
    with pytest.raises(NotFound, match=r"another made under its name .* load the frame anew"):
        rows(reader, parts)


def test_no_such_log_and_no_cluster(options: Options) -> None:
    with pytest.raises(NotFound, match="no log named 'nothing'"):
        batch(options, log="nothing").partitions()
    with pytest.raises(Unavailable, match="no repository answers"):
        batch(options, cluster="varlog://127.0.0.1:1", timeout=1.0).partitions()


# ---------------------------------------------------------------- streams


def streaming(options: Options, **changes: Any) -> StreamReader:
    return StreamReader(replace(options, **changes), SCHEMA)


def test_from_offset_to_offset(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = streaming(options)
    try:
        start = reader.initialOffset()
        assert start["next"] == 1
        assert reader.latestOffset(start, ReadMaxRows(10))["next"] == 11
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end["next"] == reader.reportLatestOffset()["next"] == 31
        assert [row["glsn"] for row in rows(reader, reader.partitions(start, end))] == list(range(1, 31))
        assert rows(reader, reader.partitions(end, end)) == []
        log.append(b"more")
        time.sleep(0.1)
        later = reader.latestOffset(end, ReadAllAvailable())
        copied = pickle.loads(pickle.dumps(reader))  # as it goes to the tasks
        assert [row["payload"] for row in rows(copied, reader.partitions(end, later))] == [b"more"]
    finally:
        reader.stop()


def test_a_range_is_cut_as_it_was_the_first_time(log: varlog.sync.Log, options: Options) -> None:
    """A sink knows what it has by the task it came from."""
    fill(log)
    first, second = streaming(options, min_partitions=3), streaming(options, min_partitions=1)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert (
        ranges(second.partitions(start, end)) == ranges(first.partitions(start, end)) == [(1, 11), (11, 21), (21, 31)]
    )
    assert second.latestOffset(end, ReadAllAvailable()) == end  # nothing new is the same offset
    first.stop()
    second.stop()


def test_the_first_range_begins_where_it_did_the_first_time(log: varlog.sync.Log, options: Options) -> None:
    """Spark keeps the end of the first micro-batch, and asks for its start again."""
    fill(log)
    first = streaming(options, min_partitions=2)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    old = {name: value for name, value in end.items() if name != "from"}  # as checkpoints were once
    log.trim(10)
    strict, tolerant = streaming(options), streaming(options, fail_on_data_loss=False)
    start = strict.initialOffset()
    assert start["next"] == 11
    with pytest.raises(Trimmed, match="positions 1 to 10"):
        strict.partitions(start, end)
    with pytest.warns(DataLossWarning, match="positions 1 to 10"):
        assert ranges(tolerant.partitions(start, end)) == [(11, 16), (16, 31)]
    assert ranges(strict.partitions(start, old)) == [(11, 21), (21, 31)]
    log.trim(30)
    with pytest.raises(Trimmed, match="positions 1 to 30"):
        strict.partitions(strict.initialOffset(), end)
    for reader in (first, strict, tolerant):
        reader.stop()


def test_what_comes_while_a_query_begins_at_the_end(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = streaming(options, start="latest")
    start = reader.initialOffset()
    log.append(b"more")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert ranges(reader.partitions(reader.initialOffset(), end)) == [(31, 32)]
    reader.stop()


def test_where_a_query_begins(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    for start, expected in ((None, 1), ("latest", 31), (7, 7), (31, 31)):
        reader = streaming(options, **({} if start is None else {"start": start}))
        assert reader.initialOffset()["next"] == expected
        reader.stop()
    with pytest.raises(NotWritten, match="beyond the tail"):
        streaming(options, start=33).initialOffset()
    with pytest.raises(NotFound, match="no log named 'nothing'"):
        streaming(options, log="nothing").initialOffset()
    with pytest.raises(InvalidArgument, match="'stop' is for batch reads"):
        streaming(options, stop=9)


def test_what_is_there_now_and_no_more(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = streaming(options, max_entries_per_trigger=20)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(log)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    middle = reader.latestOffset(start, limit)
    end = reader.latestOffset(middle, limit)
    assert (middle["next"], end["next"]) == (21, 31)
    assert reader.latestOffset(end, limit) == end
    reader.stop()


def test_a_checkpoint_of_another_log(client: varlog.sync.Cluster, log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    reader = streaming(options)
    own = reader.initialOffset()
    for changed, says in (
        ({"log": 99_999}, "another log"),
        ({"cluster": "another"}, "another cluster"),
        ({"next": None}, "not one of a varlog source"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            reader.latestOffset({**own, **changed}, ReadAllAvailable())
    reader.stop()
    client.remove_log(log.name)
    client.create_log(log.name, replicas=1)
    anew = streaming(options)
    with pytest.raises(InvalidArgument, match="another log"):
        anew.partitions(own, own)
    anew.stop()


@pytest.mark.parametrize("count", [20, 30, 40])
def test_made_anew_under_a_running_query(
    client: varlog.sync.Cluster, log: varlog.sync.Log, options: Options, count: int
) -> None:
    fill(log)
    reader = streaming(options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    made_anew(client, log, count)
    time.sleep(0.1)
    with pytest.raises(NotFound, match="start the query with a new checkpoint"):
        reader.partitions(start, end)
    with pytest.raises(NotFound, match="start the query with a new checkpoint"):
        rows(reader, parts)
    if count == 30:  # as far as it is: there is nothing to be read, of neither
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    else:
        with pytest.raises(NotFound, match="start the query with a new checkpoint"):
            reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def test_a_query_that_fell_behind_the_trim_point(log: varlog.sync.Log, options: Options) -> None:
    fill(log)
    strict, tolerant = streaming(options), streaming(options, fail_on_data_loss=False)
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    log.trim(10)
    with pytest.raises(Trimmed, match=r"positions 1 to 10 .* failOnDataLoss"):
        strict.partitions(start, end)
    with pytest.warns(DataLossWarning, match="positions 1 to 10"):
        assert ranges(tolerant.partitions(start, end)) == [(11, 31)]
    with pytest.warns(DataLossWarning, match="positions 1 to 10"):
        assert ranges(tolerant.partitions(start, {**end, "parts": 6})) == [
            (11, 11),
            (11, 11),
            *((first, first + 5) for first in (11, 16, 21, 26)),
        ]
    strict.stop()
    tolerant.stop()
