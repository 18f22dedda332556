"""A task's rows are in the log once, however often and however far the task was run; without Spark."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.archive.by_hand import archive
from tests.cluster.cluster import RealCluster, real_cluster
from tests.cluster.processes import PATIENCE_S

import varlog
from varlog.archive import batches as pieces
from varlog.base.errors import Conflict, Sealed, TooLarge, Trimmed
from varlog.spark import deliver as room
from varlog.spark import rows as cutting
from varlog.spark.deliver import deliver
from varlog.spark.rows import Rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three entries a batch, four batches a name, two at once."""
    monkeypatch.setattr(cutting, "WRITE_ENTRIES", 3)
    monkeypatch.setattr(room, "WRITES_PER_NAME", 4)
    monkeypatch.setattr(room, "WRITES_AT_ONCE", 2)


def made(names: list[str]) -> Rows:
    """Rows with a key each, and headers for some."""
    headers = [{"n": name.encode()} if number % 2 else {} for number, name in enumerate(names)]
    return Rows([name.encode() for name in names], [b"k%d" % (len(name) % 2) for name in names], headers)


def payloads(log: varlog.sync.Log) -> list[str]:
    return [entry.payload.decode() for entry in log.subscribe(wait=False)]


NAMES = [f"row{number}" for number in range(40)]


class Interrupted(Exception):
    """The task is killed."""


def broken_off(names: list[str], after: int) -> Iterator[Rows]:
    for number, name in enumerate(names):
        if number == after:
            raise Interrupted
        headers = {"n": name.encode()} if number % 2 else {}
        yield Rows([name.encode()], [b"k%d" % (len(name) % 2)], [headers])


def test_a_first_run_appends_everything_in_order(log: varlog.sync.Log) -> None:
    assert deliver(log, "task", [made(NAMES)], 30) == 40
    entries = list(log.subscribe(wait=False))
    assert [entry.payload.decode() for entry in entries] == NAMES
    assert [entry.headers.get("n") for entry in entries] == [
        name.encode() if number % 2 else None for number, name in enumerate(NAMES)
    ]
    assert {entry.key for entry in entries} == {b"k0", b"k1"}


@pytest.mark.parametrize("after", [0, 3, 7, 13, 24, 26, 39])
def test_a_second_run_adds_what_is_missing(log: varlog.sync.Log, after: int) -> None:
    with pytest.raises(Interrupted):
        deliver(log, "task", broken_off(NAMES, after), 30)
    there = len(payloads(log))
    assert there <= after
    assert deliver(log, "task", [made(NAMES)], 30) == 40 - there
    assert payloads(log) == NAMES
    assert deliver(log, "task", [made(NAMES)], 30) == 0
    assert payloads(log) == NAMES


def test_batches_fit_into_the_turn_of_a_stream(client: varlog.sync.Cluster, log: varlog.sync.Log) -> None:
    striped = client.create_log(f"{log.name}-striped", ordering="sequencer", replicas=2, streams=2, unit=2)
    with pytest.raises(Interrupted):
        deliver(striped, "task", broken_off(NAMES, 20), 30)
    there = len(payloads(striped))
    assert 0 < there <= 20
    assert deliver(striped, "task", [made(NAMES)], 30) == 40 - there
    assert deliver(striped, "task", [made(NAMES)], 30) == 0
    assert payloads(striped) == NAMES


def test_the_log_may_change_its_ordering_between_two_runs(log: varlog.sync.Log) -> None:
    for ordering, names in (("sequencer", NAMES[:10]), ("cut", NAMES[:20]), ("sequencer", NAMES[:30]), ("cut", NAMES)):
        log.reconfigure(ordering=ordering, unit=2 if ordering == "sequencer" else None)
        assert deliver(log, "task", [made(names)], 30) == 10
        assert payloads(log) == names


@pytest.mark.parametrize("unit", [2, 4])
@pytest.mark.parametrize("at", [0, 1, 14, 24])
def test_the_log_may_change_its_ordering_during_a_run(log: varlog.sync.Log, unit: int, at: int) -> None:
    """Batches get smaller where they must, and no name has batches in streams that take turns."""

    def parts() -> Iterator[Rows]:
        yield made(NAMES[:at])
        log.reconfigure(ordering="sequencer", unit=unit)
        yield made(NAMES[at:30])
        log.reconfigure(ordering="cut")
        yield made(NAMES[30:])

    expected = made(NAMES[:at]), made(NAMES[at:30]), made(NAMES[30:])
    assert deliver(log, "task", parts(), 30) == 40
    assert payloads(log) == NAMES
    assert deliver(log, "task", expected, 30) == 0
    log.reconfigure(ordering="sequencer", unit=unit)
    assert deliver(log, "task", [*expected, made(["more"])], 30) == 1
    assert payloads(log) == [*NAMES, "more"]


def test_the_log_may_change_its_ordering_between_the_question_and_the_batch(
    log: varlog.sync.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was cut for streams without turns is refused then, and cut again."""
    asked = room._Delivery._turn_entries
    answers: list[int | None] = []

    def late(self: room._Delivery) -> int | None:
        answers.append(asked(self))
        if len(answers) == 3:
            log.reconfigure(ordering="sequencer", unit=2)
        return answers[-1]

    monkeypatch.setattr(room, "WRITES_AT_ONCE", 1)
    monkeypatch.setattr(room._Delivery, "_turn_entries", late)
    assert deliver(log, "task", [made(NAMES)], 30) == 40
    assert set(answers) == {None, 2}
    assert payloads(log) == NAMES
    assert deliver(log, "task", [made(NAMES)], 30) == 0


def test_rows_may_come_in_another_order(log: varlog.sync.Log) -> None:
    with pytest.raises(Interrupted):
        deliver(log, "task", broken_off(NAMES, 20), 30)
    rows = made(NAMES)
    again = Rows(rows.payloads[::-1], rows.keys[::-1], rows.headers[::-1])
    deliver(log, "task", [again], 30)
    assert sorted(payloads(log)) == sorted(NAMES)


def overtaken(log: varlog.sync.Log, other: Rows, names: list[str]) -> Iterator[Rows]:
    """Rows of a run that has begun when another run of the same task appends."""
    deliver(log, "task", [other], 30)
    yield made(names)


@pytest.mark.parametrize("other", [NAMES[:5], NAMES[2:5] + NAMES[:2], NAMES[5:8] + NAMES[:2], NAMES[5:8]])
def test_a_run_does_not_take_the_rows_of_another_for_its_own(log: varlog.sync.Log, other: list[str]) -> None:
    """Two at once, whose batches have the same numbers and other rows; their counts may be the same."""
    rows = made(NAMES)
    at = [NAMES.index(name) for name in other]
    earlier = Rows([rows.payloads[n] for n in at], [rows.keys[n] for n in at], [rows.headers[n] for n in at])
    with pytest.raises(Conflict, match="run the task again"):
        deliver(log, "task", overtaken(log, earlier, NAMES), 30)
    assert deliver(log, "task", [made(NAMES)], 30) == 40 - len(other)
    assert sorted(payloads(log)) == sorted(NAMES)


def test_of_two_runs_with_the_same_rows_each_is_content(log: varlog.sync.Log) -> None:
    assert deliver(log, "task", overtaken(log, made(NAMES[:30]), NAMES), 30) == 40
    assert payloads(log) == NAMES


def test_equal_rows_are_counted_not_merged(log: varlog.sync.Log) -> None:
    same = Rows([b"same"] * 20, [None] * 20, [{} for _ in range(20)])
    with pytest.raises(Interrupted):
        deliver(log, "task", iter([same.part(0, 10), *broken_off(["x"], 0)]), 30)
    deliver(log, "task", [same], 30)
    assert payloads(log) == ["same"] * 20


def test_other_rows_than_the_first_time_are_refused(log: varlog.sync.Log) -> None:
    deliver(log, "task", [made(NAMES)], 30)
    with pytest.raises(Conflict, match="40 entries that are not among its rows"):
        deliver(log, "task", [made(["other"])], 30)


@pytest.mark.parametrize("upto", [1, 20, 40])
def test_what_was_trimmed_since_cannot_be_told_from_what_is_missing(log: varlog.sync.Log, upto: int) -> None:
    deliver(log, "task", [made(NAMES)], 30)
    log.trim(upto)
    with pytest.raises(Trimmed, match="under another identity") as gone:
        deliver(log, "task", [made(NAMES)], 30)
    assert gone.value.first == upto + 1
    assert deliver(log, "another", [made(["more"])], 30) == 1


def test_a_batch_that_is_trimmed_while_it_is_looked_for_comes_from_the_archive(
    servers: RealCluster, log: varlog.sync.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it lies in pieces, and all of them count."""

    async def archived() -> None:
        async with varlog.connect(servers.url) as cluster:
            await archive(cluster.log(log.name), tmp_path)

    def overtaken(self: varlog.sync.Log, *arguments: Any, **settings: Any) -> varlog.sync.Subscription:
        self.trim(3)
        return subscribe(self, *arguments, **settings)

    deliver(log, "task", [made(NAMES[:3])], 30)
    asyncio.run(archived())
    subscribe = varlog.sync.Log.subscribe
    monkeypatch.setattr(pieces, "BATCH_ENTRIES", 2)
    monkeypatch.setattr(varlog.sync.Log, "subscribe", overtaken)
    assert deliver(log, "task", [made(NAMES)], 30) == 37
    assert payloads(log) == NAMES


def test_tasks_do_not_know_each_other(log: varlog.sync.Log) -> None:
    deliver(log, "task.1", [made(NAMES)], 30)
    deliver(log, "task.2", [made(NAMES)], 30)
    assert payloads(log) == NAMES * 2


def test_no_rows(log: varlog.sync.Log) -> None:
    assert deliver(log, "task", [], 30) == 0
    assert log.tail() == 0


def test_what_can_never_be_appended_is_told_at_once(log: varlog.sync.Log) -> None:
    with pytest.raises(TooLarge):
        deliver(log, "task", [Rows([bytes(9 << 20)], [None], [{}])], 30)
    log.seal()
    with pytest.raises(Sealed):
        deliver(log, "task", [made(NAMES)], 30)


def test_a_lost_node_does_not_end_the_task(tmp_path: Path) -> None:
    """The stream of the task's producer ends with it, and the rest goes to another."""
    with real_cluster(tmp_path, 3) as cluster, cluster.connected() as client:
        log = client.create_log("log", replicas=2, streams=2)

        def parts() -> Iterator[Rows]:
            yield made(NAMES[:20])
            os.kill(primary(cluster, log), signal.SIGKILL)
            yield made(NAMES[20:])

        assert deliver(log, "task", parts(), PATIENCE_S) == 40
        assert payloads(log) == NAMES


def primary(cluster: RealCluster, log: varlog.sync.Log) -> int:
    """The process of the node that leads the stream which was written to last."""
    last = log.read(log.tail())
    stream = next(each for each in log.info().chain[-1].streams if each.id == last.stream)
    return cluster.nodes[stream.members[0] - 1].pid
