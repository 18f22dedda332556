"""Where a log may be trimmed by what it is to keep: arithmetic on what the replicas of its streams say.

    position    1 ........ 40 ........ 70 ........ 100        marks: (position, bytes stored from there on)
    stream 1    |----------|-----------|-----------|          (1, 90)  (40, 60)  (70, 30)
    stream 2         |----------|-----------|                 (10, 50) (55, 25)
                           `-- from 40 on: at least 60 of stream 1 and 25 of stream 2

A mark is the beginning of a batch, or of the log. What a stream holds from a position on is only known at its marks, so
it is counted from the next mark: what is kept is at least what is wanted.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

Marks: TypeAlias = Sequence[tuple[int, int]]
"""Of one stream, rising: a position, and the bytes stored from there on."""


def kept_from(streams: Sequence[Marks], wanted: int) -> int:
    """The greatest mark from which on all streams together hold at least so many bytes; 0: there is none."""
    positions = [[position for position, _ in marks] for marks in streams]
    candidates = sorted({position for each in positions for position in each})

    def held(position: int) -> int:
        found = 0
        for marks, known in zip(streams, positions, strict=True):
            index = bisect_left(known, position)
            found += marks[index][1] if index < len(marks) else 0
        return found

    low, high = 0, len(candidates)  # all candidates before `low` hold enough, and none from `high` on does
    while low < high:
        middle = (low + high) // 2
        if held(candidates[middle]) >= wanted:
            low = middle + 1
        else:
            high = middle
    return candidates[low - 1] if low else 0
