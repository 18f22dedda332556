"""Entries and batches as an application sees them."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.entry import Ack, Entry, ReadBatch, time_of
from varlog.wire.batch import Batch, encode_batch

TIME_US = 1_700_000_000_123_456
TIME = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)


def read_batch(low: int = 0, high: int = 3) -> ReadBatch:
    data = encode_batch(
        [b"a", b"", b"ccc"], keys=[None, b"", b"k"], headers=[{}, {"x": b"1", "y": b""}, {"z": b"2"}], time_us=TIME_US
    )
    return ReadBatch(Batch(data), Glsn(10 + low), StreamId(2), Slot(7 + low), low, high)


def test_entries_have_every_field() -> None:
    assert read_batch().entries() == [
        Entry(Glsn(10), StreamId(2), Slot(7), b"a", None, {}, TIME),
        Entry(Glsn(11), StreamId(2), Slot(8), b"", b"", {"x": b"1", "y": b""}, TIME),
        Entry(Glsn(12), StreamId(2), Slot(9), b"ccc", b"k", {"z": b"2"}, TIME),
    ]
    assert all(isinstance(entry, Entry) for entry in read_batch())


@pytest.mark.parametrize(("low", "high"), [(0, 3), (1, 3), (0, 2), (1, 2), (2, 3)])
def test_a_part_of_a_batch_is_cut_in_every_column(low: int, high: int) -> None:
    part, whole = read_batch(low, high), read_batch()
    assert len(part) == high - low
    assert (part.first, part.last, part.slot) == (10 + low, 9 + high, 7 + low)
    assert part.entries() == whole.entries()[low:high]
    assert part.payloads() == whole.payloads()[low:high]
    assert part.keys() == whole.keys()[low:high]
    assert part.headers() == whole.headers()[low:high]


def test_entries_without_keys_and_headers_share_what_cannot_be_changed() -> None:
    plain = ReadBatch(Batch(encode_batch([b"a", b"b"])), Glsn(1), StreamId(1), Slot(0), 0, 2)
    first, second = plain.entries()
    assert first.key is None
    assert first.headers == {}
    assert isinstance(first.headers, dict)
    headers: Any = first.headers
    for change, arguments in (
        (headers.__setitem__, ("x", b"y")),
        (headers.update, ({},)),
        (headers.setdefault, ("x",)),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change(*arguments)
    assert second.headers == {}
    assert pickle.loads(pickle.dumps(first)) == first
    assert plain.headers() == [{}, {}]
    assert plain.keys() == [None, None]


def test_a_time_beyond_all_calendars_does_not_break_reading() -> None:
    assert time_of((1 << 64) - 1).year == 9999
    assert time_of(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_an_ack_names_its_positions() -> None:
    ack = Ack(Glsn(4), Glsn(6), StreamId(1))
    assert ack.glsn == ack.first == 4
    assert ack.last == 6
