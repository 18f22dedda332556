"""The test of the test: every planted bug is caught within the number of seeds stated here.

Only seeds whose weather can show a bug at all are tried and counted (one that is about trims needs
trims). What catches a bug is said too, so that a bug caught by accident is noticed: "defect" stands
for an assertion or an unhandled error of the production code.
"""

import gc
from collections.abc import Iterator
from itertools import count, islice

import pytest

from varlog.base.errors import InvalidArgument
from varlog.sim.bugs import BUGS
from varlog.sim.climate import draw
from varlog.sim.run import Result, prepare, run_seed

CAUGHT_WITHIN: dict[str, int] = {
    "ack_on_replication": 20,
    "archive_ignored": 20,
    "archive_recorded_blindly": 80,
    "answer_counts_for_all": 40,
    "appended_again": 20,
    "acked_before_the_last": 20,
    "binding_reported_early": 80,
    "chain_answers_early": 80,
    "commit_out_of_turn": 80,
    "commits_told_once": 20,
    "copy_not_synced": 60,
    "cut_announced_early": 20,
    "cut_announced_out_of_turn": 60,
    "deposed_leader_writes": 60,
    "drain_forgotten": 40,
    "empty_has_no_end": 40,
    "end_at_the_first_hole": 40,
    "end_before_the_last_cut": 60,
    "end_told_to_nobody": 20,
    "end_without_a_fence": 70,
    "ends_where_the_node_does": 100,
    "fenced_leader_acks": 40,
    "filled_behind_the_head": 20,
    "finished_without_settling": 20,
    "forwarded_as_new": 150,
    "goes_on_behind_a_hole": 150,
    "half_copy_counts": 40,
    "history_dropped_early": 20,
    "junk_before_the_record": 120,
    "junk_by_each_member": 30,
    "leader_acks_alone": 20,
    "member_replaced_inside": 60,
    "merge_does_not_wait": 20,
    "missing_report_ignored": 20,
    "primary_asks_nobody": 150,
    "producers_forgotten": 60,
    "released_ahead": 100,
    "read_at_the_head": 80,
    "restarted_leader_goes_on": 40,
    "names_are_everybodys": 20,
    "pushed_over_a_gap": 20,
    "restarted_sequencer_goes_on": 20,
    "retry_with_new_identity": 20,
    "same_again_is_taken": 20,
    "seal_overtakes_stores": 40,
    "seal_quorum_too_small": 60,
    "sealed_member_keeps_all": 20,
    "seam_passed_over": 20,
    "segment_goes_on_under_another": 20,
    "sent_again_unseen": 20,
    "silent_members_have_nothing": 20,
    "rot_passed_over": 60,
    "stale_tail": 20,
    "stored_over_a_gap": 20,
    "stray_cut_taken": 140,
    "tail_of_a_sealed_segment": 60,
    "too_little_kept": 80,
    "tail_without_the_silent": 100,
    "taken_is_taken_for_written": 20,
    "trim_answered_early": 100,
    "trimmed_beyond_the_point": 20,
    "two_acknowledge": 20,
    "unanswered_cut_announced": 110,
    "unsynced_tail_reported": 20,
}
"""Seeds, of those that can show the bug; about four times what it took when this was written."""

EVIDENCE: dict[str, set[str]] = {
    "ack_on_replication": {"I1", "I2", "I4", "I5", "I10"},
    "archive_ignored": {"I13"},
    "archive_recorded_blindly": {"I1", "I9", "I13", "I14"},
    "answer_counts_for_all": {"I1", "I2", "I3", "I10", "defect"},
    "appended_again": {"I5", "I6"},
    "acked_before_the_last": {"I1", "I2", "I3", "I4"},
    "binding_reported_early": {"I14"},
    "chain_answers_early": {"I1", "I2", "I3", "I8", "status"},
    "commit_out_of_turn": {"I1", "I2", "I3", "I8", "I9", "I14", "defect"},
    "commits_told_once": {"I11", "I14"},
    "copy_not_synced": {"I1", "I14", "defect"},
    "cut_announced_early": {"I1", "I2", "I4", "I10", "I14", "defect"},
    "cut_announced_out_of_turn": {"I1", "I2", "I3", "I8", "I9", "I10", "I14", "defect"},
    "deposed_leader_writes": {"I1", "I2", "I4", "I10", "I14", "defect", "status"},
    "drain_forgotten": {"I14"},
    "empty_has_no_end": {"I14"},
    "end_at_the_first_hole": {"I1", "I2", "I3", "I10"},
    "end_before_the_last_cut": {"I1", "I11", "defect"},
    "end_told_to_nobody": {"I14"},
    "end_without_a_fence": {"I1", "I2", "I3", "defect"},
    "ends_where_the_node_does": {"I9", "I14"},
    "fenced_leader_acks": {"I1", "I2", "I3", "I4", "I10"},
    "filled_behind_the_head": {"I2", "I6", "I8", "I9"},
    "finished_without_settling": {"I1", "I8", "I14"},
    "forwarded_as_new": {"I14", "status"},
    "goes_on_behind_a_hole": {"numbers"},
    "half_copy_counts": {"I14", "status"},
    "history_dropped_early": {"I11", "I14", "status"},
    "junk_before_the_record": {"I1", "I2", "I8", "I9", "I14"},
    "junk_by_each_member": {"I1", "I2", "I3", "I6", "I8", "I9"},
    "leader_acks_alone": {"I1", "I2", "I3"},
    "member_replaced_inside": {"I1", "I14", "status"},
    "merge_does_not_wait": {"I9", "defect"},
    "missing_report_ignored": {"I1", "I6", "I14", "status"},
    "primary_asks_nobody": {"I1", "I2", "I5", "I8", "I14", "defect"},
    "producers_forgotten": {"I5", "I6"},
    "released_ahead": {"I1", "I2", "I9", "I10", "I11"},
    "names_are_everybodys": {"I5"},
    "restarted_leader_goes_on": {"I1", "I2", "I4", "I8", "I10", "defect", "status"},
    "pushed_over_a_gap": {"I1", "I2", "I8", "I14", "defect", "status"},
    "retry_with_new_identity": {"I5", "I6"},
    "same_again_is_taken": {"I5"},
    "seal_overtakes_stores": {"I1", "I2", "I8"},
    "seal_quorum_too_small": {"I1", "I2", "I3"},
    "sealed_member_keeps_all": {"I2", "I8", "I12"},
    "seam_passed_over": {"I1", "I3", "I9"},
    "too_little_kept": {"I13"},
    "segment_goes_on_under_another": {"I1", "I2", "I4", "I8", "defect"},
    "silent_members_have_nothing": {"I1", "I2", "I3", "I10", "defect"},
    "rot_passed_over": {"I1", "I11", "I14", "defect"},
    "stale_tail": {"I10"},
    "stored_over_a_gap": {"I1", "I2", "I8", "defect"},
    "stray_cut_taken": {"I1", "I2", "I3", "I8", "I9", "I11", "I14", "defect", "status"},
    "tail_of_a_sealed_segment": {"I4", "I10"},
    "tail_without_the_silent": {"I1", "I10"},
    "read_at_the_head": {"I1", "I2", "I3", "I6", "I10"},
    "restarted_sequencer_goes_on": {"I1", "I10"},
    "sent_again_unseen": {"I5", "I6"},
    "taken_is_taken_for_written": {"I1", "I2"},
    "trim_answered_early": {"I13"},
    "trimmed_beyond_the_point": {"I13"},
    "two_acknowledge": {"I1", "I2", "I3", "I4", "I10"},
    "unanswered_cut_announced": {"I1", "I2", "I3", "I8", "I9", "I10", "I14", "defect"},
    "unsynced_tail_reported": {"I1", "I2", "I4", "I8", "I14", "defect", "status"},
}


def test_the_lists_are_complete() -> None:
    assert set(CAUGHT_WITHIN) == set(EVIDENCE) == set(BUGS)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """What else this process has loaded is kept out of the way of the garbage collector."""
    prepare()
    yield
    gc.unfreeze()


LONGEST_FIRST: list[str] = sorted(CAUGHT_WITHIN, key=CAUGHT_WITHIN.__getitem__, reverse=True)


@pytest.mark.parametrize("name", LONGEST_FIRST)
def test_a_planted_bug_is_caught(name: str) -> None:
    result = _hunt(name, CAUGHT_WITHIN[name])
    assert result is not None, f"{name} was not caught by {CAUGHT_WITHIN[name]} seeds"
    assert set(result.invariants) & EVIDENCE[name], result.describe()


def _hunt(name: str, most: int) -> Result | None:
    """A seed that catches it, of the first so many that can; those that have least to play are tried first."""
    able = islice((seed for seed in count(1) if BUGS[name].shows(draw(seed))), most)
    for seed in sorted(able, key=_work):
        result = run_seed(seed, plant=name)
        if not result.ok:
            return result
    return None


def _work(seed: int) -> float:
    shape = draw(seed).shape
    return shape.clients * shape.operations_per_second * shape.chaos_seconds


def test_bugs_are_gone_when_their_run_is_over() -> None:
    name = "stale_tail"
    caught = _hunt(name, CAUGHT_WITHIN[name])
    assert caught is not None
    assert run_seed(caught.seed).ok


def test_an_unknown_bug_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="stale_tail"):
        run_seed(1, plant="a bug of another zoo")
