"""I13 where logs are trimmed by themselves: by what they keep, and no further."""

import pytest
from tests.sim.checkers.story import Story

from varlog.sim.history import Chain, Keeping


def kept(**settings: float) -> Story:
    story = Story()
    story.history.add(Keeping(log="l", **settings))  # type: ignore[arg-type]
    return story


def told(story: Story, trimmed: int) -> None:
    story.history.add(Chain(trimmed=trimmed, segments=[[1, 1, 0]], streams=[[1, 1, -1]], **story._times(None)))


def test_what_is_too_old_may_go() -> None:
    """Appends begin at 10, 30 and 50; the look ends at 80."""
    for seconds, trimmed, wrong in ((55, 1, False), (55, 2, True), (35, 2, False), (35, 3, True), (30, 3, False)):
        story = kept(seconds=seconds)
        for first, payload in enumerate("abc", 1):
            story.ack(payload, first)
        told(story, trimmed)
        assert bool(story.violations("I13")) == wrong, (seconds, trimmed)


def test_clocks_may_differ_by_what_is_said() -> None:
    story = kept(seconds=55, skew_seconds=10)
    for first, payload in enumerate("abc", 1):
        story.ack(payload, first)
    told(story, 2)
    assert not story.violations("I13")


def test_what_was_trimmed_by_somebody_does_not_keep_what_is_behind_it() -> None:
    """It was sent again and again, and came late, but another is older."""
    story = kept(seconds=25)
    late = story.ack("a", 1)
    late.start_time = 1000
    story.ack("b", 2)
    story.trim(1)
    told(story, 2)
    assert not story.violations("I13")


@pytest.mark.parametrize(("trimmed", "wrong"), [(1, False), (2, False), (3, True)])
def test_what_is_too_much_may_go(trimmed: int, wrong: bool) -> None:
    """The last two are certainly too little, whatever is stored besides them."""
    story = kept(bytes=30_000)
    for first in range(1, 5):
        append = story.ack("x", first)
        append.payloads = [f"{first}/10000/0"]
    told(story, trimmed)
    assert bool(story.violations("I13")) == wrong


@pytest.mark.parametrize(("trimmed", "wrong"), [(1, False), (3, False), (4, True)])
def test_what_nobody_knows_of_may_be_what_is_kept_and_what_goes(trimmed: int, wrong: bool) -> None:
    """Two of unknown outcome may both be in the log, behind all that was answered."""
    story = kept(bytes=30_000)
    story.ack("x", 1).payloads = ["1/10000/0"]
    for number in (2, 3):
        story.unknown("x").payloads = [f"{number}/20000/0"]
    told(story, trimmed)
    assert bool(story.violations("I13")) == wrong


def test_what_is_archived_may_go_and_nobody_is_told_that_it_is_gone() -> None:
    story = kept(seconds=1, archived=True)
    story.ack("ab", 1)
    told(story, 2)
    assert not story.violations("I13")
    story.read_fails(2, "Trimmed", 3)
    assert story.violations("I13")


def test_a_log_that_keeps_everything_is_not_trimmed_by_itself() -> None:
    story = Story()
    story.ack("ab", 1)
    told(story, 1)
    assert story.violations("I13")
