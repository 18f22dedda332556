"""Many batches as one record batch: the same rows as each alone, whatever is in them."""

from array import array
from datetime import UTC, datetime

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from varlog.base.errors import Corrupt, TooLarge
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.entry import ReadBatch
from varlog.spark.assemble import LAST_TIME_US, MOST_BYTES, Assembler
from varlog.spark.columns import SCHEMA, arrow_schema
from varlog.wire.arrow import schema
from varlog.wire.batch import HEADER_BYTES, Batch, encode_batch, read_header

entries = st.lists(
    st.tuples(
        st.binary(max_size=9),
        st.none() | st.binary(max_size=3),
        st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def read_batches(draw: st.DrawFn) -> ReadBatch:
    payloads, keys, headers = zip(*draw(entries), strict=True)
    data = encode_batch(
        payloads,
        keys=keys if draw(st.booleans()) else None,
        headers=headers if draw(st.booleans()) else None,
        time_us=draw(st.integers(0, LAST_TIME_US)),
        compress=draw(st.booleans()),
    )
    low = draw(st.integers(0, len(payloads) - 1))
    high = draw(st.integers(low + 1, len(payloads)))
    first, slot = draw(st.integers(1, 1 << 62)), draw(st.integers(0, 1 << 62))
    return ReadBatch(Batch(data), Glsn(first), StreamId(draw(st.integers(1, 1 << 20))), Slot(slot), low, high)


@settings(deadline=None)
@given(st.lists(read_batches(), min_size=1, max_size=5))
def test_rows_are_those_of_the_batches_one_by_one(batches: list[ReadBatch]) -> None:
    assembler = Assembler(arrow_schema(SCHEMA))
    for batch in batches:
        assembler.add(batch)
    assert assembler.rows == sum(map(len, batches))
    together = assembler.take()
    together.validate(full=True)
    assert together.schema == schema()
    assert together == pyarrow.concat_batches([batch.to_arrow() for batch in batches])
    assert assembler.rows == assembler.bytes == 0


def test_times_that_no_datetime_can_say() -> None:
    """A sender that counts in nanoseconds, say. One such row must not keep a log from being archived, or collected."""
    assembler = Assembler(arrow_schema(SCHEMA))
    for number, time_us in enumerate((LAST_TIME_US, LAST_TIME_US + 1, 1_700_000_000 * 10**9, (1 << 64) - 1)):
        batch = Batch(encode_batch([b"x"], time_us=time_us))
        assembler.add(ReadBatch(batch, Glsn(1 + number), StreamId(1), Slot(number), 0, 1))
    expected = [entry.time for batch in assembler._batches for entry in batch]
    assert assembler.take()["time"].to_pylist() == expected == [datetime.max.replace(tzinfo=UTC)] * 4


def test_a_record_batch_is_measured_as_it_will_be_not_as_it_came() -> None:
    """Zeros take next to nothing on the way; unpacked they are what fills a task's memory, and an offset."""
    data = encode_batch([bytes(8 << 20)], compress=True)
    batch = ReadBatch(Batch(data), Glsn(1), StreamId(1), Slot(0), 0, 1)
    assert batch.nbytes < 64 << 10
    assembler = Assembler(arrow_schema(SCHEMA))
    for number in range(1, MOST_BYTES // (8 << 20) + 1):
        assembler.add(batch)
        assert assembler.bytes >= number * (8 << 20)
    with pytest.raises(TooLarge) as large:
        assembler.add(batch)
    assert large.value.limit == MOST_BYTES
    assert assembler.rows == MOST_BYTES // (8 << 20)


def test_only_the_columns_asked_for_as_nullable_as_asked_for() -> None:
    narrow = StructType([StructField("payload", SCHEMA["payload"].dataType, True), SCHEMA["glsn"]])
    assembler = Assembler(arrow_schema(narrow))
    assembler.add(ReadBatch(Batch(encode_batch([b"a", b"b"])), Glsn(7), StreamId(1), Slot(0), 0, 2))
    found = assembler.take()
    assert found.schema.names == ["payload", "glsn"]
    assert found.schema.field("payload").nullable
    assert found.to_pylist() == [{"payload": b"a", "glsn": 7}, {"payload": b"b", "glsn": 8}]


@pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, -1, 2, 4], [0, 1 << 30, 2, 4]])
@pytest.mark.parametrize("beside", [0, 1])
def test_offsets_that_lead_astray_are_found(offsets: list[int], beside: int) -> None:
    data = bytearray(encode_batch([b"ab", b"c", b"d"]))
    data[HEADER_BYTES : HEADER_BYTES + 16] = array("i", offsets).tobytes()
    assembler = Assembler(arrow_schema(StructType([SCHEMA["payload"]])))
    good = encode_batch([b"xyz"])
    for each in [good] * beside:
        assembler.add(ReadBatch(Batch(each), Glsn(1), StreamId(1), Slot(0), 0, 1))
    assembler.add(ReadBatch(Batch(data, read_header(bytes(data))), Glsn(1), StreamId(1), Slot(0), 0, 3))
    with pytest.raises(Corrupt, match="offsets"):
        assembler.take()
