"""Since when slots are missing, whoever saw it."""

from varlog.base.ids import Epoch, Glsn, LogId, Slot, StreamId
from varlog.client.holes import Holes
from varlog.client.routes import StreamRoute


def route(stream: int, segment: int = 1, log: int = 7) -> StreamRoute:
    return StreamRoute(LogId(log), Epoch(segment), StreamId(stream), (), True, None, Glsn(1), None, "sequencer")


def test_a_hole_is_as_old_as_when_somebody_first_saw_it() -> None:
    holes = Holes()
    assert holes.since(route(1), Slot(0), 5.0) == 5.0
    assert holes.since(route(2), Slot(0), 6.0) == 6.0, "each stream has its own"
    assert holes.since(route(1), Slot(0), 7.0) == 5.0
    assert holes.since(route(1), Slot(3), 8.0) == 8.0, "the head has moved on"
    assert holes.since(route(1), Slot(3), 9.0) == 8.0
    assert holes.since(route(1), Slot(0), 10.0) == 10.0, "an old word"
    assert holes.since(route(1), Slot(3), 11.0) == 8.0


def test_holes_are_forgotten_with_their_segment() -> None:
    holes = Holes()
    assert holes.since(route(1), Slot(0), 5.0) == 5.0
    assert holes.since(route(2, segment=2), Slot(0), 6.0) == 6.0
    assert holes.since(route(1), Slot(0), 7.0) == 7.0, "it takes no more"
    assert holes.since(route(2, segment=2), Slot(0), 8.0) == 6.0
    assert holes.since(route(2, segment=1, log=8), Slot(0), 9.0) == 9.0, "the log was made anew"
    assert len(holes._seen) == 1
