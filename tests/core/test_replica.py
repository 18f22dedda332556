"""What a replica may do."""

import pytest

from varlog.base.errors import Gap, InvalidArgument, ReplicaFailed, Sealed
from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.core.replica import MOVES, ReplicaState, Verdict, judge_commit, refuse_slot, refuse_store


def binding(slot: int, glsn: int, count: int) -> Binding:
    return Binding(Slot(slot), Glsn(glsn), count)


@pytest.mark.parametrize(
    ("committed", "durable", "last_glsn_end", "commit", "verdict"),
    [
        (5, 10, 8, binding(5, 8, 5), Verdict.APPLY),
        (5, 10, 8, binding(5, 20, 2), Verdict.APPLY),
        (5, 10, 8, binding(0, 1, 5), Verdict.OLD),
        (5, 10, 8, binding(7, 30, 2), Verdict.MISSED),
        (5, 10, 8, binding(3, 30, 4), Verdict.MISSED),
        (5, 10, 8, binding(5, 8, 6), Verdict.BEYOND),
        (5, 10, 8, binding(5, 7, 2), Verdict.BEYOND),
    ],
)
def test_a_commit_is_applied_only_where_it_continues(
    committed: int, durable: int, last_glsn_end: int, commit: Binding, verdict: Verdict
) -> None:
    assert judge_commit(Slot(committed), Slot(durable), last_glsn_end, commit) is verdict


def test_an_empty_commit_makes_no_sense() -> None:
    with pytest.raises(InvalidArgument):
        judge_commit(Slot(0), Slot(0), 0, binding(0, 1, 0))


def test_stores_are_refused_by_state() -> None:
    assert refuse_store(ReplicaState.OPEN, Slot(3), settle=False) is None
    assert refuse_store(ReplicaState.SEALED, Slot(3), settle=True) is None
    sealed = refuse_store(ReplicaState.SEALED, Slot(3), settle=False)
    assert isinstance(sealed, Sealed)
    assert sealed.end == 3
    assert isinstance(refuse_store(ReplicaState.FINISHED, Slot(3), settle=True), Sealed)
    assert isinstance(refuse_store(ReplicaState.FAILED, Slot(3), settle=False), ReplicaFailed)


def test_a_store_beyond_the_end_is_a_gap() -> None:
    assert refuse_slot(Slot(3), Slot(3)) is None
    gap = refuse_slot(Slot(4), Slot(3))
    assert isinstance(gap, Gap)
    assert gap.expected == 3


def test_nothing_is_unsealed_and_nothing_failed_comes_back() -> None:
    for state, moves in MOVES.items():
        assert ReplicaState.OPEN not in moves
        assert state not in moves
    assert not MOVES[ReplicaState.FAILED]
