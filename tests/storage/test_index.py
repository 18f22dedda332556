"""Columns of one file against plain lists."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.storage.facts import Facts
from varlog.storage.index import INDEX_EVERY_BYTES, BindingColumn, SparseIndex

STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=30)


@settings(deadline=None)
@given(STEPS, st.integers(0, 1000))
def test_bindings_of_a_file(steps: list[tuple[int, int]], start: int) -> None:
    column = BindingColumn(start)
    glsns: list[int] = []
    following = 1
    for count, gap in steps:
        following += gap
        column.add(Binding(Slot(start + len(glsns)), Glsn(following), count))
        glsns += range(following, following + count)
        following += count
    assert (column.end, column.glsn_end) == (start + len(glsns), following)
    assert len(column.slots) == 1 + sum(later != earlier + 1 for earlier, later in pairwise(glsns))
    for glsn in range(1, following + 2):
        assert column.first_at_or_after(glsn) == start + sum(each < glsn for each in glsns)
    for low in range(len(glsns)):
        for high in range(low, len(glsns) + 1, 3):
            found = [each for part in column.ranges(start + low, start + high) for each in expand(part)]
            assert found == [(start + at, glsns[at]) for at in range(low, high)]


def expand(binding: Binding) -> list[tuple[int, int]]:
    return [(binding.slot + at, binding.glsn + at) for at in range(binding.count)]


@settings(deadline=None)
@given(STEPS, st.integers(1, 40), st.integers(1, 40))
def test_a_binding_over_the_ends_of_files(steps: list[tuple[int, int]], first: int, second: int) -> None:
    """What several files hold of the same bindings is what was bound."""
    edges = [0, first, first + second, 1 << 40]
    columns = [BindingColumn(edge) for edge in edges[:-1]]
    expected: list[tuple[int, int]] = []
    glsn = 1
    for count, gap in steps:
        glsn += gap
        binding = Binding(Slot(len(expected)), Glsn(glsn), count)
        for column, limit in zip(columns, edges[1:], strict=True):
            if limit > binding.slot and column.start < binding.slot_end:
                column.add_part(binding, limit)
        expected += expand(binding)
        glsn += count
    found = [each for column in columns for part in column.ranges(column.start, column.end) for each in expand(part)]
    assert found == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(64, 90_000), st.integers(1, 4), st.integers(0, 50)), min_size=1, max_size=40))
def test_the_sparse_index(batches: list[tuple[int, int, int]]) -> None:
    index = SparseIndex()
    places: list[tuple[int, int, int]] = []
    offset, slot = 4096, 7
    for size, count, time_us in batches:
        index.add(slot, offset, time_us)
        places.append((slot, offset, time_us))
        offset, slot = offset + size, slot + count
    assert index.batches == len(batches)
    assert index.max_time == max(time_us for _, _, time_us in places)
    for slot, offset, _ in places:
        start, end = index.extent(index.stretch_of(slot), 1 << 40)
        assert start <= offset < min(end, start + INDEX_EVERY_BYTES)
    for stretch in range(len(index)):
        start, end = index.extent(stretch, 1 << 40)
        times = [time_us for _, offset, time_us in places if start <= offset < end]
        assert index.max_times[stretch] == max(times)


@settings(deadline=None)
@given(STEPS, st.lists(st.integers(0, 60), max_size=5))
def test_facts_trim_what_is_bound_and_what_will_be(steps: list[tuple[int, int]], trims: list[int]) -> None:
    facts = Facts()
    glsns: list[int] = []
    for number, (count, gap) in enumerate(steps):
        first = max(facts.next_glsn, 1) + gap
        facts.bind(Binding(Slot(facts.committed), Glsn(first), count), first + count - 1)
        glsns += range(first, first + count)
        if number < len(trims):
            slot = sum(each <= trims[number] for each in glsns)
            facts.trim(slot, trims[number])
        assert facts.trimmed == sum(each <= facts.trimmed_glsn for each in glsns)
    assert facts.committed == len(glsns)
