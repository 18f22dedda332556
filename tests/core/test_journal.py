"""What the leader of a journal has numbered, committed and kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.ids import NodeId, Slot
from varlog.base.invariant import InvariantBroken
from varlog.core.ordering.journal import Numbered, Tenure
from varlog.core.ordering.leader import tail_between

MEMBERS = [NodeId(1), NodeId(2), NodeId(3)]


def stored(*sizes: int, keep: int = 1000) -> Tenure[str]:
    """A tenure with batches of one entry each, of so many bytes."""
    tenure = Tenure[str](MEMBERS, 2, keep)
    for number, size in enumerate(sizes):
        tenure.add(f"b{number}", 1, bytes(size))
    return tenure


def names(found: list[Numbered[str]]) -> list[str]:
    return [batch for _, _, batch in found]


def test_what_two_of_three_have_is_committed_in_order() -> None:
    tenure = stored(10, 10, 10)
    assert not tenure.has(MEMBERS[0], Slot(3))
    assert names(tenure.has(MEMBERS[1], Slot(1))) == ["b0"]
    assert not tenure.has(MEMBERS[2], Slot(1))
    assert names(tenure.has(MEMBERS[2], Slot(3))) == ["b1", "b2"]
    assert tenure.committed == tenure.end == 3


def test_a_tail_that_moves_back_changes_nothing() -> None:
    tenure = stored(10, 10)
    tenure.has(MEMBERS[0], Slot(2))
    tenure.has(MEMBERS[1], Slot(2))
    assert not tenure.has(MEMBERS[1], Slot(0))
    assert tenure.committed == 2


def test_a_member_cannot_have_more_than_was_stored() -> None:
    with pytest.raises(InvariantBroken):
        stored(10).has(MEMBERS[0], Slot(2))


def test_what_a_member_lacks_is_kept_as_far_as_there_is_room() -> None:
    tenure = stored(10, 10, 10, keep=20)
    for member in MEMBERS[:2]:
        tenure.has(member, Slot(3))
    assert tenure.after(Slot(1), 1000) == (3, [bytes(10)] * 2)
    assert tenure.after(Slot(1), 1) == (2, [bytes(10)])
    assert tenure.dropped(Slot(0)), "the oldest had to go"
    assert not tenure.dropped(Slot(1))
    tenure.has(MEMBERS[2], Slot(3))
    assert tenure.after(Slot(1), 1000) == (1, []), "all have it"
    assert not tenure.dropped(Slot(3))


def test_what_ends_beyond_the_end_of_the_segment_is_given_to_nobody() -> None:
    tenure = stored(10, 10, 10)
    assert tenure.after(Slot(0), 1000, Slot(2)) == (2, [bytes(10)] * 2)
    assert tenure.after(Slot(2), 1000, Slot(2)) == (2, [])
    tenure.add("pair", 2, bytes(10))
    assert tenure.after(Slot(3), 1000, Slot(4)) == (3, [])


def test_what_is_not_committed_is_never_dropped() -> None:
    tenure = stored(10, 10, 10, keep=0)
    tenure.has(MEMBERS[0], Slot(3))
    assert tenure.after(Slot(0), 1000) == (3, [bytes(10)] * 3)


def test_the_end_of_a_segment_decides_what_is_in_the_log() -> None:
    tenure = stored(10, 10, 10)
    for member in MEMBERS[:2]:
        tenure.has(member, Slot(1))
    inside, outside = tenure.finish(Slot(2))
    assert (names(inside), names(outside)) == (["b1"], ["b2"])
    with pytest.raises(InvariantBroken):
        tenure.finish(Slot(0))


@given(st.lists(st.tuples(st.sampled_from(MEMBERS), st.integers(0, 20)), max_size=40), st.integers(1, 3))
def test_nothing_is_committed_that_fewer_members_have(tails: list[tuple[NodeId, int]], ack: int) -> None:
    tenure = Tenure[int](MEMBERS, ack, 5)
    for number in range(20):
        tenure.add(number, 1, b"x")
    highest = dict.fromkeys(MEMBERS, 0)
    seen: list[int] = []
    for member, tail in tails:
        seen += [batch for _, _, batch in tenure.has(member, Slot(tail))]
        highest[member] = max(highest[member], tail)
        assert tenure.committed == sorted(highest.values(), reverse=True)[ack - 1]
        for each in MEMBERS:
            if not tenure.dropped(Slot(highest[each])):
                assert tenure.after(Slot(highest[each]), 1000)[0] == 20
    assert seen == list(range(tenure.committed))


@given(st.lists(st.integers(0, 20), min_size=5, max_size=5), st.integers(2, 5), st.integers(0, 4))
def test_a_tail_lies_between_what_is_committed_and_what_may_be(all_tails: list[int], ack: int, silent: int) -> None:
    """Whoever is silent may have anything: what was acknowledged is never above the second bound."""
    silent = min(silent, ack - 1)
    tails = [Slot(tail) for tail in all_tails]
    acknowledged = sorted(tails, reverse=True)[ack - 1]
    least, most = tail_between(tails[silent:], 5, ack)
    assert least <= acknowledged <= most
    if not silent:
        assert least == most
