"""A journal in a chain as processes: the member in the middle is killed, then the one at its end (J10).

All members acknowledge, so nothing is acknowledged from then on until others have taken over; the same leader goes
on in the next segment with what it had under way.
"""

import time
from pathlib import Path

from tests.cluster.audit import appends_of
from tests.cluster.chaos import Chaos
from tests.cluster.cluster import ClientProcess, RealCluster, real_cluster
from tests.cluster.led import JournalTrial
from tests.cluster.numbering import Numbering
from tests.cluster.processes import PATIENCE_S, eventually

import varlog
from varlog.sim.history import Append, Chain

MIDDLE, LAST = 1, 2
"""Places in a chain of three."""


class MembersKilled(Chaos):
    """One after the other, each for so long that the journal goes on with others."""

    def __init__(self, cluster: RealCluster, leader: ClientProcess) -> None:
        super().__init__(cluster.seed, [])
        self._cluster = cluster
        self._leader = leader
        self._numbering = Numbering(cluster, "wal")

    def rage(self, seconds: float) -> None:
        self._began = time.monotonic()
        for place in (MIDDLE, LAST):
            self._kill_member(place)

    def _kill_member(self, place: int) -> None:
        segment = eventually(self._served, "a chain of three serves its leader")
        number = segment.streams[0].members[place]
        node = self._cluster.nodes[number - 1]
        node.kill()
        killed = time.monotonic()
        self._note("kill", node, f"in place {place} of the chain of segment {segment.epoch}")
        following, waited = self._next_segment(segment)
        assert number not in following.streams[0].members
        eventually(lambda: self._acked(following.streams[0].id), "appends go on in the next segment")
        sent = [each for each in appends_of(self._leader) if each.start_time > killed and each.outcome == "ack"]
        early = [each for each in sent if each.end_time is not None and each.end_time < waited]
        assert not early, "acknowledged while a member of the chain was gone"
        self._start(node)
        self._cluster.wait_ready()

    def _served(self) -> varlog.SegmentDescription | None:
        segment = self._numbering.segment()
        whole = segment.streams and len(segment.streams[0].members) == LAST + 1
        return segment if whole and self._acked(segment.streams[0].id) else None

    def _acked(self, stream: int) -> list[Append]:
        return [each for each in appends_of(self._leader) if each.outcome == "ack" and each.stream == stream]

    def _next_segment(self, old: varlog.SegmentDescription) -> tuple[varlog.SegmentDescription, float]:
        """And the last moment at which the old one was known to be the last."""
        waited = [time.monotonic()]

        def look() -> varlog.SegmentDescription | None:
            asked = time.monotonic()
            segment = self._numbering.segment()
            if segment.epoch > old.epoch:
                return segment
            waited.append(asked)
            return None

        return eventually(look, f"segment {old.epoch} is followed by another"), waited[-1]


def test_the_middle_and_the_end_of_the_chain_are_killed(tmp_path: Path) -> None:
    with real_cluster(tmp_path, nodes=4) as cluster:
        cluster.ask(lambda asked: asked.journal("wal", replication="chain").__enter__())
        steady = cluster.add_client("subscribe", "wal", "steady")
        leader = cluster.add_client("lead", "wal", "candidate", pace=0.02, timeout=PATIENCE_S)
        cluster.add_client("look", "wal")
        trial = JournalTrial(cluster, MembersKilled(cluster, leader), steady, log="wal")
        trial.run(0.0)
        print(trial.summary())
        told = [record for record in trial.records if isinstance(record, Chain) and record.segments]
        assert max(len(each.segments) for each in told) > len((MIDDLE, LAST)), "each kill was followed by a segment"
