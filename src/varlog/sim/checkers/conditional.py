"""Conditional appends (a promise of the client): who names a position gets that one or none, and is refused rightly.

    acked          it begins at the position named, in a segment whose ordering can do that
    anywhere else  whatever its caller was told, its entries are nowhere but there
    Conflict       at some moment of the call the log's next position was another: the tail that it tells of is not the
                   one before the position named, nothing beyond it had been seen before the call, and if it is higher,
                   the position named went to somebody who had begun by then, or to nobody
    Unsupported    at some moment of the call the last segment may have been of an ordering that cannot do that

Positions are granted before they are written. What was granted to one who then dies is given up, or free again if the
segment ends before it: then nobody can tell any more who had it.
"""

from collections.abc import Iterator
from math import inf

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before
from varlog.sim.history import JUNK, Append, Chain

ABLE = "sequencer"
"""The ordering under which it can be done."""


def check(history: LogHistory) -> Iterator[Violation]:
    named = [append for append in history.appends if append.expect]
    if not named:
        return
    segments = _Segments(history)
    yield from _places(history, named)
    yield from _orderings(history, segments, [append for append in named if append.outcome == "ack"])
    yield from _conflicts(history, segments, [append for append in named if append.error == "Conflict"])
    yield from _unsupported(history, segments, [append for append in named if append.error == "Unsupported"])


class _Segments:
    """As the last of those knew them who were told of the chain."""

    def __init__(self, history: LogHistory) -> None:
        told = [chain for chain in history.chains if chain.segments]
        last = max(told, key=lambda chain: (len(chain.segments), chain.segments[-1][2]), default=Chain())
        self.orderings = dict(enumerate(last.orderings, 1))
        """By epoch; of histories that do not say, none."""
        self.epochs = {stream: epoch for stream, epoch, _ in last.streams}
        self.striped = len(self.epochs) > len(set(self.epochs.values()))
        """Whether positions go round several streams: a batch that does not fit a stripe begins behind its edge."""
        self._ranges = [(base, end or inf) for _, base, end in last.segments]
        self._earliest = [0 if index == 0 else _last_without(told, index) for index in range(len(last.segments))]
        self._latest = [_first_with(told, index) if index else 0.0 for index in range(len(last.segments))]
        for append in history.acks():
            for index in range(1, self.epochs.get(append.stream, 0)):
                self._latest[index] = min(self._latest[index], append.end or inf)

    def had_begun(self, position: int, order: int) -> bool:
        """Whether the segment in which a position lies in the end certainly had begun by then."""
        there = [index for index, (base, end) in enumerate(self._ranges) if base <= position < end]
        return any(self._latest[index] < order for index in there)

    def during(self, append: Append) -> list[str]:
        """The orderings of those that may have been the last segment at some moment of a call."""
        end = append.end if append.end is not None else inf
        followed = [*self._latest[1:], inf]
        lives = zip(self.orderings.values(), self._earliest, followed, strict=False)
        return [ordering for ordering, earliest, gone in lives if earliest < end and gone > append.start]


def _last_without(told: list[Chain], index: int) -> int:
    return max((chain.start for chain in told if len(chain.segments) <= index), default=0)


def _first_with(told: list[Chain], index: int) -> float:
    return min((chain.end for chain in told if len(chain.segments) > index and chain.end is not None), default=inf)


def _places(history: LogHistory, named: list[Append]) -> Iterator[Violation]:
    """Sent again after an unknown outcome, or not: it may be there only."""
    for append in named:
        if append.outcome == "ack" and append.first != append.expect:
            evidence = f"{describe(append)}, but {append.expect} was expected"
            yield history.violation("conditional", evidence, append.first)
    due = {payload: (append, append.expect + at) for append in named for at, payload in enumerate(append.payloads)}
    for sight in history.sights:
        if sight.payload not in due:
            continue
        append, position = due[sight.payload]
        if append.outcome != "ack" and sight.glsn != position:
            evidence = f"{describe(append)} was to be at {append.expect}, but {sight.payload} is at {sight.glsn}"
            yield history.violation("conditional", f"{evidence} to {sight.source}", sight.glsn)


def _orderings(history: LogHistory, segments: _Segments, acked: list[Append]) -> Iterator[Violation]:
    for append in acked:
        ordering = segments.orderings.get(segments.epochs.get(append.stream, 0), ABLE)
        if ordering != ABLE:
            evidence = f"{describe(append)} named its position, in a segment under {ordering}"
            yield history.violation("conditional", evidence, append.first)


def _conflicts(history: LogHistory, segments: _Segments, refused: list[Append]) -> Iterator[Violation]:
    if not refused:
        return
    events = history.seen_positions()
    events += [(tail.end, tail.tail) for tail in history.tails if tail.end is not None and tail.tail is not None]
    seen = highest_before(events)
    begun: dict[str, int] = {}
    for append in history.appends:
        for payload in append.payloads:
            begun[payload] = min(append.start, begun.get(payload, append.start))
    for append in refused:
        start = begun[append.payloads[0]]  # sent again it may be told what became of the first time
        told, before = f"{describe(append)} was told that the tail is {append.value}", append.expect - 1
        if append.value == before:
            yield history.violation("conditional", f"{told}, which is where it was expected")
        elif append.value < seen(start):
            evidence = f"{told}, but position {seen(start)} had been seen before it began"
            yield history.violation("conditional", evidence)
        elif append.value > before and _was_free(history, segments, append, begun):
            there = history.at.get(append.expect, "nothing")
            yield history.violation(
                "conditional", f"{told}, but {append.expect} was free all the while: {there} is there"
            )


def _was_free(history: LogHistory, segments: _Segments, append: Append, begun: dict[str, int]) -> bool:
    """Whether the position named was certainly nobody's before the call was over.

    In the segment in which it was asked for it is what was granted first, or given up: what is there now began later.
    """
    if append.end is None or history.final is None or append.expect <= history.trimmed:
        return False
    if segments.striped and len(append.payloads) > 1:
        return False
    there = history.at.get(append.expect)
    if there == JUNK or (there is not None and begun.get(there, 0) < append.end):
        return False
    return segments.had_begun(append.expect, begun[append.payloads[0]])


def _unsupported(history: LogHistory, segments: _Segments, refused: list[Append]) -> Iterator[Violation]:
    for append in refused:
        possible = segments.during(append)
        if possible and all(ordering == ABLE for ordering in possible):
            evidence = f"{describe(append)} was refused as unsupported, but all the while the log was under {ABLE}"
            yield history.violation("conditional", evidence)
