"""Where positions lie under `sequencer`, where a segment ends, and what of it is junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.core.ordering.sequencer import Stripes, end_of, first_open, junk_from

stripes_of_any_kind = st.builds(Stripes, st.integers(1, 1000).map(Glsn), st.integers(1, 9), st.integers(1, 5))


def test_a_unit_of_one_is_round_robin() -> None:
    stripes = Stripes(Glsn(1), unit=1, streams=2)
    assert [stripes.place(glsn) for glsn in range(1, 7)] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert [stripes.glsn(0, slot) for slot in range(5)] == [1, 3, 5, 7, 9]
    assert [stripes.glsn(1, slot) for slot in range(5)] == [2, 4, 6, 8, 10]


def test_a_stripe_goes_to_one_stream_before_the_next_has_its_turn() -> None:
    stripes = Stripes(Glsn(11), unit=4, streams=3)
    assert [stripes.place(glsn) for glsn in (11, 14, 15, 18, 19, 22, 23)] == [
        (0, 0),
        (0, 3),
        (1, 0),
        (1, 3),
        (2, 0),
        (2, 3),
        (0, 4),
    ]


@given(stripes_of_any_kind, st.integers(0, 300))
def test_every_position_has_a_place_of_its_own(stripes: Stripes, count: int) -> None:
    places = [stripes.place(stripes.base + offset) for offset in range(count)]
    assert [stripes.glsn(*place) for place in places] == [stripes.base + offset for offset in range(count)]
    for index in range(stripes.streams):
        slots = [slot for stream, slot in places if stream == index]
        assert slots == list(range(len(slots))), "of each stream, in order, without a gap"
        assert stripes.slots(index, stripes.base + count) == len(slots)


@given(stripes_of_any_kind, st.integers(0, 300))
def test_what_has_room_in_a_stripe_lies_in_one_stream_slot_by_slot(stripes: Stripes, offset: int) -> None:
    first = stripes.base + offset
    room = stripes.room(first)
    assert (room is None) == (stripes.streams == 1)
    index, slot = stripes.place(first)
    for step in range(room or stripes.unit + 3):
        assert stripes.place(first + step) == (index, slot + step)
    if room is not None:
        assert 0 < room <= stripes.unit
        assert stripes.place(first + room)[0] != index


@given(stripes_of_any_kind, st.data())
def test_bindings_are_continuous_and_cover_all_slots(stripes: Stripes, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, stripes.streams - 1))
    start = data.draw(st.integers(0, 40))
    end = data.draw(st.integers(start, 80))
    pieces = list(stripes.bindings(index, start, end))
    assert [slot for piece in pieces for slot in range(piece.slot, piece.slot_end)] == list(range(start, end))
    for piece in pieces:
        for offset in range(piece.count):
            assert stripes.place(piece.glsn + offset) == (index, piece.slot + offset)


@given(stripes_of_any_kind, st.data())
def test_the_first_open_position_is_the_lowest_that_some_stream_lacks(stripes: Stripes, data: st.DataObject) -> None:
    tails = [data.draw(st.integers(0, 12)) for _ in range(stripes.streams)]
    found = first_open(stripes, tails)
    there = [slot < tails[index] for index, slot in map(stripes.place, range(stripes.base, found + 1))]
    assert there == [True] * (found - stripes.base) + [False]


@given(stripes_of_any_kind, st.data())
def test_a_segment_ends_behind_the_last_position_that_may_have_been_acknowledged(
    stripes: Stripes, data: st.DataObject
) -> None:
    acknowledged = [data.draw(st.integers(0, 12)) for _ in range(stripes.streams)]
    end = end_of(stripes, acknowledged)
    for index, slots in enumerate(acknowledged):
        assert stripes.slots(index, end) >= slots, "none of them is cut off"
    if end > stripes.base:
        index, slot = stripes.place(end - 1)
        assert slot == acknowledged[index] - 1, "and nothing behind them is in"
    else:
        assert not any(acknowledged)


def test_an_empty_segment_ends_where_it_begins() -> None:
    stripes = Stripes(Glsn(77), unit=4, streams=2)
    assert end_of(stripes, [0, 0]) == first_open(stripes, [0, 0]) == 77
    assert stripes.slots(0, 77) == stripes.slots(1, 77) == stripes.slots(1, 5) == 0


@pytest.mark.parametrize(
    ("end", "tails", "junk"),
    [
        (8, (8, 8), None),
        (8, (8, 5), None),
        (8, (5, 3), 5),
        (8, (0,), 0),
        (8, (9, 9), None),
        (0, (0, 0), None),
    ],
)
def test_slots_before_the_end_that_no_sealed_member_has_are_junk(
    end: int, tails: tuple[int, ...], junk: int | None
) -> None:
    by_node = {NodeId(number): Slot(tail) for number, tail in enumerate(tails, 1)}
    assert junk_from(Slot(end), by_node) == junk
