"""Gaps and repetitions are found wherever they lie, inside a task's share or between two."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.spark.order import Range, check_order, out_of_order


def judged(pairs: list[tuple[int, int]], tasks: list[int], start: int, stop: int) -> list[Range]:
    """As the job does it: sorted, shared among tasks, then joined."""
    ordered = sorted(pairs)
    borders = [0, *sorted(min(task, len(ordered)) for task in tasks), len(ordered)]
    found = []
    for low, high in pairwise(borders):
        found += [each for rows in check_order(ordered[low:high]) for each in rows]
    return out_of_order(found, start, stop)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.lists(st.integers(0, 20), max_size=3), st.data())
def test_every_fault_is_told_and_nothing_else(lengths: list[int], tasks: list[int], data: st.DataObject) -> None:
    pairs, at = [], 1
    for length in lengths:
        pairs.append((at, at + length))
        at += length
    assert judged(pairs, tasks, 1, at) == []
    index = data.draw(st.integers(0, len(pairs) - 1))
    first, stop = pairs[index]
    assert judged(pairs[:index] + pairs[index + 1 :], tasks, 1, at) == [Range("gap", first, stop)]
    assert judged([*pairs, (first, stop)], tasks, 1, at) == [Range("twice", first, stop)]


def test_nothing_at_all() -> None:
    assert judged([], [], 1, 1) == []
    assert judged([], [], 1, 9) == [Range("gap", 1, 9)]
