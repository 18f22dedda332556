"""Lanes (a promise of producers): acked sends of one producer are in the log in the order sent."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.history import Append


def check(history: LogHistory) -> Iterator[Violation]:
    last: dict[str, Append] = {}
    for append in sorted(history.acks(), key=lambda append: append.start):
        if not append.lane:
            continue
        before = last.get(append.lane)
        if before is not None and append.first <= before.last:
            yield history.violation(
                "lanes", f"{describe(append)} was sent after, and stands before, {describe(before)}"
            )
        last[append.lane] = append
