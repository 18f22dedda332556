"""Where marks allow a trim, against counting everything."""

from hypothesis import given
from hypothesis import strategies as st

from varlog.core.retention import kept_from

Entries = list[tuple[int, int]]
"""Of a log, in the order of its positions: stream, and bytes."""


def test_the_picture() -> None:
    streams = [[(1, 90), (40, 60), (70, 30)], [(10, 50), (55, 25)]]
    assert kept_from(streams, 85) == 40
    assert kept_from(streams, 86) == 10
    assert kept_from(streams, 30) == 70
    assert kept_from(streams, 1000) == 0
    assert kept_from([], 1) == 0
    assert kept_from([[], []], 1) == 0


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 100), st.booleans()), max_size=60),
    st.integers(1, 2000),
)
def test_at_least_what_is_wanted_is_kept_and_no_mark_would_do_better(
    entries: list[tuple[int, int, bool]], wanted: int
) -> None:
    """Entries: stream, bytes, and whether a mark is there."""
    sizes = [(stream, size) for stream, size, _ in entries]

    def held(stream: int, position: int) -> int:
        return sum(size for of, size in sizes[position - 1 :] if of == stream)

    streams: list[list[tuple[int, int]]] = [[], [], []]
    for position, (stream, _, marked) in enumerate(entries, 1):
        if marked:
            streams[stream].append((position, held(stream, position)))
    found = kept_from(streams, wanted)
    if found:
        assert sum(held(stream, found) for stream in range(3)) >= wanted
    if all(marked for _, _, marked in entries):
        best = [at for at in range(1, len(entries) + 1) if sum(held(each, at) for each in range(3)) >= wanted]
        assert found == max(best, default=0), "with a mark at every entry nothing is left to guess"
