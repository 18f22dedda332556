"""Who names the position of an entry is told rightly that it is there, that it cannot be, or that none can."""

import pytest
from tests.sim.checkers.story import Story

from varlog.sim.history import JUNK, Append, Chain


def named(append: Append, position: int, tail: int = 0) -> Append:
    """It named its position; `tail` is the one that a Conflict told of."""
    append.expect, append.value = position, tail
    return append


def told(story: Story, *ends: int, orderings: str = "sequencer") -> Chain:
    """Somebody is told of the chain, each segment with one stream."""
    chain = story.chain(*ends)
    chain.orderings = orderings.split()
    return chain


# ---------------------------------------------------------------- where it is


def test_an_ack_at_the_position_named() -> None:
    story = Story()
    named(story.ack("ab", 1), 1)
    assert not story.violations("conditional")
    named(story.ack("c", 4), 3)
    assert "but 3 was expected" in story.violations("conditional")[0]


@pytest.mark.parametrize("position", [1, 2])
def test_nobody_knows_and_it_is_elsewhere(position: int) -> None:
    story = Story()
    named(story.unknown("xy"), position)
    story.final("axy")
    assert bool(story.violations("conditional")) == (position == 1)


@pytest.mark.parametrize("ordering", ["cut", "leader", "sequencer"])
def test_an_ack_under_an_ordering_that_cannot_do_it(ordering: str) -> None:
    story = Story()
    named(story.ack("a", 1), 1)
    told(story, 0, orderings=ordering)
    assert bool(story.violations("conditional")) == (ordering != "sequencer")


# ---------------------------------------------------------------- Conflict


def conflict(position: int, tail: int, *, first: str = "ab", then: str = "") -> list[str]:
    """The log ends behind `first`, a conditional append is refused, and `then` is appended."""
    story = Story()
    told(story, 0)
    for glsn, payload in enumerate(first, 1):
        story.ack(payload, glsn)
    named(story.refused("x", "Conflict"), position, tail)
    for glsn, payload in enumerate(then, len(first) + 1):
        story.ack(payload, glsn)
    story.final(first + then)
    return story.violations("conditional")


def test_a_conflict_where_the_position_is_taken_or_too_far() -> None:
    assert not conflict(2, 2)
    assert not conflict(4, 2)
    assert not conflict(4, 2, then="cde")


def test_a_conflict_that_refutes_itself() -> None:
    assert "which is where it was expected" in conflict(3, 2)[0]


def test_a_conflict_with_a_tail_that_was_passed() -> None:
    assert "position 2 had been seen before it began" in conflict(4, 1)[0]


def test_a_conflict_that_was_met_the_first_time() -> None:
    for payload in "xy":
        story = Story()
        named(story.unknown("x"), 1)
        story.ack("ab", 1)
        named(story.refused(payload, "Conflict"), 1, 1)
        assert bool(story.violations("conditional")) == (payload == "y")


@pytest.mark.parametrize("then", ["", "c"])
def test_a_conflict_for_a_position_that_was_free(then: str) -> None:
    assert "3 was free all the while" in conflict(3, 3, then=then)[0]


def test_a_conflict_with_what_was_under_way() -> None:
    story = Story()
    told(story, 0)
    story.ack("ab", 1)
    begun = story.now
    named(story.refused("x", "Conflict"), 3, 3)
    story.ack("c", 3, during=begun + 5)
    story.final("abc")
    assert not story.violations("conditional")


def test_a_conflict_with_what_was_given_up() -> None:
    story = Story()
    told(story, 0)
    story.ack("ab", 1)
    named(story.refused("x", "Conflict"), 3, 3)
    final = story.final("abd", glsns=[1, 2, 4])
    final.junk = [3]
    assert not story.violations("conditional")
    assert JUNK not in final.payloads


def test_a_conflict_in_a_segment_that_is_over() -> None:
    """What was granted there, and never written, is free in the next: who had it nobody can tell."""
    story = Story()
    told(story, 0)
    story.ack("ab", 1)
    named(story.refused("x", "Conflict"), 3, 3)
    told(story, 3, 0, orderings="sequencer sequencer")
    story.ack("c", 3, stream=2)
    story.final("abc", streams=[1, 1, 2])
    assert not story.violations("conditional")


def test_a_conflict_in_a_log_that_is_sealed_before_it() -> None:
    story = Story()
    told(story, 0)
    story.ack("ab", 1)
    named(story.refused("x", "Conflict"), 3, 3)
    story.final("ab")
    assert story.violations("conditional")
    told(story, 3)
    assert not story.violations("conditional")


def test_a_conflict_after_its_segment_was_there() -> None:
    story = Story()
    told(story, 3, 0, orderings="cut sequencer")
    story.ack("ab", 1)
    named(story.refused("x", "Conflict"), 3, 3)
    story.ack("c", 3, stream=2)
    story.final("abc", streams=[1, 1, 2])
    assert story.violations("conditional")


def test_a_batch_may_not_fit_a_stripe() -> None:
    story = Story()
    chain = told(story, 0)
    story.ack("ab", 1)
    named(story.refused("xyz", "Conflict"), 3, 4)
    story.final("ab")
    assert story.violations("conditional")
    chain.streams.append([2, 1, -1])
    assert not story.violations("conditional")


# ---------------------------------------------------------------- Unsupported


@pytest.mark.parametrize("orderings", ["cut", "leader"])
def test_unsupported_where_it_is(orderings: str) -> None:
    story = Story()
    named(story.refused("x", "Unsupported"), 1)
    told(story, 0, orderings=orderings)
    assert not story.violations("conditional")


def test_unsupported_where_it_could_have_been_done() -> None:
    story = Story()
    named(story.refused("x", "Unsupported"), 1)
    told(story, 0)
    assert "all the while the log was under sequencer" in story.violations("conditional")[0]


def test_unsupported_until_it_was_known_that_another_segment_began() -> None:
    story = Story()
    named(story.refused("x", "Unsupported"), 1)
    told(story, 1, 0, orderings="cut sequencer")
    assert not story.violations("conditional")
    named(story.refused("y", "Unsupported"), 1)
    assert story.violations("conditional")


def test_unsupported_from_the_moment_that_another_segment_may_have_begun() -> None:
    story = Story()
    told(story, 0)
    named(story.refused("x", "Unsupported"), 1)
    told(story, 1, 0, orderings="sequencer cut")
    assert not story.violations("conditional")
    story = Story()
    named(story.refused("x", "Unsupported"), 1)
    told(story, 0)
    told(story, 1, 0, orderings="sequencer cut")
    assert story.violations("conditional")


def test_an_ack_in_a_segment_tells_that_it_had_begun() -> None:
    story = Story()
    story.ack("a", 1, stream=2)
    named(story.refused("x", "Unsupported"), 1)
    assert not story.violations("conditional")
    told(story, 1, 0, orderings="cut sequencer")
    assert story.violations("conditional")


def test_of_a_chain_whose_orderings_nobody_told_nothing_is_said() -> None:
    story = Story()
    story.chain(0)
    named(story.ack("a", 1), 1)
    named(story.refused("x", "Unsupported"), 2)
    story.final("a")
    assert not story.violations("conditional")
