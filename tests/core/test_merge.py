"""The merge of streams, against a sort of single entries."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn
from varlog.core.merge import InOrder, Merge

Range = tuple[int, int]


@st.composite
def logs(draw: Callable[..., object]) -> tuple[dict[int, list[Range]], int]:
    """A log cut into ranges that are dealt out to streams: stream -> its ranges; and the end of the log."""
    lengths = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 7)), max_size=30))
    streams: dict[int, list[Range]] = {}
    position = 1
    assert isinstance(lengths, list)
    for stream, length in lengths:
        streams.setdefault(stream, []).append((position, length))
        position += length
    return streams, position


def naive(streams: dict[int, list[Range]], start: int, stop: int | None) -> list[tuple[int, int]]:
    entries = [
        (position, stream)
        for stream, ranges in streams.items()
        for glsn, count in ranges
        for position in range(glsn, glsn + count)
    ]
    return sorted(entry for entry in entries if start <= entry[0] and (stop is None or entry[0] < stop))


def taken(merge: Merge[Range] | InOrder[Range]) -> list[tuple[int, int]]:
    found = []
    for piece in merge.take():
        glsn, count = piece.item
        assert piece.glsn == glsn + piece.low
        assert 0 <= piece.low < piece.high <= count
        found += [(glsn + index, piece.stream) for index in range(piece.low, piece.high)]
    return found


@given(logs(), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 150)), st.integers())
def test_equals_a_sort_whatever_the_arrival(
    log: tuple[dict[int, list[Range]], int], start: int, stop: int | None, seed: int
) -> None:
    streams, _ = log
    merge: Merge[Range] = Merge(Glsn(start), None if stop is None else Glsn(stop))
    arrivals = {stream: list(ranges) for stream, ranges in streams.items()}
    random = Random(seed)
    found: list[tuple[int, int]] = []
    while arrivals:
        stream = random.choice(sorted(arrivals))
        glsn, count = arrivals[stream].pop(0)
        if not arrivals[stream]:
            del arrivals[stream]
        merge.feed(stream, Glsn(glsn), count, (glsn, count))
        if random.random() < 0.5:
            found += taken(merge)
    found += taken(merge)
    assert found == naive(streams, start, stop)


@given(logs(), st.integers(0, 29))
def test_a_missing_range_holds_back_all_behind_it(log: tuple[dict[int, list[Range]], int], missing: int) -> None:
    streams, _ = log
    ordered = sorted((each, stream) for stream, ranges in streams.items() for each in ranges)
    if not ordered:
        return
    (gap, _), holder = ordered[missing % len(ordered)]
    merge: Merge[Range] = Merge(Glsn(1))
    for (glsn, count), stream in ordered:
        if stream != holder or glsn < gap:
            merge.feed(stream, Glsn(glsn), count, (glsn, count))
    assert [position for position, _ in taken(merge)] == list(range(1, gap))
    assert merge.next == gap
    assert merge.empty(holder)


def test_finishes_inside_a_range() -> None:
    merge: Merge[str] = Merge(Glsn(3), Glsn(5))
    assert merge.feed(1, Glsn(1), 10, "all")
    (piece,) = merge.take()
    assert (piece.glsn, piece.low, piece.high) == (3, 2, 4)
    assert merge.finished
    assert merge.take() == []


def test_the_stop_may_come_later() -> None:
    merge: Merge[str] = Merge(Glsn(1))
    merge.feed(1, Glsn(1), 2, "a")
    merge.take()
    assert not merge.finished
    merge.stop = Glsn(3)
    assert merge.finished


def test_what_lies_before_the_start_is_dropped() -> None:
    merge: Merge[str] = Merge(Glsn(10))
    assert not merge.feed(1, Glsn(1), 9, "old")
    assert merge.empty(1)
    assert merge.known_end == 10
    assert merge.feed(2, Glsn(12), 3, "ahead")
    assert merge.known_end == 15
    assert merge.take() == []


def test_two_holders_of_one_position_are_found() -> None:
    merge: Merge[str] = Merge(Glsn(1))
    merge.feed(1, Glsn(4), 1, "a")
    with pytest.raises(Corrupt, match="both hold position 4"):
        merge.feed(2, Glsn(4), 1, "b")


def test_ranges_that_overlap_are_found() -> None:
    merge: Merge[str] = Merge(Glsn(1))
    merge.feed(1, Glsn(1), 4, "a")
    merge.feed(2, Glsn(3), 1, "b")
    with pytest.raises(Corrupt, match="another stream held too"):
        merge.take()


def test_a_stream_that_goes_back_is_found() -> None:
    merge: Merge[str] = Merge(Glsn(1))
    merge.feed(1, Glsn(4), 2, "a")
    with pytest.raises(Corrupt, match="stream 1"):
        merge.feed(1, Glsn(5), 2, "b")


@given(logs(), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 150)), st.integers(0, 5))
def test_one_stream_alone_gives_its_part(
    log: tuple[dict[int, list[Range]], int], start: int, stop: int | None, every: int
) -> None:
    streams, end = log
    for stream, ranges in streams.items():
        alone: InOrder[Range] = InOrder(Glsn(start), None if stop is None else Glsn(stop))
        found: list[tuple[int, int]] = []
        for index, (glsn, count) in enumerate(ranges):
            alone.feed(stream, Glsn(glsn), count, (glsn, count))
            if every and index % every == 0:
                found += taken(alone)
        found += taken(alone)
        assert found == naive({stream: ranges}, start, stop)
        reaches = ranges[-1][0] + ranges[-1][1]
        assert alone.finished == (stop is not None and max(start, reaches) >= stop)
        assert end >= reaches


def test_one_stream_alone_drops_what_it_has_and_refuses_what_overlaps() -> None:
    alone: InOrder[str] = InOrder(Glsn(3))
    assert not alone.feed(1, Glsn(1), 2, "before")
    assert alone.empty(1)
    assert alone.feed(1, Glsn(2), 4, "across")
    assert not alone.feed(1, Glsn(2), 4, "again")
    with pytest.raises(Corrupt):
        alone.feed(1, Glsn(5), 4, "overlaps")
    assert [(piece.glsn, piece.low, piece.high) for piece in alone.take()] == [(3, 1, 4)]
