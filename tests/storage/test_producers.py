"""The table of producers against a naive one, its bounds, and that it survives."""

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import append, batch, bind, create, data_files, reopen, run

from varlog.base import limits
from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn, Slot
from varlog.storage import producers as producers_module
from varlog.storage.producers import TURN_PRODUCERS, ProducerTable
from varlog.wire.batch import NO_PRODUCER

Row = tuple[bytes, int, int, int]


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def rows(choices: list[tuple[int, int]]) -> Iterator[Row]:
    """Dense sequences of several producers, mixed."""
    sequences: dict[int, int] = {}
    slot = 0
    for producer, count in choices:
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        yield name(producer), sequence, slot, count
        slot += count


CHOICES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=300)


def same(left: ProducerTable, right: ProducerTable, known: list[Row]) -> bool:
    """Whether both answer alike about all batches within the window."""
    for producer, sequence, slot, count in known:
        following = left.next_sequence(producer)
        if following != right.next_sequence(producer):
            return False
        if sequence >= following - limits.PRODUCER_WINDOW:
            expected = (slot, count)
            if left.find(producer, sequence) != expected or right.find(producer, sequence) != expected:
                return False
    return True


@settings(deadline=None)
@given(CHOICES)
def test_against_a_naive_table(choices: list[tuple[int, int]]) -> None:
    table = ProducerTable()
    known = list(rows(choices))
    for producer, sequence, slot, count in known:
        assert table.next_sequence(producer) == sequence
        assert table.find(producer, sequence) is None
        table.record(producer, sequence, Slot(slot), count)
        table.record(producer, sequence, Slot(slot), count)
        assert table.find(producer, sequence) == (slot, count)
    for producer, sequence, slot, count in known:
        recent = sequence >= table.next_sequence(producer) - limits.PRODUCER_WINDOW
        assert table.find(producer, sequence) == (slot, count) or not recent
        assert table.oldest(producer) <= slot or not recent


@settings(deadline=None)
@given(CHOICES, st.integers(0, 300), st.integers(0, 300))
def test_a_snapshot_and_the_batches_behind_it_give_the_same_table(
    choices: list[tuple[int, int]], first: int, second: int
) -> None:
    """Taken for slots below an edge, at any time after the stream had passed it."""
    known = list(rows(choices))
    edge, taken = sorted((min(first, len(known)), min(second, len(known))))
    table = ProducerTable()
    for producer, sequence, slot, count in known[:taken]:
        table.record(producer, sequence, Slot(slot), count)
    edge_slot = known[edge][2] if edge < len(known) else 1 << 60
    loaded = ProducerTable.load(run(table.snapshot(Slot(edge_slot))))
    for producer, sequence, slot, count in known[taken:]:
        table.record(producer, sequence, Slot(slot), count)
    for producer, sequence, slot, count in known[edge:]:
        loaded.record(producer, sequence, Slot(slot), count)
    assert same(table, loaded, known)


@settings(deadline=None)
@given(CHOICES, st.integers(0, 300), st.integers(0, 300), st.integers(1, 3))
def test_so_does_one_during_which_more_batches_come(
    choices: list[tuple[int, int]], first: int, second: int, at_once: int
) -> None:
    """Some are forgotten, too, and some producers begin anew."""
    known = [(name(number), sequence + 100, 2 * slot, 1) for slot, (number, sequence) in enumerate(choices)]
    known += [(producer, sequence, slot, 1) for producer, sequence, slot, _ in rows(choices)]
    known = [(producer, sequence, number, 1) for number, (producer, sequence, _, _) in enumerate(known)]
    edge, taken = sorted((min(first, len(known)), min(second, len(known))))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "PRODUCERS_PER_STREAM", 3)
        patched.setattr(producers_module, "TURN_PRODUCERS", 1)
        whole, later = ProducerTable(), ProducerTable()
        for producer, sequence, slot, count in known:
            whole.record(producer, sequence, Slot(slot), count)
        for producer, sequence, slot, count in known[:taken]:
            later.record(producer, sequence, Slot(slot), count)
        coming = iter(known[taken:])
        snapshot = later.snapshot(Slot(edge))
        try:
            while True:
                snapshot.send(None)
                for producer, sequence, slot, count in islice(coming, at_once):
                    later.record(producer, sequence, Slot(slot), count)
        except StopIteration as ended:
            loaded = ProducerTable.load(ended.value)
        for producer, sequence, slot, count in known[edge:]:
            loaded.record(producer, sequence, Slot(slot), count)
        assert run(loaded.snapshot(Slot(1 << 60))) == run(whole.snapshot(Slot(1 << 60)))


def test_others_have_their_turn_while_a_snapshot_is_taken() -> None:
    table = ProducerTable()
    for number in range(1, 4 * TURN_PRODUCERS + 1):
        table.record(name(number), 0, Slot(number), 1)
    snapshot = table.snapshot(Slot(1 << 60))
    for _ in range(4):
        snapshot.send(None)
    with pytest.raises(StopIteration):
        snapshot.send(None)


@settings(deadline=None)
@given(CHOICES, st.integers(0, 300))
def test_truncated_is_as_if_never_recorded(choices: list[tuple[int, int]], end: int) -> None:
    known = list(rows(choices[:100]))
    table, shorter = ProducerTable(), ProducerTable()
    for producer, sequence, slot, count in known:
        table.record(producer, sequence, Slot(slot), count)
        if slot < end:
            shorter.record(producer, sequence, Slot(slot), count)
    table.truncate(Slot(end))
    for each in map(name, range(1, 5)):
        assert table.next_sequence(each) == shorter.next_sequence(each)
    assert same(table, shorter, [row for row in known if row[2] < end])


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_STREAM", 50)
    monkeypatch.setattr(producers_module, "ROWS_PER_STREAM", 1000)
    table = ProducerTable()
    table.record(NO_PRODUCER, 0, Slot(0), 1)
    assert len(table) == 0
    for number in range(1, 81):
        for sequence in range(40):
            table.record(name(number), sequence, Slot(100 * number + sequence), 1)
    assert len(table) == 50
    assert table._rows == sum(len(window.rows) // 2 for window in table._windows.values()) <= 1000
    assert table.next_sequence(name(30)) == 0, "the one silent longest is forgotten"
    assert table.next_sequence(name(31)) == 40
    assert table.find(name(31), 39) == (3139, 1), "of those silent long, the last batch is kept"
    assert table.find(name(31), 38) is None
    assert table.find(name(80), 0) == (8000, 1)


def test_a_sequence_that_skips_starts_anew() -> None:
    table = ProducerTable()
    table.record(name(1), 0, Slot(0), 1)
    table.record(name(1), 5, Slot(1), 1)
    assert table.next_sequence(name(1)) == 6
    assert table.find(name(1), 0) is None
    table.record(name(2), 57, Slot(2), 1)
    assert table.next_sequence(name(2)) == 58


def test_who_sent_elsewhere_meanwhile_goes_on_behind_that_and_never_goes_back() -> None:
    table = ProducerTable()
    for sequence in range(3):
        table.record(name(1), sequence, Slot(sequence), 1)
    table.begin(name(1), 2)
    assert (table.next_sequence(name(1)), table.find(name(1), 0)) == (3, (0, 1))
    table.begin(name(1), 7)
    assert (table.next_sequence(name(1)), table.find(name(1), 0)) == (7, None)
    table.record(name(1), 7, Slot(3), 1)
    assert (table.next_sequence(name(1)), table._rows) == (8, 1)
    table.begin(name(2), 4)
    assert table.next_sequence(name(2)) == 4


def test_a_damaged_snapshot_is_refused() -> None:
    table = ProducerTable()
    table.record(name(1), 0, Slot(0), 1)
    whole = run(table.snapshot(Slot(9)))
    for cut in range(1, len(whole)):
        with pytest.raises(Corrupt):
            ProducerTable.load(whole[:cut])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 60), st.booleans(), st.booleans())
def test_it_survives_reopening_trimming_and_collecting(trim: int, collect: bool, crash: bool) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        number = 0
        while data_files(log) < 5:
            producer = name(1 + number % 3 if number > 10 else 9)
            sequence = log.producers.next_sequence(producer)
            await append(log, batch(number, count=2, size=400, producer=producer, sequence=sequence))
            bind(log, 2)
            number += 1
        log.stage_trim(Glsn(2 * trim))
        await log.sync()
        if collect:
            await log.collect()
        before = {producer: log.producers.next_sequence(name(producer)) for producer in (1, 2, 3, 9)}
        last = log.producers.find(name(1), before[1] - 1)
        if crash:
            log.stage_batches(log.appended, [batch(0, producer=name(2), sequence=before[2])])
            assert log.producers.next_sequence(name(2)) == before[2] + 1
            disk.crash()
        log = await reopen(disk)
        assert {producer: log.producers.next_sequence(name(producer)) for producer in (1, 2, 3, 9)} == before
        assert before[9] == 11
        assert log.producers.find(name(1), before[1] - 1) == last

    run(scenario())


def test_a_batch_that_was_never_synced_is_in_no_snapshot() -> None:
    """A sidecar or base written while it was staged must not make its retry look like a repetition."""

    async def scenario(trim: int) -> None:
        disk = CrashDisk()
        log = await create(disk)
        while data_files(log) < 3:
            sequence = log.producers.next_sequence(name(1))
            await append(log, batch(sequence, size=400, producer=name(1), sequence=sequence))
            bind(log, 1)
        log.stage_trim(Glsn(trim))
        await log.sync()
        known = log.producers.next_sequence(name(1))
        log.stage_batches(log.appended, [batch(known, producer=name(1), sequence=known)])
        await log.collect()
        disk.crash()
        assert (await reopen(disk)).producers.next_sequence(name(1)) == known

    run(scenario(0))
    run(scenario(1000))
