"""The cuts between tasks."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.spark.limits import MOST_PARTITIONS
from varlog.spark.plan import split

positions = st.integers(1, 10**12)


@settings(deadline=None)
@given(
    start=positions,
    count=st.integers(0, 10**9),
    cuts=st.lists(positions, max_size=5),
    entry_bytes=st.floats(0, 1e6),
    part_bytes=st.integers(1, 1 << 40),
    least=st.integers(1, 300),
)
def test_parts_cover_the_range_once(
    start: int, count: int, cuts: list[int], entry_bytes: float, part_bytes: int, least: int
) -> None:
    stop = start + count
    parts = split(start, stop, cuts=cuts, entry_bytes=entry_bytes, part_bytes=part_bytes, least=least)
    if not count:
        assert parts == []
        return
    assert parts[0][0] == start
    assert parts[-1][1] == stop
    assert all(first < end for first, end in parts)
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    edges = {first for first, _ in parts}
    assert all(cut in edges for cut in cuts if start < cut < stop)
    assert min(least, count) <= len(parts) <= MOST_PARTITIONS + len(cuts) + 1


def test_size_decides() -> None:
    assert split(1, 1001, entry_bytes=100, part_bytes=25_000) == [(1, 251), (251, 501), (501, 751), (751, 1001)]
    assert split(1, 1001, entry_bytes=1, part_bytes=25_000) == [(1, 1001)]
    assert split(1, 11, entry_bytes=1, part_bytes=25_000, least=3) == [(1, 4), (4, 7), (7, 11)]
    assert split(1, 11, cuts=[5], entry_bytes=1, part_bytes=25_000) == [(1, 5), (5, 11)]
