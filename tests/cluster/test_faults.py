"""`kill -9` and SIGSTOP of nodes, repository and clients at random moments, under load (I1-I10, I13, I14, S7).

VARLOG_CHAOS_SEED=N chooses other faults; VARLOG_SOAK_SECONDS=N makes the last test go on for so long.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.chaos import Chaos, Fault
from tests.cluster.cluster import RealCluster, real_cluster
from tests.cluster.processes import VARLOG, Process
from tests.cluster.trial import Trial

SEED = int(os.environ.get("VARLOG_CHAOS_SEED", "1"))
SOAK_S = float(os.environ.get("VARLOG_SOAK_SECONDS", "0"))
WRITERS = ("append", "batches", "producer", "named")


def try_it(
    folder: Path,
    faults: Callable[[RealCluster], Sequence[Fault]],
    seconds: float,
    *,
    nodes: int = 3,
    replicas: int = 3,
    streams: int = 2,
    roles: Sequence[str] = WRITERS,
) -> Trial:
    """Run a trial and print what happened in it."""
    with real_cluster(folder, nodes, SEED) as cluster:
        cluster.ask(lambda asked: asked.create_log("orders", replicas=replicas, streams=streams))
        steady = cluster.add_client("subscribe", "orders", "steady")
        for role in roles:
            cluster.add_client(role, "orders")
        follower = Process("tail", folder, [VARLOG, "--cluster", cluster.url, "-o", "json", "tail", "orders", "-f"])
        cluster.processes.append(follower)
        trial = Trial(cluster, Chaos(SEED, faults(cluster)), steady, follower)
        trial.run(seconds)
    print(trial.summary())
    assert trial.counts["entries acked"] > 100
    assert sum(trial.chaos.struck.values()) > 2
    return trial


def test_kill_nodes(tmp_path: Path) -> None:
    try_it(tmp_path, lambda cluster: [Fault("kill", cluster.nodes, every_s=1.5, lasts_s=1.0)], 12)


def test_kill_the_repository(tmp_path: Path) -> None:
    try_it(
        tmp_path,
        lambda cluster: [Fault("kill", [cluster.repository], every_s=1.2, lasts_s=1.0)],
        12,
        roles=(*WRITERS, "look"),
    )


def test_kill_clients(tmp_path: Path) -> None:
    try_it(
        tmp_path,
        lambda cluster: [Fault("kill", cluster.clients[1:], every_s=0.5, lasts_s=0.5)],
        12,
        roles=(*WRITERS, "named", "subscribe", "subscribe-stream"),
    )


def test_pause_nodes_and_the_repository(tmp_path: Path) -> None:
    try_it(
        tmp_path,
        lambda cluster: [
            Fault("pause", cluster.nodes, every_s=2.0, lasts_s=3.0),
            Fault("pause", [cluster.repository], every_s=4.0, lasts_s=3.0),
        ],
        12,
        roles=(*WRITERS, "look"),
    )


def test_everything_at_once(tmp_path: Path) -> None:
    try_it(
        tmp_path,
        lambda cluster: [
            Fault("kill", cluster.nodes, every_s=2.5, lasts_s=1.5),
            Fault("kill", [cluster.repository], every_s=5.0, lasts_s=1.0),
            Fault("kill", cluster.clients[1:], every_s=2.0, lasts_s=0.5),
            Fault("pause", cluster.nodes, every_s=5.0, lasts_s=3.0),
            Fault("pause", [cluster.repository], every_s=10.0, lasts_s=2.0),
        ],
        max(20, SOAK_S),
        nodes=4,
        replicas=2,
        streams=3,
        roles=(*WRITERS, "look", "trim", "subscribe", "subscribe-stream"),
    )
