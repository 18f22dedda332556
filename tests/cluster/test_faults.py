"""`kill -9` and SIGSTOP of nodes, repository and clients at random moments, under load (I1-I10, I13, I14, S7).

VARLOG_CHAOS_SEED=N chooses other faults; VARLOG_SOAK_SECONDS=N makes the last test go on for so long.
"""

import faulthandler
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cluster.chaos import Chaos, Fault
from tests.cluster.client_program import LEAD_TTL_S
from tests.cluster.cluster import ClientProcess, RealCluster, real_cluster
from tests.cluster.led import JournalTrial, Leading
from tests.cluster.numbering import LOST_S, Numbering
from tests.cluster.processes import VARLOG, Process
from tests.cluster.trial import Trial
from tests.cluster.up import up_cluster

from varlog.repository import RepositoryConfig
from varlog.sim.history import Replica

SEED = int(os.environ.get("VARLOG_CHAOS_SEED", "1"))
SOAK_S = float(os.environ.get("VARLOG_SOAK_SECONDS", "0"))
CHAOS_S = 9.0
"""How long faults strike in most tests."""
LEASE_S = RepositoryConfig().lease_ms / 1000
WRITERS = ("append", "batches", "producer", "named")


def try_it(
    cluster: RealCluster,
    faults: Sequence[Fault],
    seconds: float,
    *,
    replicas: int = 3,
    streams: int = 2,
    ordering: str = "cut",
    replication: str = "",
    journal: bool = False,
) -> list[Replica]:
    """Run a trial and print what happened in it. The first client is a subscriber that nothing strikes.

    What all replicas held at the end.
    """
    cluster.ask(
        lambda asked: asked.create_log(
            "orders",
            ordering=ordering,
            replicas=replicas,
            streams=streams,
            replication=replication,
            journal=journal,
        )
    )
    follower = Process("tail", cluster.folder, [VARLOG, "--cluster", cluster.url, "-o", "json", "tail", "orders", "-f"])
    cluster.processes.append(follower)
    kind = JournalTrial if journal else Trial
    trial = kind(cluster, Chaos(SEED, faults), cluster.clients[0], follower)
    trial.run(seconds)
    print(trial.summary())
    assert trial.counts["entries acked"] > 100
    assert trial.counts["chain"] >= 3, "before faults, after them and at the end"
    assert {fault.what for fault in faults} == {what.split()[0] for what in trial.chaos.struck}
    return [record for record in trial.records if isinstance(record, Replica)]


def add_clients(cluster: RealCluster, *roles: str) -> list[ClientProcess]:
    """One that follows from the beginning and is left alone, and the others."""
    cluster.add_client("subscribe", "orders", "steady")
    return [cluster.add_client(role, "orders") for role in roles]


def test_kill_nodes(tmp_path: Path) -> None:
    with real_cluster(tmp_path, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS)
        try_it(cluster, [Fault("kill", cluster.nodes, every_s=1.5, lasts_s=1.0)], CHAOS_S)


def test_kill_the_repository(tmp_path: Path) -> None:
    with real_cluster(tmp_path, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS, "look")
        try_it(cluster, [Fault("kill", [cluster.repository], every_s=1.2, lasts_s=1.0)], CHAOS_S)


def test_kill_clients(tmp_path: Path) -> None:
    with real_cluster(tmp_path, seed=SEED) as cluster:
        victims = add_clients(cluster, *WRITERS, "named", "subscribe", "subscribe-stream")
        try_it(cluster, [Fault("kill", victims, every_s=0.5, lasts_s=0.5)], CHAOS_S)


def test_pause_nodes_and_the_repository(tmp_path: Path) -> None:
    with real_cluster(tmp_path, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS, "look")
        faults = [
            Fault("pause", cluster.nodes, every_s=2.0, lasts_s=3.0),
            Fault("pause", [cluster.repository], every_s=4.0, lasts_s=3.0),
        ]
        try_it(cluster, faults, CHAOS_S)


def test_pause_nodes_for_longer_than_their_lease(tmp_path: Path) -> None:
    """Others have taken over when they wake up, and they must not acknowledge what they were about to."""
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS, "look")
        pauses = Fault("pause", cluster.nodes, every_s=3.0, lasts_s=LEASE_S + 2.0, at_least_s=LEASE_S + 0.5)
        try_it(cluster, [pauses], 1.5 * CHAOS_S)


def test_disks_that_return_eio(tmp_path: Path) -> None:
    """A failed replica is not trusted again: its stream is replaced, and it is made anew from the others."""
    cluster = RealCluster(tmp_path, nodes=3, seed=SEED)
    for node in cluster.nodes:
        node.command = [sys.executable, "-m", "tests.cluster.failing_disk", *node.command[1:]]
    try:
        cluster.start()
        add_clients(cluster, *WRITERS, "look")
        # the third has a good copy of everything
        replicas = try_it(cluster, [Fault("fail", cluster.nodes[:2], every_s=1.5, lasts_s=0.0)], CHAOS_S)
        assert len({replica.stream for replica in replicas}) > 2, "streams were replaced"
        assert all(replica.state != "failed" for replica in replicas)
    finally:
        cluster.close()


def test_kill_what_varlog_up_started(tmp_path: Path) -> None:
    with up_cluster(tmp_path, nodes=3, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS)
        try_it(cluster, [Fault("kill", cluster.servers, every_s=1.2, lasts_s=0.1)], CHAOS_S)


def sleeps_until_overtaken(numbering: Numbering, nodes: Sequence[Process]) -> Fault:
    """Stops the node that numbers entries until others have taken over, and some time more."""
    return Fault("pause", nodes, 4.0, LOST_S + 1.5, LOST_S + 0.5, aim=numbering.aim, until=numbering.is_over)


def test_kill_and_pause_leaders(tmp_path: Path) -> None:
    """One that sleeps until another has taken over can acknowledge nothing when it wakes up (I11)."""
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS, "look")
        numbering = Numbering(cluster)
        faults = [
            Fault("kill", cluster.nodes, every_s=2.0, lasts_s=1.0),
            sleeps_until_overtaken(numbering, cluster.nodes),
        ]
        try_it(cluster, faults, CHAOS_S, streams=1, ordering="leader")
        assert numbering.overtaken


def test_kill_and_pause_members_of_a_leader_s_chain(tmp_path: Path) -> None:
    """All members acknowledge, so each that is away ends the segment; whoever is left tells where."""
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        add_clients(cluster, *WRITERS, "look")
        faults = [
            Fault("kill", cluster.nodes, every_s=2.0, lasts_s=1.0),
            Fault("pause", cluster.nodes, every_s=4.0, lasts_s=LOST_S + 1.0),
        ]
        replicas = try_it(cluster, faults, CHAOS_S, streams=1, ordering="leader", replication="chain")
        assert len({replica.segment for replica in replicas}) > 1, "segments ended"


@pytest.mark.parametrize("replication", ["broadcast", "chain"])
def test_kill_and_pause_leaders_and_members_of_a_journal(replication: str, tmp_path: Path) -> None:
    """Whoever sleeps until another leads can acknowledge nothing when it wakes up (I11)."""
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        candidates = add_clients(cluster, "lead", "lead", "lead")
        cluster.add_client("look", "orders")
        leading = Leading(cluster, candidates, "orders")
        faults = [
            Fault("kill", cluster.nodes, every_s=2.5, lasts_s=1.0),
            Fault("pause", cluster.nodes, every_s=4.0, lasts_s=LOST_S + 1.0),
            Fault("kill", candidates, every_s=2.0, lasts_s=0.5),
            Fault("pause", candidates, 3.0, 4 * LEAD_TTL_S, LEAD_TTL_S, aim=leading.aim, until=leading.is_over),
        ]
        replicas = try_it(cluster, faults, CHAOS_S, streams=1, ordering="leader", replication=replication, journal=True)
        assert len({replica.segment for replica in replicas}) > 1, "segments ended"
        assert leading.overtaken


def test_kill_and_pause_sequencers_chain_members_and_their_writers(tmp_path: Path) -> None:
    """Chains are left half written and positions unused: whoever comes by completes or fills them.

    A sequencer that sleeps until another has taken over grants nothing that can be written any more (I11).
    """
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        writers = add_clients(cluster, *WRITERS, "look")
        numbering = Numbering(cluster)
        faults = [
            Fault("kill", cluster.nodes, every_s=2.5, lasts_s=1.0),
            sleeps_until_overtaken(numbering, cluster.nodes),
            Fault("kill", writers, every_s=1.0, lasts_s=0.5),
            Fault("pause", writers, every_s=2.0, lasts_s=2.0),
        ]
        try_it(cluster, faults, CHAOS_S, ordering="sequencer")
        assert numbering.overtaken


def test_everything_at_once(tmp_path: Path) -> None:
    """Of four nodes two have each entry: when one is away, the other streams go on."""
    if SOAK_S:
        faulthandler.cancel_dump_traceback_later()  # pytest would end it after a few minutes
    with real_cluster(tmp_path, nodes=4, seed=SEED) as cluster:
        clients = add_clients(cluster, *WRITERS, "look", "trim", "subscribe", "subscribe-stream")
        faults = [
            Fault("kill", cluster.nodes, every_s=2.5, lasts_s=1.5),
            Fault("kill", [cluster.repository], every_s=5.0, lasts_s=1.0),
            Fault("kill", clients, every_s=2.0, lasts_s=0.5),
            Fault("pause", cluster.nodes, every_s=5.0, lasts_s=3.0),
            Fault("pause", [cluster.repository], every_s=10.0, lasts_s=2.0),
        ]
        try_it(cluster, faults, max(2 * CHAOS_S, SOAK_S), replicas=2, streams=3)
