"""Every checker passes a good history and fails each kind of bad one."""

import pytest
from tests.sim.checkers.story import Story

from varlog.sim.checkers import CHECKERS, check_history


def good() -> Story:
    """A bit of everything, all of it right."""
    story = Story()
    story.ack("ab", 1)
    story.unknown("x")
    story.unknown("y")
    story.ack("c", 4)
    story.refused("r")
    story.read(1, "a")
    story.read_fails(9, "NotWritten", 4)
    story.read_fails(1, "Unavailable")
    story.tail(4)
    story.subscription(1, [1, 2, 3], "aby")
    story.subscription(2, [2, 3, 4], "byc")
    story.trim(1)
    story.read_fails(1, "Trimmed", 2)
    story.trim(2, done=False)
    story.find(20, 3)
    story.expect()
    story.expect(stream=2, excuse="its disk failed")
    story.ack("de", 5)
    story.subscription(3, [3, 4, 5, 6], "ycde", must_catch_up=True)
    story.final("bycde", trimmed=1, times=[10, 20, 30, 5, 30], first_slot=1)
    story.replica("abycde", trimmed_glsn=1)
    story.replica("abycde", node=2, trimmed_glsn=2)
    story.replica("bycde", node=3, first_slot=1, glsns=[2, 3, 4, 5, 6], committed=6, durable=6, trimmed_glsn=1)
    return story


@pytest.mark.parametrize("invariant", list(CHECKERS))
def test_a_good_history_passes(invariant: str) -> None:
    assert good().violations(invariant) == []


def test_a_good_history_passes_everything() -> None:
    assert check_history(good().history) == []


def test_violations_name_the_invariant_the_log_and_the_evidence() -> None:
    story = Story()
    story.ack("a", 1)
    story.final("")
    texts = [str(violation) for violation in check_history(story.history)]
    assert any(text.startswith("I1 violated in log 'l': c's append of a at 1..1") for text in texts)


# ---------------------------------------------------------------- I1


def test_i1_a_lost_entry() -> None:
    story = Story()
    story.ack("ab", 1)
    story.final("a")
    assert story.violations("I1")


def test_i1_wrong_bytes() -> None:
    story = Story()
    story.ack("ab", 1)
    story.final("ac")
    assert story.violations("I1")


def test_i1_a_known_position_that_reads_as_never_written() -> None:
    story = Story()
    story.ack("ab", 1)
    story.read_fails(1, "NotWritten", 0)
    story.final("ab")
    assert story.violations("I1")


def test_i1_trimmed_entries_are_not_lost() -> None:
    story = Story()
    story.ack("ab", 1)
    story.trim(1)
    story.final("b", trimmed=1)
    assert not story.violations("I1")


def test_i1_an_ack_of_the_wrong_length() -> None:
    story = Story()
    story.ack("ab", 1).last = 3
    assert story.violations("I1")


def test_i1_a_member_without_a_committed_entry() -> None:
    story = Story()
    story.ack("ab", 1)
    story.final("ab")
    story.replica("ab")
    story.replica("a", node=2)
    assert story.violations("I1")


def test_i1_a_member_with_other_bytes() -> None:
    story = Story()
    story.ack("ab", 1)
    story.final("ab")
    story.replica("ax", committed=0)
    assert story.violations("I1")


def test_i1_a_replica_fails_only_with_its_disk() -> None:
    story = Story()
    story.replica("", state="failed", trouble="Corrupt")
    assert story.violations("I1")
    story = Story()
    story.replica("", state="failed", trouble="ReplicaFailed", excuse="a sync failed")
    assert not story.violations("I1")


# ---------------------------------------------------------------- I2


@pytest.mark.parametrize("witness", ["read", "subscription", "final", "replica", "ack"])
def test_i2_two_values(witness: str) -> None:
    story = Story()
    story.ack("ab", 1)
    if witness == "read":
        story.read(2, "z")
    elif witness == "subscription":
        story.subscription(1, [1, 2], "az")
    elif witness == "final":
        story.final("az")
    elif witness == "replica":
        story.replica("az")
    else:
        story.ack("z", 2)
    assert story.violations("I2")


# ---------------------------------------------------------------- I3


def test_i3_a_gap() -> None:
    story = Story()
    story.final("ab", glsns=[1, 3])
    assert story.violations("I3")


def test_i3_a_scan_that_ends_early() -> None:
    story = Story()
    story.final("ab", tail=3)
    assert story.violations("I3")


def test_i3_a_gap_behind_the_trim_point() -> None:
    story = Story()
    story.final("ab", trimmed=2, glsns=[4, 5])
    assert story.violations("I3")


def test_i3_one_position_for_two_slots() -> None:
    story = Story()
    story.replica("ab")
    story.replica("cd", stream=2, glsns=[2, 3])
    assert story.violations("I3")


def test_i3_falling_positions_in_a_stream() -> None:
    story = Story()
    story.replica("ab", glsns=[2, 1])
    assert story.violations("I3")


# ---------------------------------------------------------------- I4


def test_i4_a_later_append_with_a_lower_position() -> None:
    story = Story()
    story.ack("a", 2)
    story.ack("b", 1)
    assert story.violations("I4")


def test_i4_appends_that_overlap_may_come_in_any_order() -> None:
    story = Story()
    story.ack("a", 2)
    story.ack("b", 1, during=5)
    assert not story.violations("I4")


def test_i4_also_holds_for_appends_with_unknown_outcome() -> None:
    story = Story()
    story.ack("a", 2)
    story.unknown("b")
    story.final("ba")
    assert story.violations("I4")


def test_i4_a_position_below_a_known_tail() -> None:
    story = Story()
    story.tail(5)
    story.ack("a", 5)
    assert story.violations("I4")


def test_i4_a_retry_may_have_the_place_of_the_first_try() -> None:
    story = Story()
    story.unknown("a")
    story.ack("b", 2)
    story.ack("a", 1)
    assert not story.violations("I4")


# ---------------------------------------------------------------- I5


def test_i5_an_entry_nobody_sent() -> None:
    story = Story()
    story.final("a")
    assert story.violations("I5")


def test_i5_an_entry_twice() -> None:
    story = Story()
    story.ack("a", 1)
    story.final("aa")
    assert story.violations("I5")


def test_i5_two_acks_for_one_send_at_two_places() -> None:
    story = Story()
    story.ack("a", 1)
    story.ack("a", 2)
    assert story.violations("I5")


def test_i5_twice_on_a_replica() -> None:
    story = Story()
    story.ack("a", 1)
    story.replica("aa", committed=1)
    assert story.violations("I5")


def test_i5_seen_before_it_was_sent() -> None:
    story = Story()
    story.read(1, "a")
    story.ack("a", 1)
    assert story.violations("I5")


def test_i5_the_same_answer_to_a_retry_is_right() -> None:
    story = Story()
    story.unknown("a")
    story.ack("a", 1)
    story.ack("a", 1)
    story.final("a")
    assert not story.violations("I5")


# ---------------------------------------------------------------- I6


def test_i6_a_refused_append_in_the_log() -> None:
    story = Story()
    story.refused("a")
    story.final("a")
    assert story.violations("I6")


def test_i6_a_refused_append_that_a_subscriber_saw() -> None:
    story = Story()
    story.refused("a")
    story.subscription(1, [1], "a")
    assert story.violations("I6")


def test_i6_a_refused_append_committed_on_a_replica() -> None:
    story = Story()
    story.refused("a")
    story.replica("a")
    assert story.violations("I6")


def test_i6_what_is_stored_but_never_bound_is_not_in_the_log() -> None:
    story = Story()
    story.refused("a")
    story.replica("a", committed=0)
    assert not story.violations("I6")


# ---------------------------------------------------------------- I7


def test_i7_half_a_batch() -> None:
    story = Story()
    story.unknown("abc")
    story.final("ab")
    assert story.violations("I7")


def test_i7_a_batch_torn_apart() -> None:
    story = Story()
    story.unknown("ab")
    story.ack("x", 2)
    story.final("axb")
    assert story.violations("I7")


def test_i7_a_batch_in_the_wrong_order() -> None:
    story = Story()
    story.unknown("ab")
    story.final("ba")
    assert story.violations("I7")


def test_i7_a_batch_over_two_streams() -> None:
    story = Story()
    story.unknown("ab")
    story.final("ab", streams=[1, 2])
    assert story.violations("I7")


def test_i7_a_trim_may_cut_a_batch() -> None:
    story = Story()
    story.ack("abc", 1)
    story.trim(2)
    story.final("c", trimmed=2)
    assert not story.violations("I7")


def test_i7_a_trim_excuses_no_hole() -> None:
    story = Story()
    story.ack("abc", 1)
    story.trim(1)
    story.final("xc", trimmed=1)
    assert story.violations("I7")


# ---------------------------------------------------------------- I8


def test_i8_two_payloads_in_one_slot() -> None:
    story = Story()
    story.replica("ab")
    story.replica("ax", node=2)
    assert story.violations("I8")


def test_i8_two_positions_for_one_slot() -> None:
    story = Story()
    story.replica("ab")
    story.replica("ab", node=2, glsns=[1, 3])
    assert story.violations("I8")


def test_i8_two_backups_that_disagree_with_the_primary_elsewhere() -> None:
    story = Story()
    story.replica("abc")
    story.replica("abc", node=2)
    story.replica("xc", node=3, first_slot=1, glsns=[2, 3], durable=3)
    assert story.violations("I8")


def test_i8_a_backup_that_has_more() -> None:
    story = Story()
    story.replica("a")
    story.replica("ab", node=2, committed=1)
    assert story.violations("I8")


def test_i8_a_failed_replica_proves_nothing() -> None:
    story = Story()
    story.replica("a")
    story.replica("xyz", node=2, state="failed")
    assert not story.violations("I8")


# ---------------------------------------------------------------- I9


@pytest.mark.parametrize("glsns", [[1, 3], [1, 1], [2], [1, 2, 1], [0, 1]])
def test_i9_a_gap_a_repeat_or_a_wrong_beginning(glsns: list[int]) -> None:
    story = Story()
    story.subscription(1, glsns, "x" * len(glsns))
    assert story.violations("I9")


def test_i9_one_stream_has_gaps_where_others_are() -> None:
    story = Story()
    story.subscription(1, [2, 4], "bd", stream=2)
    story.final("abcde", streams=[1, 2, 1, 2, 1])
    assert not story.violations("I9")


@pytest.mark.parametrize("glsns", [[2, 3], [4], [4, 2], [2, 4, 5]])
def test_i9_one_stream_with_a_gap_or_an_entry_of_another(glsns: list[int]) -> None:
    story = Story()
    story.subscription(1, glsns, "x" * len(glsns), stream=2)
    story.final("abcde", streams=[1, 2, 1, 2, 1])
    assert story.violations("I9")


def test_i9_a_bounded_scan_that_ends_early_or_late() -> None:
    for glsns in ([1], [1, 2, 3]):
        story = Story()
        story.subscription(1, glsns, "x" * len(glsns), stop=3)
        assert story.violations("I9")
    story = Story()
    story.subscription(1, [1, 2], "ab", stop=3)
    assert not story.violations("I9")


# ---------------------------------------------------------------- I10


def test_i10_a_stale_tail() -> None:
    story = Story()
    story.ack("ab", 1)
    story.tail(1)
    assert story.violations("I10")


def test_i10_an_append_during_the_call_need_not_be_seen() -> None:
    story = Story()
    story.ack("ab", 1)
    story.tail(1, during=15)
    assert not story.violations("I10")


def test_i10_a_tail_that_goes_back() -> None:
    story = Story()
    story.tail(3)
    story.tail(2)
    assert story.violations("I10")


def test_i10_a_tail_beyond_the_log() -> None:
    story = Story()
    story.tail(3)
    story.final("ab")
    assert story.violations("I10")


# ---------------------------------------------------------------- I13


def test_i13_a_read_below_the_trim_point() -> None:
    story = Story()
    story.trim(2)
    story.read(2, "b")
    assert story.violations("I13")


def test_i13_trimmed_without_a_trim() -> None:
    story = Story()
    story.trim(2)
    story.read_fails(3, "Trimmed", 4)
    assert story.violations("I13")


def test_i13_a_subscription_below_the_trim_point() -> None:
    story = Story()
    story.trim(2)
    story.subscription(1, [1], "a")
    assert story.violations("I13")


def test_i13_the_log_forgets_a_trim_or_trims_too_much() -> None:
    for trimmed in (1, 3):
        story = Story()
        story.trim(2)
        story.final("x", trimmed=trimmed)
        assert story.violations("I13")


def test_i13_a_member_that_does_not_have_an_answered_trim() -> None:
    story = Story()
    story.trim(2)
    story.final("c", trimmed=2)
    story.replica("abc", trimmed_glsn=2)
    story.replica("abc", node=2, trimmed_glsn=1)
    assert story.violations("I13")


# ---------------------------------------------------------------- I14


def test_i14_a_stream_that_stays_silent() -> None:
    story = Story()
    story.ack("a", 1)
    story.expect()
    assert story.violations("I14")


def test_i14_an_ack_that_comes_too_late_or_elsewhere() -> None:
    story = Story()
    story.expect(bound=15.0)
    story.ack("a", 1)
    assert story.violations("I14")
    story = Story()
    story.expect()
    story.ack("a", 1, stream=2)
    assert story.violations("I14")


def test_i14_a_subscription_that_does_not_catch_up() -> None:
    for more in ({}, {"error": "Unavailable"}):
        story = Story()
        story.subscription(1, [1], "a", must_catch_up=True, **more)
        story.final("ab")
        assert story.violations("I14")


def test_i14_a_replica_that_never_hears_of_a_commit() -> None:
    story = Story()
    story.expect(excuse="another node is gone")
    story.final("ab")
    story.replica("ab")
    story.replica("ab", node=2, committed=1)
    assert story.violations("I14")


# ---------------------------------------------------------------- lanes


def test_lanes_out_of_order() -> None:
    story = Story()
    story.ack("a", 2).lane = "p"
    story.ack("b", 1, during=5).lane = "p"
    assert not story.violations("lanes")
    story = Story()
    story.ack("a", 2).lane = "p"
    story.ack("b", 1, during=15).lane = "p"
    assert story.violations("lanes")


def test_lanes_are_kept_apart() -> None:
    story = Story()
    story.ack("a", 2).lane = "p"
    story.ack("b", 1, during=15).lane = "q"
    story.ack("c", 3)
    story.ack("d", 4).lane = "p"
    assert not story.violations("lanes")


# ---------------------------------------------------------------- find


def test_find_not_the_first() -> None:
    story = Story()
    story.ack("abc", 1)
    story.find(20, 3)
    story.final("abc", times=[10, 20, 30])
    assert story.violations("find")


def test_find_too_early() -> None:
    story = Story()
    story.ack("abc", 1)
    story.find(20, 1)
    story.final("abc", times=[10, 20, 30])
    assert story.violations("find")


def test_find_need_not_see_what_came_during_the_call() -> None:
    story = Story()
    story.find(20, 3)
    story.ack("abc", 1)
    story.final("abc", times=[10, 20, 30])
    assert not story.violations("find")


def test_find_may_answer_one_past_the_tail() -> None:
    story = Story()
    story.ack("ab", 1)
    story.find(99, 3)
    story.ack("c", 3)
    story.final("abc", times=[10, 20, 30])
    assert not story.violations("find")


def test_find_ignores_what_is_trimmed() -> None:
    story = Story()
    story.ack("abc", 1)
    story.trim(2)
    story.find(15, 3)
    story.final("c", trimmed=2, times=[30])
    assert not story.violations("find")
