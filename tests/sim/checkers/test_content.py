"""Every checker passes a good history; those of what the log holds (I1 to I7) fail each kind of bad one."""

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


def test_i1_a_member_that_begins_behind_what_was_trimmed() -> None:
    story = Story()
    story.ack("abc", 1)
    story.trim(1)
    story.final("bc", trimmed=1, first_slot=1)
    story.replica("bc", first_slot=1, trimmed_glsn=1, glsns=[2, 3], committed=3, durable=3)
    assert not story.violations("I1")
    story.replica("c", node=2, first_slot=2, trimmed_glsn=1, glsns=[3], committed=3, durable=3)
    assert len(story.violations("I1")) == 1


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
