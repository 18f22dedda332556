"""A full volume of a real node: appends are refused, everything is still read, and it goes on when there is room."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cluster.audit import all_replicas, read_log, recorded_append, save_history, wait_bound, wait_committed
from tests.cluster.cluster import RealCluster
from tests.cluster.processes import PATIENCE_S, eventually
from tests.cluster.small_volume import SmallVolume, may_mount, mounted, pretended

import varlog
from varlog.sim.checkers import check_history
from varlog.sim.history import Append, Expectation, Record, Trim

Make = Callable[[Path], AbstractContextManager[SmallVolume]]
WAYS: dict[str, Make] = {"pretended": pretended}
if may_mount():
    WAYS["tmpfs"] = mounted

VICTIM = 2
FILE_BYTES = 4 << 20
"""Of which a first file has a sixteenth, and more than twice a large entry."""
LARGE = 100_000
"""Bytes of an entry that fills files quickly."""
GIVEN_UP_S = 1.0
"""An append that cannot be copied is not answered: so long is waited for it."""


@dataclass
class Filled:
    """A cluster, one of whose nodes has a small volume, and what was asked of it."""

    cluster: RealCluster
    volume: SmallVolume
    own: int
    """The stream whose primary is on the small volume."""
    other: int
    """One that has only a backup there."""
    records: list[Record] = field(default_factory=list)

    def append(self, log: "varlog.sync.Log", stream: int, *, padding: int = 0, timeout: float = PATIENCE_S) -> Append:
        name = f"entry.{len(self.records)}"
        append = recorded_append(log, name, padding=padding, stream=stream, timeout=timeout)
        self.records.append(append)
        return append

    def until_refused(self, log: "varlog.sync.Log", stream: int, timeout: float = PATIENCE_S) -> Append:
        """Append until that no longer works."""
        for _ in range(100):
            append = self.append(log, stream, padding=LARGE, timeout=timeout)
            if append.outcome != "ack":
                return append
        raise AssertionError("the volume never fills up")

    def goes_on(self, log: "varlog.sync.Log") -> None:
        """Within a bound, every stream that has not ended takes appends again."""
        healed = time.monotonic()
        for stream in [each for each in log.info().chain[0].streams if each.writable]:
            self.records.append(Expectation(log=log.name, stream=stream.id, healed_time=healed, bound=PATIENCE_S))
            eventually(lambda stream=stream: self.append(log, stream.id).outcome == "ack", "appends work")  # type: ignore[misc]

    def acked(self) -> int:
        return sum(isinstance(record, Append) and record.outcome == "ack" for record in self.records)


@pytest.fixture(params=WAYS)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """With some entries in every stream, and no room left."""
    cluster = RealCluster(tmp_path, nodes=3, file_bytes=FILE_BYTES)
    with WAYS[request.param](cluster.data(VICTIM)) as volume:
        volume.use(cluster.nodes[VICTIM - 1])
        try:
            cluster.start()
            description = cluster.ask(lambda asked: asked.create_log("orders", streams=3).info())
            primaries = {stream.members[0]: stream.id for stream in description.chain[0].streams}
            filled = Filled(cluster, volume, primaries.pop(VICTIM), min(primaries.values()))
            with cluster.connected() as asked:
                for stream in (1, 2, 3):
                    assert filled.append(asked.log("orders"), stream).outcome == "ack"
            volume.leave(0)
            yield filled
        finally:
            cluster.close()


def judge(filled: Filled) -> None:
    """Nothing acked is lost, nothing refused is there, and what was of unknown outcome is there once or not at all."""
    wait_bound(filled.cluster)
    final = read_log(filled.cluster.url, "orders")
    wait_committed(filled.cluster, final)
    filled.records.append(final)
    filled.records += all_replicas(filled.cluster)
    history = save_history(filled.cluster.folder / "history.jsonl", filled.records)
    assert [str(violation) for violation in check_history(history)] == []
    assert filled.cluster.complaints() == []


def test_appends_are_refused_reads_go_on_and_room_helps(filled: Filled) -> None:
    with filled.cluster.connected() as asked:
        log = asked.log("orders")
        refused = filled.until_refused(log, filled.own)
        assert (refused.outcome, refused.error) == ("refused", "NoSpace")
        # The primary has room and its backup has not: not answered, and there once the backup has it.
        assert filled.until_refused(log, filled.other, GIVEN_UP_S).outcome == "unknown"
        eventually(lambda: _told_to_be_full(filled.cluster), "status tells")
        _all_is_read(filled, log)
        filled.volume.leave(FILE_BYTES * 6)
        filled.goes_on(log)
        eventually(lambda: not _told_to_be_full(filled.cluster), "status tells no more")
    judge(filled)


def test_a_node_starts_with_a_full_volume_and_serves(filled: Filled) -> None:
    """Its own copy is read while the others are away."""
    cluster = filled.cluster
    node = cluster.nodes[VICTIM - 1]
    with cluster.connected() as asked:
        log = asked.log("orders")
        assert filled.until_refused(log, filled.own).error == "NoSpace"
        wait_bound(cluster)
        node.kill()
        filled.volume.leave(0)
        node.start()
        cluster.wait_ready()
        for other in cluster.nodes:
            if other is not node:
                other.kill()
        _all_is_read(filled, log)
        for other in cluster.nodes:
            if other is not node:
                other.start()
        cluster.wait_ready()
        assert filled.until_refused(log, filled.own, GIVEN_UP_S).outcome != "ack"
        filled.volume.leave(FILE_BYTES * 6)
        filled.goes_on(log)
    judge(filled)


def test_trimming_makes_room(filled: Filled) -> None:
    """Without anybody freeing anything else."""
    with filled.cluster.connected() as asked:
        log = asked.log("orders")
        filled.volume.leave(FILE_BYTES * 2)
        refused = filled.until_refused(log, filled.own)
        assert (refused.outcome, refused.error) == ("refused", "NoSpace")
        _all_is_read(filled, log)
        trim = Trim(log="orders", upto=log.tail(), start_time=time.monotonic())
        log.trim(trim.upto)
        trim.done, trim.end_time = True, time.monotonic()
        filled.records.append(trim)
        eventually(lambda: filled.append(log, filled.own).outcome == "ack", "appends work")
        filled.goes_on(log)
        with pytest.raises(varlog.Trimmed):
            log.read(trim.upto)
    judge(filled)


def _told_to_be_full(cluster: RealCluster) -> bool:
    nodes = cluster.ask(lambda asked: asked.nodes())
    return any("volume is full" in trouble for node in nodes if node.id == VICTIM for trouble in node.troubles)


def _all_is_read(filled: Filled, log: "varlog.sync.Log") -> None:
    with log.subscribe(start=1, wait=False) as subscription:
        assert sum(1 for _ in subscription) >= filled.acked()
