"""Batches as Arrow record batches."""

from array import array
from datetime import UTC, datetime

import pyarrow
import pytest

from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.entry import ReadBatch
from varlog.wire.arrow import schema
from varlog.wire.batch import HEADER_BYTES, Batch, encode_batch, junk_batch, read_header


def wrap(data: bytes, low: int = 0, high: int | None = None) -> ReadBatch:
    batch = Batch(data, read_header(data))
    return ReadBatch(batch, Glsn(10 + low), StreamId(2), Slot(7 + low), low, len(batch) if high is None else high)


FULL = encode_batch(
    [b"a", b"", b"ccc"], keys=[None, b"", b"k"], headers=[{}, {"x": b"1", "y": b""}, {"z": b"2"}], time_us=1_000_001
)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0, 3), (1, 3), (1, 2)])
def test_rows_equal_entries(compress: bool, full: bool, low: int, high: int) -> None:
    payloads = [b"a" * 200, b"", b"ccc"]
    if full:
        data = encode_batch(
            payloads, keys=[None, b"", b"k"], headers=[{}, {"x": b"1", "y": b""}, {"z": b"2"}], compress=compress
        )
    else:
        data = encode_batch(payloads, compress=compress)
    read = wrap(data, low, high)
    table = read.to_arrow()
    table.validate(full=True)
    assert table.schema == schema()
    rows = [{**row, "headers": dict(row["headers"])} for row in table.to_pylist()]
    assert rows == [entry._asdict() for entry in read.entries()]


def test_the_schema_is_the_one_spark_is_promised() -> None:
    assert str(schema().field("headers").type) == "map<string, binary>"
    assert [(field.name, str(field.type)) for field in schema() if field.name != "headers"] == [
        ("glsn", "int64"),
        ("stream", "int32"),
        ("slot", "int64"),
        ("time", "timestamp[us, tz=UTC]"),
        ("key", "binary"),
        ("payload", "binary"),
    ]


def test_times_are_exact() -> None:
    assert wrap(FULL).to_arrow()["time"][0].as_py() == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)


def test_payloads_are_not_copied() -> None:
    data = encode_batch([b"x" * 1000] * 10)
    before = pyarrow.total_allocated_bytes()
    column = wrap(data).to_arrow()["payload"]
    assert pyarrow.total_allocated_bytes() == before
    at = memoryview(data)[HEADER_BYTES:]
    assert column.buffers()[2].address - column.buffers()[1].address == 48
    assert column.buffers()[1].address == pyarrow.py_buffer(at).address


def test_offsets_that_lead_outside_are_found() -> None:
    data = bytearray(encode_batch([b"ab", b"cd"]))
    data[HEADER_BYTES : HEADER_BYTES + 12] = array("i", [0, 1 << 30, 4]).tobytes()
    with pytest.raises(Corrupt, match="makes no sense"):
        wrap(bytes(data)).to_arrow()


def test_header_names_that_are_no_text_are_found() -> None:
    data = bytearray(encode_batch([b""], headers=[{"name": b"v"}]))
    data[data.index(b"name")] = 0xFF
    with pytest.raises(Corrupt, match="makes no sense"):
        wrap(bytes(data)).to_arrow()


def test_junk_has_no_rows() -> None:
    """As it has no entries."""
    table = wrap(junk_batch(3)).to_arrow()
    assert (table.num_rows, table.schema) == (0, schema())
