"""What a cluster may trim by itself, by what a log was told to keep: an upper bound for I13.

Only what clients know is counted, and clocks may differ by what the history says, so the bound is never too low.
"""

from bisect import bisect_left
from collections.abc import Callable

from varlog.sim.checkers.base import LogHistory
from varlog.sim.history import Append, Keeping

END = 1 << 62
"""After everything."""
BATCH_BYTES = 512
"""More than a batch takes on disk besides its payloads, with what says where it is."""
FILE_SHARE = 1.2
"""More than what the heads of files add."""
STREAM_BYTES = 8 << 10
"""More than an empty replica takes."""

Allowed = Callable[[float, int], int]
"""Of a time, and up to where trims were asked for by then: up to where nodes may have trimmed the log."""


def allowance(history: LogHistory) -> Allowed:
    keeping = history.keeping
    if keeping is None:
        return lambda time, asked: asked
    old, much = _too_old(history, keeping), _too_much(history, keeping)
    return lambda time, asked: max(asked, old(time, asked), much(time))


def _too_old(history: LogHistory, keeping: Keeping) -> Callable[[float, int], int]:
    """Up to the last entry before the first that is certainly too young, of those that nobody else had trimmed."""
    if not keeping.seconds:
        return lambda time, asked: 0
    begun: dict[str, float] = {}
    for append in history.appends:  # one that was sent again has the time of when it was sent first
        for payload in append.payloads[:1]:
            begun[payload] = min(append.start_time, begun.get(payload, append.start_time))
    acks = sorted((append.first, begun[append.payloads[0]]) for append in history.acks() if append.payloads)

    def point(time: float, asked: int) -> int:
        oldest = time - keeping.seconds + keeping.skew_seconds
        for first, start in acks[bisect_left(acks, (asked + 1, 0.0)) :]:
            if start > oldest:
                return first - 1
        return END

    return point


def _too_much(history: LogHistory, keeping: Keeping) -> Callable[[float], int]:
    """Up to the last entry behind which as much may be stored as is to be kept."""
    if not keeping.bytes:
        return lambda time: 0
    sent = sorted(history.appends, key=lambda append: append.start_time)
    times = [append.start_time for append in sent]
    streams = max((len(chain.streams) for chain in history.chains), default=1)

    def point(time: float) -> int:
        there = sent[: bisect_left(times, time)]
        unknown = [append for append in there if append.outcome == "unknown"]
        acked = sorted((append for append in there if append.outcome == "ack"), key=lambda append: -append.first)
        left = keeping.bytes - STREAM_BYTES * max(streams, 1) - sum(map(_most_bytes, unknown))
        if left <= 0:  # those of which nobody knows may all lie behind the last that somebody knows
            return acked[0].last + sum(len(append.payloads) for append in unknown) if acked else END
        for append in acked:
            left -= _most_bytes(append)
            if left <= 0:
                return append.first - 1
        return 0

    return point


def _most_bytes(append: Append) -> int:
    """On one disk."""
    return int(FILE_SHARE * (BATCH_BYTES + sum(int(payload.split("/")[-2]) for payload in append.payloads)))
