"""I4. Real-time order: if append A ended before append B began, A's position is lower.

The same goes for every position anybody saw before B began: what is not yet sent has no position
below one that is known.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before


def check(history: LogHistory) -> Iterator[Violation]:
    events = history.seen_positions()
    events += [(tail.end, tail.tail) for tail in history.tails if tail.end is not None and tail.tail is not None]
    highest = highest_before(events)
    begun: set[str] = set()
    for append in sorted(history.appends, key=lambda append: append.start):
        # Sent once more after an unknown outcome, it may have got its place the first time.
        again = not append.payloads or append.payloads[0] in begun
        begun.update(append.payloads[:1])
        position = append.first if append.outcome == "ack" else history.found.get(append.payloads[0], 0)
        seen = highest(append.start)
        if not again and position and position <= seen:
            yield history.violation(
                "I4", f"{describe(append)} has position {position}, but {seen} had been seen before it began", position
            )
