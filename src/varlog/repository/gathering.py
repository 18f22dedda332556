"""Reports that reach the leading repository through those that follow (M5).

    node ──▶ follower 1 ──┐                     every node has two gatherers, which the leader names
         ──▶ follower 2 ──┴──▶ leader           with every lease; what both bring counts once

A small cluster must not pay a hop for it: there the leader is one of the two, nodes tell it every change themselves,
and a follower only now and then. With more nodes than `direct_nodes` a leader would drown in frames: two followers
gather what changes, what several nodes said travels in one frame, and of what a node said twice only the newer;
heartbeats still go to the leader, which has to know who is alive. Commits go from the leader to the nodes at once: an
append waits for them, and nothing is to be joined, for what a cut means to a node is one message already.

A report is passed on as it is, under the node's own boot and sequence. The leader takes those that are newer than what
it has, whoever brings them: so late, doubled and crossing ones change nothing, and no follower can make an old one new.
"""

from collections.abc import Callable

from varlog.base.errors import VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.metadata.election import leader_of
from varlog.ports import MetadataStore, World
from varlog.ports.clock import Timer
from varlog.transport.ending import ended
from varlog.transport.peer import Peer, connect
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

GATHERERS = 2
"""Of each node, where there are so many; the leader counts as one as long as nodes report to it themselves."""
LOOK_S = 0.2
"""How often to look who leads, when that is not known or did not answer."""
CALL_TIMEOUT_S = 2.0
FORWARD_EVERY_S = 0.002
"""What comes sooner after the last frame waits, and travels with what comes meanwhile."""
ROWS = 100_000
"""Most replicas of which something waits to be forwarded. What comes beyond is dropped; heartbeats make it good."""


class Gatherers:
    """Who gathers, as the leader sees it."""

    def __init__(self, direct_nodes: int) -> None:
        self._direct_nodes = direct_nodes
        self._peers: dict[str, Peer] = {}

    def add(self, address: str, peer: Peer) -> None:
        """It gathers until its connection ends."""
        self._peers[address] = peer
        peer.on_close(lambda _: self._remove(address, peer))

    def _remove(self, address: str, peer: Peer) -> None:
        if self._peers.get(address) is peer:
            del self._peers[address]

    def has(self, peer: Peer) -> bool:
        return any(each is peer for each in self._peers.values())

    def of(self, node: NodeId, nodes: int) -> tuple[list[str], bool]:
        """Who gathers from a node of so many; and whether nobody else is told of changes."""
        addresses = sorted(self._peers)
        indirect = nodes > self._direct_nodes and len(addresses) >= GATHERERS
        count = min(len(addresses), GATHERERS if indirect else GATHERERS - 1)
        return [addresses[(node + turn) % len(addresses)] for turn in range(count)], indirect


class Gatherer:
    """What a repository does with reports while another leads: join them, and pass them on."""

    def __init__(self, world: World, store: MetadataStore, election: str, address: Callable[[], str]) -> None:
        """`address` says where this repository serves."""
        self._world = world
        self._store = store
        self._election = election
        self._address = address
        self._leader: Peer | None = None
        self._waiting: dict[NodeId, _Waiting] = {}
        self._rows = 0
        self._timer: Timer | None = None
        self._forwarded_at = 0.0

    async def run(self) -> None:
        """Until cancelled: find the leader, and gather for it."""
        try:
            while True:
                await self._world.clock.sleep(LOOK_S)
                try:
                    await self._serve()
                except VarlogError:
                    continue  # the store, or who leads, is away: look again
        finally:
            self._clear()

    async def _serve(self) -> None:
        leader = await leader_of(self._store, self._election)
        if leader is None or leader.identity == self._address():
            return
        peer = await connect(self._world, leader.identity, {}, timeout=CALL_TIMEOUT_S)
        try:
            await peer.call(Method.GATHER, pb.GatherRequest(address=self._address()), timeout=CALL_TIMEOUT_S)
            self._leader = peer
            await ended(peer)
        finally:
            self._leader = None
            self._clear()
            peer.close()

    def _clear(self) -> None:
        self._waiting.clear()
        self._rows = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, report: pb.GetReportResponse) -> None:
        """A node has pushed it."""
        if self._leader is None or self._rows + len(report.uncommit_reports) > ROWS:
            return
        node = NodeId(report.storage_node_id)
        waiting = self._waiting.get(node)
        if waiting is None or waiting.boot < report.boot:
            self._rows -= len(waiting.rows) if waiting is not None else 0
            waiting = self._waiting[node] = _Waiting(report.boot)
        if waiting.boot == report.boot:
            self._rows += waiting.add(report)
        if self._timer is None:
            pause = max(0.0, self._forwarded_at + FORWARD_EVERY_S - self._world.clock.now())
            self._timer = self._world.clock.call_later(pause, self._forward)

    def _forward(self) -> None:
        message = self._joined()
        self._forwarded_at = self._world.clock.now()
        self._clear()
        if self._leader is not None and self._leader.writable:
            self._leader.notify(Method.FORWARD, message)

    def _joined(self) -> pb.ForwardedReports:
        message = pb.ForwardedReports()
        for node, waiting in self._waiting.items():
            waiting.write(node, message)
        return message


class _Waiting:
    """What one life of a node said since the last frame."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.rows: dict[ReplicaId, tuple[int, pb.LogStreamUncommitReport]] = {}
        """The newest of each replica, with the number of the report it was in."""

    def add(self, report: pb.GetReportResponse) -> int:
        """How many more rows wait now."""
        before = len(self.rows)
        for row in report.uncommit_reports:
            replica = ReplicaId(LogId(row.log_id), Epoch(row.segment), StreamId(row.log_stream_id))
            known = self.rows.get(replica)
            if known is None or known[0] < report.sequence:
                self.rows[replica] = (report.sequence, row)
        return len(self.rows) - before

    def write(self, node: NodeId, message: pb.ForwardedReports) -> None:
        """Reports in their order, each with those of its rows that no later one has."""
        by_sequence: dict[int, list[pb.LogStreamUncommitReport]] = {}
        for sequence, row in self.rows.values():
            by_sequence.setdefault(sequence, []).append(row)
        for sequence in sorted(by_sequence):
            message.reports.add(
                storage_node_id=node, boot=self.boot, sequence=sequence, uncommit_reports=by_sequence[sequence]
            )
