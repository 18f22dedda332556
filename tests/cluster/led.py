"""A journal and the client that leads it."""

from collections.abc import Sequence

from tests.cluster.audit import appends_of, recorded_chain
from tests.cluster.cluster import ClientProcess, RealCluster
from tests.cluster.processes import Process, eventually
from tests.cluster.trial import BOUND_S, Trial

import varlog
from varlog.sim.history import Append, Expectation


def describe(cluster: RealCluster, journal: str = "wal") -> varlog.LogDescription:
    info = cluster.ask(lambda asked: asked.log(journal).info())
    assert isinstance(info, varlog.LogDescription)
    return info


def leader_of(cluster: RealCluster, candidates: Sequence[ClientProcess], journal: str = "wal") -> ClientProcess | None:
    name = describe(cluster, journal).chain[-1].leader
    return next((each for each in candidates if each.name == name), None)


class Leading:
    """Whoever leads a journal, as faults want it."""

    def __init__(self, cluster: RealCluster, candidates: Sequence[ClientProcess], journal: str) -> None:
        self._cluster = cluster
        self._candidates = candidates
        self._journal = journal
        self._struck: ClientProcess | None = None
        self.overtaken: list[Process] = []
        """Those that led when they were struck, and were followed by another before that was undone."""

    def aim(self) -> ClientProcess:
        """Whom to strike; any of them, while nobody leads."""
        self._struck = leader_of(self._cluster, self._candidates, self._journal)
        return self._struck or self._candidates[0]

    def is_over(self, victim: Process) -> bool:
        """Another leads."""
        leader = leader_of(self._cluster, self._candidates, self._journal)
        over = leader is not None and leader is not victim
        if over and victim is self._struck:
            self.overtaken.append(victim)
        return over


class JournalTrial(Trial):
    """To a journal its leader alone appends: nobody else can try whether it takes anything."""

    def _probe(self, healed: float) -> None:
        def acked() -> list[Append]:
            appends = [each for client in self.cluster.clients for each in appends_of(client)]
            return [each for each in appends if each.outcome == "ack" and each.start_time > healed]

        first = eventually(acked, "the journal takes an append")[0]
        expected = Expectation(log=self.log, stream=first.stream, healed_time=healed, bound=BOUND_S)
        self.probed = [expected]
        with self.cluster.connected() as cluster:
            self.records.append(recorded_chain(cluster.log(self.log)))
        self.recovered_s = (first.end_time or healed) - healed

    def _append_last(self, log: "varlog.sync.Log") -> None:
        """There is no junk at the tail of a journal."""
