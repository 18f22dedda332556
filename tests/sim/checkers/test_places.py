"""What is said of an entry beside its payload: stream, slot and time are those that its replicas hold."""

import pytest
from tests.sim.checkers.story import Story


def told() -> Story:
    """Two entries, of which everybody says the same."""
    story = Story()
    ack = story.ack("ab", 1)
    ack.begun_us, ack.ended_us = 5, 9
    read = story.read(2, "b")
    read.stream, read.slot, read.time_us = 1, 1, 7
    story.subscription(1, [1, 2], "ab", streams=[1, 1], slots=[0, 1], times_us=[7, 7])
    story.final("ab", times=[7, 7])
    story.replica("ab", times_us=[7, 7])
    return story


def test_a_good_story() -> None:
    assert told().violations("places") == []


def test_who_does_not_say_where_is_not_asked() -> None:
    story = told()
    story.read(1, "a")
    story.subscription(1, [1, 2], "ab")
    assert story.violations("places") == []


@pytest.mark.parametrize("what", ["stream", "slot", "time_us"])
def test_a_read_that_names_another_place(what: str) -> None:
    story = told()
    read = story.read(1, "a")
    setattr(read, what, 3)
    (evidence,) = story.violations("places")
    assert "position 1" in evidence
    assert "and 3 to c's read of 1" in evidence


@pytest.mark.parametrize("what", ["streams", "slots", "times_us"])
def test_a_subscription_that_names_another_place(what: str) -> None:
    story = told()
    right = {"streams": [1, 1], "slots": [0, 1], "times_us": [7, 7]}
    story.subscription(1, [1, 2], "ab", **(right | {what: [right[what][0], 4]}))
    (evidence,) = story.violations("places")
    assert "position 2" in evidence
    assert "and 4 to c's subscription" in evidence


def test_an_ack_that_names_another_stream() -> None:
    story = told()
    story.ack("ab", 1, stream=2)
    assert [evidence[:42] for evidence in story.violations("places")] == [
        "position 1 has stream 1 to node 1 and 2 to",
        "position 2 has stream 1 to node 1 and 2 to",
    ]


def test_two_replicas_with_two_times() -> None:
    story = told()
    story.replica("ab", node=2, times_us=[7, 8])
    assert len(story.violations("places")) == 1


@pytest.mark.parametrize("time_us", [4, 10])
def test_a_time_at_which_it_was_not_on_its_way(time_us: int) -> None:
    story = Story()
    ack = story.ack("a", 1)
    ack.begun_us, ack.ended_us = 5, 9
    story.replica("a", times_us=[time_us])
    assert len(story.violations("places")) == 1


def test_sent_again_it_may_have_its_first_time() -> None:
    story = Story()
    story.unknown("a").begun_us = 3
    ack = story.ack("a", 1)
    ack.begun_us, ack.ended_us = 8, 9
    story.replica("a", times_us=[4])
    assert story.violations("places") == []
