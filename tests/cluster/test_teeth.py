"""The test of these tests: a bug planted into the real processes is noticed."""

from pathlib import Path

import pytest
from tests.cluster.chaos import Chaos, Fault
from tests.cluster.cluster import RealCluster
from tests.cluster.trial import Trial


@pytest.mark.parametrize(("bug", "invariant"), [("producers_forgotten", "I5")])
def test_a_planted_bug_is_found(tmp_path: Path, bug: str, invariant: str) -> None:
    """A node that forgets its producers when it is restarted takes what is sent again for new."""
    cluster = RealCluster(tmp_path, nodes=2)
    cluster.plant(bug)
    try:
        cluster.start()
        cluster.ask(lambda asked: asked.create_log("orders", replicas=2))
        steady = cluster.add_client("subscribe", "orders")
        producer = cluster.add_client("named", "orders", pace=0.01)
        faults = [Fault("kill", [node], 0.5, 0.1) for node in cluster.nodes]
        trial = Trial(cluster, Chaos(1, [*faults, Fault("kill", [producer], 1.0, 0.1)]), steady)
        with pytest.raises(AssertionError, match=f"{invariant} violated"):
            trial.run(4.0)
    finally:
        cluster.close()
