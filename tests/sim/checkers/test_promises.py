"""Checkers of what replicas hold and clients are promised (I8 on) fail each kind of bad history."""

import pytest
from tests.sim.checkers.story import Story

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


def under_a_sequencer(trimmed: int | None) -> Story:
    """Three entries, of which nobody can tell any more that there is no junk among them."""
    story = Story()
    story.chain(0).orderings = ["sequencer"]
    story.ack("ab", 1)
    story.unknown("c")
    if trimmed is not None:
        story.final("", trimmed=trimmed, tail=trimmed)
    return story


@pytest.mark.parametrize("trimmed", [None, 5])
def test_i9_a_gap_over_what_somebody_saw_where_junk_may_be(trimmed: int | None) -> None:
    story = under_a_sequencer(trimmed)
    story.subscription(1, [1, 3], "ac")
    assert [evidence[-42:] for evidence in story.violations("I9")] == ["passes over 2, where somebody saw an entry"]
    story = under_a_sequencer(trimmed)
    story.subscription(3, [5], "c")
    assert not story.violations("I9")


def test_i9_an_end_before_what_somebody_saw_where_junk_may_be() -> None:
    story = under_a_sequencer(None)
    story.subscription(1, [1], "a", stop=3)
    assert story.violations("I9")
    story = under_a_sequencer(None)
    story.subscription(1, [1], "a", stop=3, left=True)
    assert not story.violations("I9")


def test_i9_one_stream_passes_over_what_an_ack_says_is_in_it() -> None:
    story = Story()
    story.ack("ab", 1, stream=2)
    story.ack("c", 3)
    story.subscription(1, [1], "a", stream=2, stop=4)
    assert story.violations("I9")
    story = Story()
    story.ack("ab", 1, stream=2)
    story.ack("c", 3)
    story.subscription(1, [1, 2], "ab", stream=2, stop=4)
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


# ---------------------------------------------------------------- I11


def test_i11_a_seal_that_holds() -> None:
    story = Story()
    story.ack("ab", 1)
    story.seal(4)
    story.seal(4)
    story.ack("ab", 1)
    story.ack("c", 3, during=15)
    story.refused("d", "Sealed")
    story.subscription(1, [1, 2, 3], "abc")
    story.subscription(1, [1, 2, 3], "abc", stop=9)
    story.final("abc")
    story.replica("abc", state="finished")
    story.replica("abc", node=2, state="failed", excuse="its disk failed")
    assert not story.violations("I11")
    assert not story.violations("I9")


def test_i11_an_ack_beyond_the_end() -> None:
    story = Story()
    story.seal(2)
    story.ack("b", 2, during=5)
    assert story.violations("I11")


def test_i11_an_ack_to_an_append_that_began_later() -> None:
    story = Story()
    story.seal(3)
    story.ack("b", 2)
    assert story.violations("I11")


def test_i11_an_end_that_moves() -> None:
    story = Story()
    story.seal(3)
    story.seal(4)
    assert story.violations("I11")
    story = Story()
    story.seal(3)
    story.final("abc")
    assert story.violations("I11")


def test_i11_a_seal_that_is_gone() -> None:
    story = Story()
    story.seal(2)
    story.final("a", sealed=False)
    assert story.violations("I11")


def test_i11_a_seal_that_was_refused_or_never_asked_for() -> None:
    story = Story()
    story.refused_seal()
    story.ack("a", 1)
    story.final("a")
    assert not story.violations("I11")
    story = Story()
    story.refused_seal()
    story.final("a", sealed=True)
    assert story.violations("I11")
    story = Story()
    story.final("a", sealed=True)
    assert story.violations("I11")


def test_i11_a_member_that_does_not_finish() -> None:
    story = Story()
    story.seal(2)
    story.final("a")
    story.replica("a", state="sealed")
    assert story.violations("I11")


def test_i11_a_member_that_cannot_finish_because_the_end_of_its_stream_is_gone() -> None:
    story = Story()
    story.seal(3)
    story.replica("a", state="sealed", unfinished="the end of it was on one node alone")
    assert not story.violations("I11")


def test_i9_a_subscription_that_ends_before_the_sealed_log_does() -> None:
    story = Story()
    story.seal(4)
    story.subscription(1, [1, 2], "ab")
    story.final("abc")
    assert story.violations("I9")


def test_i9_a_subscription_that_ends_though_the_seal_was_refused() -> None:
    story = Story()
    story.refused_seal()
    story.subscription(1, [1, 2], "ab", stop=4)
    story.final("ab")
    assert story.violations("I9")


# ---------------------------------------------------------------- I12


def test_i12_a_chain_that_grows() -> None:
    story = Story()
    story.chain(0)
    story.ack("ab", 1)
    story.chain(3, 0)
    story.ack("c", 3, stream=2)
    story.ack("ab", 1)  # it was there already, and is told so again
    story.chain(3, 4, 0)
    story.chain(3, 4, 4, 0, changed=False)  # an empty segment is legal
    assert not story.violations("I12")


def test_i12_an_end_that_changes() -> None:
    story = Story()
    story.chain(3, 0)
    story.chain(4, 0)
    assert story.violations("I12")


def test_i12_segments_that_do_not_adjoin() -> None:
    story = Story()
    story.chain(3, 0).segments[1][1] = 4
    assert story.violations("I12")
    story = Story()
    story.chain(3, 0).segments[1][0] = 3
    assert story.violations("I12")
    story = Story()
    story.chain(0, 0)
    assert story.violations("I12")


def test_i12_a_replica_that_is_finished_elsewhere() -> None:
    story = Story()
    story.chain(3, 0)
    story.replica("ab", state="finished")
    story.replica("a", node=2, state="sealed")
    assert not story.violations("I12")
    story.replica("a", node=3, state="finished")
    story.replica("", node=1, stream=2, state="finished")
    assert story.violations("I12") == ["stream 1 on node 3 is finished with 1 slots, but by the chain it ends at 2"]


def test_i12_a_change_that_is_forgotten() -> None:
    story = Story()
    story.chain(3, 4, 0)
    story.chain(3, 0)
    assert story.violations("I12")


@pytest.mark.parametrize("changed", [True, False], ids=["by a change", "by asking"])
def test_i12_an_append_to_a_segment_that_has_ended(changed: bool) -> None:
    """Whoever was told so: a real client only asks."""
    story = Story()
    story.chain(3, 0, changed=changed)
    story.ack("b", 2, stream=1)
    (violation,) = story.violations("I12")
    assert "is in stream 1, which had ended" in violation


def test_i12_an_append_to_a_stream_that_has_ended_inside_its_segment() -> None:
    story = Story()
    story.ack("a", 1)
    story.chain(0, changed=False).streams = [[1, 1, 1], [2, 1, -1]]
    story.ack("b", 2, stream=2)
    story.ack("a", 1)  # it was there already, and is told so again
    assert not story.violations("I12")
    story.ack("c", 3, stream=1)
    assert story.violations("I12")


def test_i12_an_append_that_was_on_its_way_when_its_segment_ended() -> None:
    story = Story()
    story.chain(3, 0, changed=False)
    story.ack("b", 2, stream=1, during=5)
    assert not story.violations("I12")


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


def test_i13_what_is_archived_is_not_gone() -> None:
    story = Story()
    story.ack("abc", 1)
    story.trim(2, archived=True)
    story.read(2, "b")
    story.subscription(1, [1, 2, 3], "abc")
    story.final("abc")
    story.replica("abc", trimmed_glsn=2)
    assert not story.violations("I13")
    story.read_fails(2, "Trimmed", 3)
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


def test_i14_what_hangs() -> None:
    story = Story()
    hanging = [story.read_fails(1, "Timeout"), story.subscription(1, [], "", stop=1)]
    for operation in hanging:
        operation.must_end = True
    assert not story.violations("I14")
    for operation in hanging:
        operation.end = operation.end_time = None
    assert len(story.violations("I14")) == 2


def test_i14_a_replica_that_never_hears_of_a_commit() -> None:
    story = Story()
    story.expect(excuse="another node is gone")
    story.final("ab")
    story.replica("ab")
    story.replica("ab", node=2, committed=1)
    assert story.violations("I14")


# ---------------------------------------------------------------- lanes


def test_i14_a_stream_that_has_too_few_replicas() -> None:
    story = Story()
    expected = story.expect(excuse="it has ended")
    expected.replicas = 2
    story.final("")
    story.replica("", node=1, state="finished")
    assert story.violations("I14")
    story.replica("", node=2, state="failed", excuse="a sync failed")
    assert story.violations("I14")
    expected.thin = "there are no nodes left to copy to"
    assert not story.violations("I14")
    expected.thin = ""
    story.replica("", node=3, state="finished")
    assert not story.violations("I14")


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


# ---------------------------------------------------------------- numbers


def test_what_a_producer_is_told_to_be_in_the_log_is_there() -> None:
    story = Story()
    story.unknown("a")
    story.unknown("b")
    story.opening("ab")
    story.final("b")
    (found,) = story.violations("numbers")
    assert "a is nowhere" in found


@pytest.mark.parametrize(("payloads", "trimmed"), [("ab", 0), ("b", 1)])
def test_what_is_trimmed_may_have_been_there(payloads: str, trimmed: int) -> None:
    story = Story()
    story.unknown("ab")
    story.opening("ab")
    story.final(payloads, trimmed=trimmed)
    assert not story.violations("numbers")
