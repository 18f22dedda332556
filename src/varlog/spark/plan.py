"""Which task reads what: a range of positions cut where segments begin, and into parts of about one size. Pure.

    segments   [----------- 1 -----------)[---- 2 ----)[------ 3 ...
    range            [=======================================)
    parts            [=====)[=====)[=====)[=====)[====)[=====)

Each part is a range of positions, so what a task must find is known beforehand: as many entries as positions.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import ceil

from varlog.client.describe import LogDescription, LogStatus
from varlog.spark.limits import MOST_PARTITIONS


def split(
    start: int, stop: int, *, cuts: Iterable[int] = (), entry_bytes: float, part_bytes: int, least: int = 1
) -> list[tuple[int, int]]:
    """Parts `[first, end)` from `start` to `stop`, at least `least` of them as far as the entries go."""
    total = stop - start
    if total <= 0:
        return []
    edges = [start, *sorted({cut for cut in cuts if start < cut < stop}), stop]
    parts: list[tuple[int, int]] = []
    for first, end in pairwise(edges):
        length = end - first
        by_size = ceil(length * entry_bytes / part_bytes)
        by_share = -(-least * length // total)
        count = max(1, min(max(by_size, by_share), length, -(-MOST_PARTITIONS * length // total)))
        parts += pairwise(first + length * index // count for index in range(count + 1))
    return parts


def borders(log: LogDescription) -> list[int]:
    """Positions at which the entries begin to lie elsewhere: on other nodes, or under another ordering."""
    return [
        *(segment.base for segment in log.chain),
        *(stream.start for segment in log.chain for stream in segment.streams),
    ]


def entry_bytes(status: LogStatus) -> float:
    """What an entry takes on a disk, on average; 0 if nothing is known."""
    stored = sum(max((each.stored_bytes for each in stream.replicas), default=0) for stream in status.streams)
    return stored / max(1, status.tail - status.log.trimmed)
