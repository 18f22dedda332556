"""Gives ended streams their lost replicas back (C5): copied from the members that are left, then swapped in.

    a member of an ended stream is away too long, or its replica has failed
        1. choose a node, and record that it copies: with a number that no other copy ever had
        2. have it copy, and ask how far it is, until it has everything, verified, on its disk
        3. one change of the log's record: it takes the lost one's place
        4. whatever the lost one still has is dropped when it comes back (see `links`)

What has rotted is made anew where it is, beside what is there; what has failed otherwise only where no other
node can take it. Until 3 the record names the old members, and nobody is told of the new one. A member that comes
back with its data before 3 is kept, and the copy given up. What the record says survives this process: the next
one goes on.
"""

from collections.abc import Callable, Iterator

from varlog.base.errors import AlreadyExists, Conflict, NoSpace, NotFound, ReplicaFailed, VarlogError
from varlog.base.ids import Epoch, NodeId, ReplicaId, Slot, StreamId
from varlog.core.placement import place_replacement
from varlog.ports import Clock
from varlog.ports.disk import DiskFailed
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks, is_hurt, slots_of
from varlog.repository.opening import candidates
from varlog.repository.orderer import Orderer
from varlog.repository.unavailable import describe_missing, missing_ranges
from varlog.runtime.scope import Scope
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 0.25
"""How often it is looked whether something is missing, and how far copies are."""
COPIES_AT_ONCE = 8
"""In the whole cluster."""
COPIES_PER_NODE = 2
"""On one node, to be written there."""
MOST_FAILURES = 20
"""So often asking how far a copy is may fail, without progress in between, before another node is tried."""
PAUSE_S = 1.0
"""After a copy was given up or the store refused a change, before the stream is looked at again."""
LACKING_S = 5.0
"""How long a node that is a member may list all it has without a replica before that counts as lost."""
AVOID_S = 10.0
"""How long a node on which a copy was given up is not chosen for the same stream, unless it is the only one."""

Change = Callable[[pb.LogInfo, pb.StreamInfo], None]
"""Works on a copy of a log's record, and of the stream in it."""


class Rebuilder:
    """Looks after the ended streams of all logs."""

    def __init__(
        self, clock: Clock, scope: Scope, catalog: Catalog, orderer: Orderer, links: NodeLinks, rebuild_s: float
    ) -> None:
        self._clock = clock
        self._scope = scope
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._rebuild_s = rebuild_s
        self._absences = Absences(clock, catalog, links, LOOK_S)
        self._carried: dict[ReplicaId, Slot] = {}
        """Copies that are seen to just now, and how far they are."""
        self._not_before: dict[ReplicaId, float] = {}
        self._avoid: dict[tuple[ReplicaId, NodeId], float] = {}
        self._troubles: dict[ReplicaId, str] = {}
        self._lacking: dict[tuple[ReplicaId, NodeId], float] = {}
        """Since when a member does not list its replica."""

    def trouble(self, replica: ReplicaId) -> str:
        """What is missing of a stream that has ended, for people; empty if nothing is."""
        return self._troubles.get(replica, "")

    async def run(self) -> None:
        """Until cancelled. An error of the store ends it: what it has recorded is then not known."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._absences.look()
            ended = list(self._ended())
            self._forget_others(dict(ended))
            for name, stream in ended:
                if stream.HasField("copy"):
                    if name not in self._carried:
                        self._carried[name] = Slot(0)
                        self._scope.spawn(self._carry(name), name=f"rebuild {name}")
                elif self._not_before.get(name, 0.0) <= self._clock.now():
                    await self._look_at(name, stream)

    def _ended(self) -> Iterator[tuple[ReplicaId, pb.StreamInfo]]:
        for number, log in self._catalog.logs.items():
            for segment in log.chain if not log.removing else ():
                for stream in segment.streams:
                    if stream.state == pb.STREAM_FINALIZED:
                        yield ReplicaId(number, Epoch(segment.epoch), StreamId(stream.id)), stream

    def _forget_others(self, ended: dict[ReplicaId, pb.StreamInfo]) -> None:
        now = self._clock.now()
        self._troubles = {name: trouble for name, trouble in self._troubles.items() if name in ended}
        self._not_before = {name: until for name, until in self._not_before.items() if until > now}
        self._avoid = {key: until for key, until in self._avoid.items() if until > now}
        self._lacking = {key: since for key, since in self._lacking.items() if key[0] in ended}

    # ------------------------------------------------------------ who is out

    def _is_out(self, node: NodeId, name: ReplicaId, end: int) -> bool:
        """Its replica will not come back, as far as one can tell."""
        row = self._links.row(node, name)
        if row is not None and (is_hurt(row) or slots_of(row) < end or not self._can_finish(name, row, end)):
            return True
        return self._lacks(node, name) or self._absences.is_lost(node, self._rebuild_s)

    def _lacks(self, node: NodeId, name: ReplicaId) -> bool:
        """A disk of it was lost, and with it this replica: it lists all it has, time and again, without it."""
        if not self._links.lacks(node, name):
            self._lacking.pop((name, node), None)
            return False
        now = self._clock.now()
        return now - self._lacking.setdefault((name, node), now) >= LACKING_S

    def _can_finish(self, name: ReplicaId, row: pb.LogStreamUncommitReport, end: int) -> bool:
        """Whether it has all positions, or those it lacks are still remembered."""
        committed = Slot(row.uncommitted_llsn_offset - 1)
        if committed >= end:
            return True
        order = self._orderer.order(name.log)
        return order.stream(name.stream) is not None and order.can_catch_up(name.stream, committed)

    def _is_back(self, node: NodeId, name: ReplicaId, end: int) -> bool:
        """It is here with its data."""
        row = self._links.row(node, name)
        whole = row is not None and not is_hurt(row) and slots_of(row) >= end
        return whole and node in self._links.connected()

    def _sources(self, name: ReplicaId, stream: pb.StreamInfo) -> list[NodeId]:
        """Members that have all of it, those that few copies read from first."""
        busy = [copied for _, each in self._ended() if each.HasField("copy") for copied in each.members]
        connected = dict.fromkeys(self._links.connected())
        found = []
        for node in map(NodeId, stream.members):
            row = self._links.row(node, name)
            if node not in connected or row is None or row.state != pb.REPLICA_FINISHED or row.damage:
                continue
            if slots_of(row) == stream.end_slot:
                found.append(node)
        return sorted(found, key=lambda node: (busy.count(node), node))

    # ------------------------------------------------------------ beginning

    async def _look_at(self, name: ReplicaId, stream: pb.StreamInfo) -> None:
        lost = [node for node in map(NodeId, stream.members) if self._is_out(node, name, stream.end_slot)]
        if not lost:
            self._troubles.pop(name, None)
            return
        if not [node for node in self._sources(name, stream) if node != lost[0]]:
            self._troubles[name] = self._unavailable(name, stream)
            return
        target = self._choose(name, stream, lost[0])
        if target is None:
            self._troubles[name] = f"no other node can take the replica of node {lost[0]} now"
            return
        await self._change(name, lambda log, copied: _begin(log, copied, lost[0], target))

    def _choose(self, name: ReplicaId, stream: pb.StreamInfo, lost: NodeId) -> NodeId | None:
        """The node to copy to, if there is one, and not too much is copied already."""
        under_way = [each.copy.node for _, each in self._ended() if each.HasField("copy")]
        if len(under_way) >= COPIES_AT_ONCE:
            return None
        row = self._links.row(lost, name)
        known = row is not None or self._lacks(lost, name)
        here = known and lost in self._links.connected() and under_way.count(lost) < COPIES_PER_NODE
        if here and row is not None and row.damage and (name, lost) not in self._avoid:
            return lost
        free = {
            node: candidate
            for node, candidate in candidates(self._catalog, self._links).items()
            if node not in stream.members
            and under_way.count(node) < COPIES_PER_NODE
            and self._links.row(node, name) is None  # what it had of this stream is still to be dropped
        }
        fresh = {node: candidate for node, candidate in free.items() if (name, node) not in self._avoid}
        others = [self._catalog.nodes.get(NodeId(node)) for node in stream.members if node != lost]
        chosen = place_replacement(fresh or free, [other.zone for other in others if other is not None])
        return lost if chosen is None and here else chosen

    def _unavailable(self, name: ReplicaId, stream: pb.StreamInfo) -> str:
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

    async def _change(self, name: ReplicaId, change: Change) -> bool:
        """One change of the stream's record. False: it was refused, and is to be tried later."""

        def work(log: pb.LogInfo) -> None:
            change(log, _find(log, name))

        try:
            await self._catalog.change_log(name.log, work)
        except (Conflict, NoSpace, NotFound):
            self._not_before[name] = self._clock.now() + PAUSE_S
            return False
        return True

    # ------------------------------------------------------------ one copy

    async def _carry(self, name: ReplicaId) -> None:
        """See to a copy that is in the record, until it is swapped in or given up."""
        try:
            target, number = NodeId(0), 0
            failures = 0
            while (stream := self._copied(name)) is not None and stream.copy.number >= number:
                target, number = NodeId(stream.copy.node), stream.copy.number
                if not _in_place(stream.copy) and self._is_back(NodeId(stream.copy.replaces), name, stream.end_slot):
                    await self._give_up(name, stream.copy)
                    return
                try:
                    failures = 0 if await self._advance(name, stream) else failures
                except DiskFailed:
                    raise  # our own store: whether it has the change is known only after a restart
                except (NoSpace, AlreadyExists, ReplicaFailed) as error:
                    failures = MOST_FAILURES
                    self._troubles[name] = f"a copy on node {target} failed: {error.message}"
                except VarlogError as error:
                    failures += 1
                    self._troubles[name] = f"a copy on node {target} does not get on: {error.message}"
                if failures >= MOST_FAILURES:
                    await self._give_up(name, stream.copy)
                    return
                await self._clock.sleep(LOOK_S)
            if name.log not in self._catalog.logs:
                await self._links.drop_of_gone(target, name)
        finally:
            del self._carried[name]

    def _copied(self, name: ReplicaId) -> pb.StreamInfo | None:
        """The stream, as long as it is being copied."""
        log = self._catalog.logs.get(name.log)
        stream = _find(log, name) if log is not None else None
        return stream if stream is not None and stream.HasField("copy") else None

    async def _advance(self, name: ReplicaId, stream: pb.StreamInfo) -> bool:
        """Ask how far it is, and swap it in if it is complete. Whether it got any further."""
        sources = [node for node in self._sources(name, stream) if node != stream.copy.replaces]
        if not sources:
            self._troubles[name] = self._unavailable(name, stream)
            return False
        target = NodeId(stream.copy.node)
        request = self._request(name, stream, sources)
        status = await self._links.ask(target, Method.COPY, request)
        assert isinstance(status, pb.ReplicaStatus)
        if status.state == pb.REPLICA_FINISHED and status.contiguous == stream.end_slot:
            await self._swap_in(name, stream, status)
            return False
        further = status.contiguous > self._carried[name]
        self._carried[name] = Slot(max(status.contiguous, self._carried[name]))
        where = "made anew" if _in_place(stream.copy) else f"copied to node {target}"
        self._troubles[name] = (
            f"the replica of node {stream.copy.replaces} is being {where}: "
            f"{status.contiguous} of {stream.end_slot} slots"
        )
        return further

    def _request(self, name: ReplicaId, stream: pb.StreamInfo, sources: list[NodeId]) -> pb.CopyRequest:
        log = self._catalog.log(name.log)
        copy = stream.copy
        spec = pb.ReplicaSpec(
            replica=pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream),
            ordering=log.chain[name.segment - 1].ordering,
            members=[copy.node if node == copy.replaces else node for node in stream.members],
            log_name=log.name,
            copy=copy.number,
        )
        return pb.CopyRequest(spec=spec, end=stream.end_slot, sources=sources, in_place=_in_place(copy))

    async def _swap_in(self, name: ReplicaId, stream: pb.StreamInfo, status: pb.ReplicaStatus) -> None:
        """It is complete. What was trimmed while it was copied must be trimmed there before anybody reads it (I13)."""
        copy = stream.copy
        trimmed = self._catalog.log(name.log).trimmed
        if status.trimmed_glsn < trimmed:
            replica = pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream)
            await self._links.ask(NodeId(copy.node), Method.TRIM, pb.TrimRequest(replica=replica, upto=trimmed))
            return  # asked again, it says so itself
        if not _in_place(copy) and self._is_back(NodeId(copy.replaces), name, stream.end_slot):
            return
        if await self._change(name, lambda log, copied: _swap(log, copied, copy, status.trimmed_glsn)):
            self._orderer.replace(name.log, name.stream, NodeId(copy.replaces), NodeId(copy.node))
            self._troubles.pop(name, None)
            self._links.mend_all(name.log)

    async def _give_up(self, name: ReplicaId, copy: pb.StreamCopy) -> None:
        now = self._clock.now()
        if await self._change(name, lambda log, copied: _end(copied, copy)):
            self._not_before[name] = now + PAUSE_S
            self._avoid[name, NodeId(copy.node)] = now + AVOID_S
            await self._links.drop_copy(NodeId(copy.node), name, copy.number, in_place=_in_place(copy))
        else:
            await self._clock.sleep(PAUSE_S)


def _find(log: pb.LogInfo, name: ReplicaId) -> pb.StreamInfo:
    return next(stream for stream in log.chain[name.segment - 1].streams if stream.id == name.stream)


def _in_place(copy: pb.StreamCopy) -> bool:
    return copy.node == copy.replaces


def _begin(log: pb.LogInfo, stream: pb.StreamInfo, lost: NodeId, target: NodeId) -> None:
    if lost not in stream.members or (target in stream.members and target != lost) or stream.HasField("copy"):
        raise Conflict("the stream has other members by now")
    # the version that this very change gives the record
    stream.copy.CopyFrom(pb.StreamCopy(node=target, replaces=lost, number=log.version + 1))


def _end(stream: pb.StreamInfo, copy: pb.StreamCopy) -> None:
    if stream.HasField("copy") and stream.copy.number == copy.number:
        stream.ClearField("copy")


def _swap(log: pb.LogInfo, stream: pb.StreamInfo, copy: pb.StreamCopy, trimmed: int) -> None:
    moved = copy.node in stream.members and not _in_place(copy)
    if stream.copy.number != copy.number or copy.replaces not in stream.members or moved:
        raise Conflict("the stream has other members by now")
    if log.trimmed > trimmed:
        raise Conflict("the log was trimmed meanwhile")
    stream.members[list(stream.members).index(copy.replaces)] = copy.node
    stream.ClearField("copy")
