"""Whether ranges of positions lie end to end: in parts by many tasks, then the parts by one. Pure.

task 1   [1 5)[5 9)[9 12)       -> span [1 12)
task 2   [12 15)[17 20)         -> gap [15 17), span [12 20)
joined   span, span             -> they meet at 12
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from varlog.spark.limits import MOST_FAULTS


class Range(NamedTuple):
    """Positions `[first, stop)` that are a `gap`, there `twice`, or a `span`: from the first to the last of a task."""

    kind: str
    first: int
    stop: int


def check_order(pairs: Iterable[tuple[int, int]]) -> Iterator[list[Range]]:
    """Of ranges sorted by their first position: what is wrong, and at the end their span."""
    start: int | None = None
    reached = faults = 0
    for first, stop in pairs:
        if start is None:
            start = reached = first
        for wrong in _joint(reached, first, stop):
            faults += 1
            if faults <= MOST_FAULTS:
                yield [wrong]
        reached = max(reached, stop)
    if start is not None:
        yield [Range("span", start, reached)]


def out_of_order(found: Iterable[Range], start: int, stop: int) -> list[Range]:
    """All gaps and repetitions in `[start, stop)`, those between the tasks' spans included."""
    listed = list(found)
    faults = [each for each in listed if each.kind != "span"]
    reached = start
    for span in sorted(each for each in listed if each.kind == "span"):
        faults += _joint(reached, span.first, span.stop)
        reached = max(reached, span.stop)
    faults += _joint(reached, stop, stop)
    return sorted(faults, key=lambda each: (each.first, each.stop))[:MOST_FAULTS]


def _joint(reached: int, first: int, stop: int) -> list[Range]:
    """What lies between the end of all before and the next range."""
    if first > reached:
        return [Range("gap", reached, first)]
    if first < reached:
        return [Range("twice", first, min(reached, stop))] if first < stop else []
    return []
