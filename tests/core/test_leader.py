"""The arithmetic of the `leader` ordering: what is committed, who must be sealed, where a segment ends."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.ids import Slot
from varlog.base.invariant import InvariantBroken
from varlog.core.ordering import leader


def slots(*numbers: int) -> list[Slot]:
    return [Slot(number) for number in numbers]


def test_what_enough_members_have_is_committed() -> None:
    assert leader.committed(slots(5, 3, 9), 1) == 9
    assert leader.committed(slots(5, 3, 9), 2) == 5
    assert leader.committed(slots(5, 3, 9), 3) == 3
    assert leader.committed(slots(5), 2) == 0, "one that has not spoken has nothing"


def test_a_silent_member_may_have_anything() -> None:
    assert leader.end_of(slots(10, 8, 12), members=3, ack=2) == 10
    assert leader.end_of(slots(10, 8), members=3, ack=2) == 10, "with the silent one, two may have slot 9"
    assert leader.end_of(slots(10), members=3, ack=3) == 10
    with pytest.raises(InvariantBroken):
        leader.end_of(slots(10), members=3, ack=2)


@pytest.mark.parametrize("members", range(1, 8))
def test_no_quorum_that_is_left_can_acknowledge(members: int) -> None:
    for ack in range(1, members + 1):
        sealed = leader.seal_quorum(members, ack)
        assert members - sealed < ack, "those that are not sealed are too few"
        assert members - (sealed - 1) >= ack, "and with one sealed less they would not be"
    assert leader.default_ack(members) * 2 > members


@given(st.data())
def test_an_end_loses_nothing_acknowledged_and_some_sealed_member_has_all_of_it(data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 5))
    ack = data.draw(st.integers(1, members))
    tails = data.draw(st.lists(st.integers(0, 6), min_size=members, max_size=members))
    acknowledged = sorted(tails, reverse=True)[ack - 1]
    for count in range(leader.seal_quorum(members, ack), members + 1):
        for sealed in combinations(tails, count):
            end = leader.end_of(slots(*sealed), members, ack)
            assert acknowledged <= end <= max(sealed)


def test_the_leader_knows_best_what_it_has_acknowledged() -> None:
    assert leader.end_of(slots(12), members=2, ack=2, acknowledged=Slot(8)) == 8, "the rest was never acknowledged"
    assert leader.end_of(slots(12, 10), members=3, ack=2, acknowledged=Slot(8)) == 10, "two have it: it may stay"
    assert leader.end_of(slots(12, 8), members=3, ack=2, acknowledged=Slot(11)) == 11, "with the silent one"
