"""The test of these tests: a bug planted into the real processes is noticed."""

from pathlib import Path

import pytest
from tests.cluster.audit import appends_of
from tests.cluster.chaos import Chaos
from tests.cluster.client_program import REPEATED
from tests.cluster.cluster import ClientProcess, RealCluster
from tests.cluster.processes import PATIENCE_S, eventually
from tests.cluster.trial import Trial


class RestartOfAll(Chaos):
    """Between two lives of a producer every node is killed and started again: nothing is on its way meanwhile."""

    def __init__(self, cluster: RealCluster, producer: ClientProcess) -> None:
        super().__init__(cluster.seed, [])
        self._cluster = cluster
        self._producer = producer

    def rage(self, seconds: float) -> None:
        self._wait_acked(seconds)
        assert self._producer.stop(seconds) == 0, self._producer.last_words()
        for node in self._cluster.nodes:
            node.kill()
            self._note("kill", node, "with the others")
        for node in self._cluster.nodes:
            self._start(node)
        self._cluster.wait_ready()
        self._start(self._producer)
        self._wait_acked(seconds)

    def _wait_acked(self, seconds: float) -> None:
        """Until this life has as many batches acknowledged as the next one sends again."""
        life = f"{self._producer.name}#{self._producer.life}"

        def acked() -> bool:
            told = [each for each in appends_of(self._producer) if (each.client, each.outcome) == (life, "ack")]
            return len(told) >= REPEATED

        eventually(acked, f"{life} has {REPEATED} batches acknowledged", seconds)


@pytest.mark.parametrize(("bug", "invariant"), [("producers_forgotten", "I5")])
def test_a_planted_bug_is_found(tmp_path: Path, bug: str, invariant: str) -> None:
    """A node that forgets its producers when it is restarted takes what is sent again for new."""
    cluster = RealCluster(tmp_path, nodes=2)
    cluster.plant(bug)
    try:
        cluster.start()
        cluster.ask(lambda asked: asked.create_log("orders", replicas=2))
        steady = cluster.add_client("subscribe", "orders")
        # It ends when everything it sent has been acknowledged, however long that takes.
        producer = cluster.add_client("named", "orders", pace=0.01, timeout=PATIENCE_S)
        trial = Trial(cluster, RestartOfAll(cluster, producer), steady, least=0)
        with pytest.raises(AssertionError, match=f"{invariant} violated"):
            trial.run(PATIENCE_S)
    finally:
        cluster.close()
