"""Repositories on a real etcd: members and repositories killed, and real partitions between network namespaces."""

import time
from pathlib import Path

from tests.cluster.chaos import Chaos, Fault
from tests.cluster.processes import PATIENCE_S, eventually
from tests.cluster.shared import SharedCluster, shared_cluster
from tests.cluster.test_faults import CHAOS_S, SEED, add_clients, try_it
from tests.cluster.trial import Trial
from tools.etcd import Ensemble, running
from tools.namespaces import Host, Hub, network

import varlog
from varlog.base.errors import Unavailable, VarlogError
from varlog.runtime.loop import run
from varlog.transport.peer import connect
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

REFUSAL = "out of touch with the repository"


def test_members_of_etcd_and_repositories_are_killed(tmp_path: Path) -> None:
    with running(tmp_path, 3) as etcd, shared_cluster(tmp_path, etcd, repositories=3, seed=SEED) as cluster:
        add_clients(cluster, "append", "producer", "named", "look")
        faults = [
            Fault("kill", cluster.members, every_s=2.5, lasts_s=1.5),
            Fault("kill", cluster.repositories, every_s=3.0, lasts_s=1.0),
        ]
        try_it(cluster, faults, CHAOS_S)


class Partitions(Chaos):
    """A node is cut off from the repositories until its lease is over; then the leader from etcd until it is not."""

    def __init__(self, cluster: SharedCluster, hub: Hub, etcd: Host) -> None:
        super().__init__(SEED, [])
        self._cluster = cluster
        self._hub = hub
        self._etcd = etcd

    def rage(self, seconds: float) -> None:
        self._began = time.monotonic()
        time.sleep(1.0)
        self._cut_off_node(seconds)
        self._cut_off_leader(seconds)
        time.sleep(1.0)

    def heal(self) -> None:
        self._hub.heal()

    def _cut_off_node(self, seconds: float) -> None:
        number, stream = self._cluster.ask(lambda asked: led_stream(asked.log("orders")))
        node = self._cluster.nodes[number - 1]
        for repository in self._cluster.repositories:
            self._hub.cut(self._cluster.hosts[node], self._cluster.hosts[repository])
        self._note("cut off", node, "from the repositories")
        eventually(lambda: REFUSAL in refusal(node.address, stream), f"{node} says why it refuses appends", seconds)
        self.heal()
        eventually(lambda: REFUSAL not in refusal(node.address, stream), f"{node} is back in touch", seconds)

    def _cut_off_leader(self, seconds: float) -> None:
        leader = eventually(self._cluster.leader, "somebody leads", seconds)
        self._hub.cut(self._cluster.hosts[leader], self._etcd)
        self._note("cut off", leader, "from etcd")
        eventually(lambda: self._cluster.leader() not in (None, leader), "another leads", seconds)
        self.heal()


def led_stream(log: "varlog.sync.Log") -> tuple[int, pb.AppendRequest]:
    """A node that is the primary of a stream, and an append to that."""
    info = log.info()
    stream = next(stream for stream in info.chain[-1].streams if stream.writable)
    return stream.members[0], pb.AppendRequest(log=info.id, segment=len(info.chain), stream=stream.id)


def refusal(address: str, request: pb.AppendRequest) -> str:
    """Why a node refuses an append, asked directly; what is sent is no batch, so nothing can come of it."""

    async def ask() -> str:
        peer = await connect(real_world(), address, {}, timeout=1.0)
        try:
            await peer.call(Method.APPEND, request, [b"no batch"], timeout=0.2)
        except VarlogError as error:
            return error.message
        finally:
            peer.close()
        return ""

    try:
        return run(ask())
    except Unavailable:
        return ""


def test_partitions(tmp_path: Path) -> None:
    """A node that has lost the repositories says so; a leader that has lost etcd is replaced; nothing is lost."""
    with network() as hub:
        host = hub.add()
        etcd = Ensemble(tmp_path / "etcd", host=host.address, launch=host.launch)
        try:
            etcd.start()
            with shared_cluster(tmp_path, etcd, repositories=2, seed=SEED, hub=hub) as cluster:
                add_clients(cluster, "append", "batches", "named")
                cluster.ask(lambda asked: asked.create_log("orders", replicas=2, streams=3))
                trial = Trial(cluster, Partitions(cluster, hub, host), cluster.clients[0])
                trial.run(PATIENCE_S)
                print(trial.summary())
                assert trial.counts["entries acked"] > 100
        finally:
            etcd.close()
