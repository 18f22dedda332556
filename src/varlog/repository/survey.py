"""Which replicas of ended streams are missing, which are whole, and where others can be made: for the rebuilder.

Looks only; nothing is changed here. A replica is out when its node has been away for long, says that it has
failed, is damaged or lacks something for good, or lists all it has without it.
"""

from varlog.base.ids import NodeId, ReplicaId, Slot
from varlog.core.placement import Candidate, place_replacement
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.copies import copies_wanted
from varlog.repository.ended import EndedStreams
from varlog.repository.links import NodeLinks, is_hurt, slots_of
from varlog.repository.opening import candidates
from varlog.repository.orderer import Orderer
from varlog.repository.unavailable import describe_missing, missing_ranges
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 0.25
"""How often it is looked whether something is missing, and how far copies are."""
COPIES_AT_ONCE = 8
"""In the whole cluster."""
COPIES_PER_NODE = 2
"""On one node, to be written there."""


class Survey:
    """Of all logs."""

    def __init__(self, clock: Clock, catalog: Catalog, orderer: Orderer, links: NodeLinks, rebuild_s: float) -> None:
        self._clock = clock
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._rebuild_s = rebuild_s
        self._absences = Absences(clock, catalog, links, LOOK_S)
        self.ended = EndedStreams(catalog)
        self._candidates: dict[NodeId, Candidate] | None = None
        """What to choose from, as of this look: it takes a glance at every stream of the cluster."""
        self._avoid: dict[tuple[ReplicaId, NodeId], float] = {}
        """Until when a node is not chosen for a stream, unless it is the only one."""

    def look(self) -> list[ReplicaId]:
        """To be called every `LOOK_S`; those of the ended streams whose turn it is."""
        self._absences.look()
        self._candidates = None
        now = self._clock.now()
        self._avoid = {key: until for key, until in self._avoid.items() if until > now}
        return self.ended.turn()

    def avoid(self, name: ReplicaId, node: NodeId, seconds: float) -> None:
        """A copy was given up there."""
        self._avoid[name, node] = self._clock.now() + seconds

    # ------------------------------------------------------------ who is out

    def is_out(self, node: NodeId, name: ReplicaId, end: int) -> bool:
        """Its replica will not come back, as far as one can tell."""
        row = self._links.row(node, name)
        if row is not None and (is_hurt(row) or not (self._settles(name) or self._can_finish(name, row, end))):
            return True
        if self._absences.lacks(node, name):
            return True
        # Since the last look at who is away it may have come back, and would be copied over itself.
        return self._absences.is_lost(node, self._rebuild_s) and node not in self._links.connected()

    def _can_finish(self, name: ReplicaId, row: pb.LogStreamUncommitReport, end: int) -> bool:
        """Whether it has all positions, or those it lacks are still remembered."""
        committed = Slot(row.uncommitted_llsn_offset - 1)
        if committed >= end or slots_of(row) < end:
            return committed >= end
        order = self._orderer.order(name.log)
        return order.stream(name.stream) is not None and order.can_catch_up(name.stream, committed)

    def _settles(self, name: ReplicaId) -> bool:
        """Where not every member has everything when a stream ends, what they lack they take from each other."""
        return self._catalog.log(name.log).chain[name.segment - 1].ordering != "cut"

    def drains(self, node: NodeId) -> bool:
        known = self._catalog.nodes.get(node)
        return known is not None and known.draining

    def is_thin(self, name: ReplicaId, stream: pb.StreamInfo) -> bool:
        """Whether it has fewer members than are wanted: one was removed, or there were no nodes for more."""
        log = self._catalog.log(name.log)
        return len(stream.members) < copies_wanted(log, log.chain[name.segment - 1], stream)

    def is_back(self, node: NodeId, name: ReplicaId, end: int) -> bool:
        """It is here with its data, and with the positions of that or a way to learn them."""
        row = self._links.row(node, name)
        if row is None or is_hurt(row) or slots_of(row) < end or node not in self._links.connected():
            return False
        return self._settles(name) or self._can_finish(name, row, end)

    def sources(self, name: ReplicaId, stream: pb.StreamInfo) -> list[NodeId]:
        """Members that have all of it, those that few copies read from first."""
        busy = [member for each in self.ended.copied.values() for member in each.members]
        connected = dict.fromkeys(self._links.connected())
        found = []
        for node in map(NodeId, stream.members):
            row = self._links.row(node, name)
            if node not in connected or row is None or row.state != pb.REPLICA_FINISHED or row.damage:
                continue
            if slots_of(row) == stream.end_slot:
                found.append(node)
        return sorted(found, key=lambda node: (busy.count(node), node))

    def choose(self, name: ReplicaId, stream: pb.StreamInfo, lost: NodeId, *, only_fit: bool) -> NodeId | None:
        """The node to copy to, if there is one, and not too much is copied already.

        Copies that wait for somebody to copy from take nobody's place: he may be gone for good.
        """
        under_way = [each.copy.node for copied, each in self.ended.copied.items() if self.sources(copied, each)]
        if len(under_way) >= COPIES_AT_ONCE:
            return None
        row = self._links.row(lost, name)
        known = row is not None or self._absences.lacks(lost, name)
        here = known and lost in self._links.connected() and under_way.count(lost) < COPIES_PER_NODE
        if here and row is not None and row.damage and (name, lost) not in self._avoid:
            return lost
        rows = (self._links.row(node, name) for node in self.sources(name, stream))
        size = max((row.stored_bytes for row in rows if row is not None), default=0)
        free = {
            node: candidate
            for node, candidate in self._free().items()
            if node not in stream.members
            and not (only_fit and candidate.unfit)
            and under_way.count(node) < COPIES_PER_NODE
            and self._links.row(node, name) is None  # what it had of this stream is still to be dropped
            and self._has_room_for(node, size)
        }
        fresh = {node: candidate for node, candidate in free.items() if (name, node) not in self._avoid}
        others = [self._catalog.nodes.get(NodeId(node)) for node in stream.members if node != lost]
        zones = [other.zone for other in others if other is not None]
        chosen = place_replacement(fresh if only_fit else fresh or free, zones)
        if chosen is not None:
            self._candidates = None  # it is about to have one more
        return lost if chosen is None and here and not only_fit else chosen

    def _has_room_for(self, node: NodeId, size: int) -> bool:
        """On one of its volumes, as far as it has told. What it is copying already may take some of that."""
        volumes = self._links.volumes(node)
        return not volumes or any(not volume.total_bytes or volume.free_bytes > size for volume in volumes)

    def has_room(self, stream: pb.StreamInfo) -> bool:
        """Whether some other node may take a copy of it, be it later."""
        return any(node not in stream.members and not each.unfit for node, each in self._free().items())

    def _free(self) -> dict[NodeId, Candidate]:
        if self._candidates is None:
            self._candidates = candidates(self._catalog, self._links)
        return self._candidates

    def unavailable(self, name: ReplicaId, stream: pb.StreamInfo) -> str:
        connected = dict.fromkeys(self._links.connected())
        rows = [self._links.row(NodeId(node), name) for node in stream.members if node in connected]
        serving = [
            row
            for row in rows
            if row is not None and row.state != pb.REPLICA_FAILED and slots_of(row) >= stream.end_slot
        ]
        missing = missing_ranges(stream.end_slot, serving)
        what = describe_missing(self._catalog.log(name.log), stream, missing)
        if what:
            return f"{what} are unavailable: none of the nodes {', '.join(map(str, stream.members))} is here with them"
        return "what is damaged of it is whole on another node, but none has all of it" if serving else ""
