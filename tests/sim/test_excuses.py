"""What a run need not show is excused exactly, and nothing beside it."""

import pytest
from tests.sim.checkers.story import Story

from varlog.sim.checkers import Violation, check_history
from varlog.sim.excuses import is_lost_with_the_end


def test_an_end_that_is_too_low_takes_nothing_before_its_segment() -> None:
    lost = Violation("I1", "l", "lost", 7)
    assert is_lost_with_the_end(lost, 7)
    assert not is_lost_with_the_end(lost, 8)
    assert not is_lost_with_the_end(lost, None)
    assert not is_lost_with_the_end(Violation("I5", "l", "twice", 7), 7)


@pytest.mark.parametrize(("invariant", "kept", "first"), [("I1", "ab", 3), ("I3", "ab", 3), ("I10", "abc", 4)])
def test_violations_say_where_the_log_breaks_off(invariant: str, kept: str, first: int) -> None:
    story = Story()
    story.ack("abcd", 1)
    story.tail(len(kept))
    story.final(kept, tail=4 if invariant == "I3" else None)
    found = [each for each in check_history(story.history) if each.invariant == invariant]
    assert {each.glsn for each in found} == {first}


def test_what_comes_again_says_where_it_is() -> None:
    story = Story()
    story.ack("ab", 1)
    story.ack("x", 2)
    found = [each for each in check_history(story.history) if each.invariant in ("I2", "I4")]
    assert [(each.invariant, each.glsn) for each in found] == [("I2", 2), ("I4", 2)]
