"""I10. Fresh tail: `tail()` returns at least every position that was known before the call began, and no fiction."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before


def check(history: LogHistory) -> Iterator[Violation]:
    events = history.seen_positions()
    events += [(tail.end, tail.tail) for tail in history.tails if tail.end is not None and tail.tail is not None]
    highest = highest_before(events)
    for tail in history.tails:
        if tail.tail is None:
            continue
        if tail.tail < highest(tail.start):
            seen = f"position {highest(tail.start)} had been seen before it began"
            yield history.violation("I10", f"{describe(tail)}, but {seen}", tail.tail + 1)
        if history.final is not None and tail.tail > history.final.tail:
            end = history.final.tail
            yield history.violation("I10", f"{describe(tail)}, but the log ends at {end}", end + 1)
