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

from collections.abc import Callable

from varlog.base.errors import AlreadyExists, Conflict, NoSpace, NotFound, ReplicaFailed, VarlogError
from varlog.base.ids import LogId, NodeId, ReplicaId, Slot
from varlog.ports import Clock
from varlog.ports.disk import DiskFailed
from varlog.repository.catalog import REFUSED, Catalog
from varlog.repository.ended import STREAMS_A_LOOK
from varlog.repository.links import NodeLinks, is_hurt
from varlog.repository.opening import describe_replica
from varlog.repository.orderer import Orderer
from varlog.repository.survey import LOOK_S, Survey
from varlog.runtime.scope import Scope
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

COPY_LOOK_S = 0.05
"""How often a node that copies is asked how far it is."""
MOST_FAILURES = 20
"""So often asking how far a copy is may fail, without progress in between, before another node is tried."""
PAUSE_S = 1.0
"""After a copy was given up or the store refused a change, before the stream is looked at again."""
NOBODY = NodeId(0)
"""In whose place a member comes that a stream has too few of."""
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
        self._survey = Survey(clock, catalog, orderer, links, rebuild_s)
        self._carried: dict[ReplicaId, Slot] = {}
        """Copies that are seen to just now, and how far they are."""
        self._wanting: dict[ReplicaId, None] = {}
        """Streams that lacked a copy when they were looked at: they are looked at again, whosever turn it is."""
        self._not_before: dict[ReplicaId, float] = {}
        self._troubles: dict[ReplicaId, str] = {}
        self._stuck: dict[ReplicaId, str] = {}
        """Streams that cannot leave a node that drains, and why."""

    def trouble(self, replica: ReplicaId) -> str:
        """What is missing of a stream that has ended, for people; empty if nothing is."""
        return self._troubles.get(replica, "")

    def log_trouble(self, log: LogId) -> str:
        """Why its ended streams cannot leave a node that drains; empty if they can, or need not."""
        return next((why for name, why in self._stuck.items() if name.log == log), "")

    async def run(self) -> None:
        """Until cancelled. An error of the store ends it: what it has recorded is then not known."""
        while True:
            await self._clock.sleep(LOOK_S)
            names = self._survey.look()
            self._forget_others()
            for name in self._survey.ended.copied:
                if name not in self._carried:
                    self._carried[name] = Slot(0)
                    self._scope.spawn(self._carry(name), name=f"rebuild {name}")
            wanting, self._wanting = self._wanting, {}
            for name in dict.fromkeys([*wanting, *names]):
                stream = self._survey.ended.all.get(name)  # as it is by now
                if stream is not None and not stream.HasField("copy"):
                    await self._look_at(name, stream)

    def _forget_others(self) -> None:
        now, ended = self._clock.now(), self._survey.ended.all
        self._troubles = {name: trouble for name, trouble in self._troubles.items() if name in ended}
        self._stuck = {name: why for name, why in self._stuck.items() if name in ended}
        self._not_before = {name: until for name, until in self._not_before.items() if until > now}

    # ------------------------------------------------------------ beginning

    async def _look_at(self, name: ReplicaId, stream: pb.StreamInfo) -> None:
        """What is lost comes first, then what is missing, then what is to leave a node."""
        if self._not_before.get(name, 0.0) > self._clock.now():
            self._want(name)
            return
        survey = self._survey
        lost = [node for node in map(NodeId, stream.members) if survey.is_out(node, name, stream.end_slot)]
        self._troubles.pop(name, None)
        self._stuck.pop(name, None)
        if not survey.sources(name, stream):
            if lost:
                self._troubles[name] = survey.unavailable(name, stream)
            return
        leaving = [node for node in map(NodeId, stream.members) if survey.drains(node)]
        wanted = lost or ([NOBODY] if survey.is_thin(name, stream) else leaving)
        if not wanted:
            return
        replaced = wanted[0]
        self._want(name)
        target = survey.choose(name, stream, replaced, only_fit=replaced not in lost)
        if target is not None:
            await self._change(name, lambda log, copied: _begin(log, copied, replaced, target))
        elif lost:
            self._troubles[name] = f"no other node can take the replica of node {replaced} now"
        elif leaving and not survey.has_room(stream):
            self._stuck[name] = "copies of ended streams cannot leave a node that drains: no other node can take them"

    def _want(self, name: ReplicaId) -> None:
        if len(self._wanting) < STREAMS_A_LOOK:
            self._wanting[name] = None

    async def _change(self, name: ReplicaId, change: Change) -> bool:
        """One change of the stream's record. False: it was refused, and is to be tried later."""

        def work(log: pb.LogInfo) -> None:
            change(log, _find(log, name))

        try:
            await self._catalog.change_log(name.log, work)
        except (*REFUSED, NotFound):
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
                if self._is_moot(name, stream):
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
                await self._clock.sleep(LOOK_S if failures else COPY_LOOK_S)
            if name.log not in self._catalog.logs:
                await self._links.drop_of_gone(target, name)
        finally:
            del self._carried[name]

    def _is_moot(self, name: ReplicaId, stream: pb.StreamInfo) -> bool:
        """Whether the replica in whose place the copy is to come is whole after all, and may stay where it is."""
        replaced = NodeId(stream.copy.replaces)
        if _in_place(stream.copy) or self._survey.drains(replaced):
            return False
        return self._survey.is_back(replaced, name, stream.end_slot)

    def _copied(self, name: ReplicaId) -> pb.StreamInfo | None:
        """The stream, as long as it is being copied."""
        log = self._catalog.logs.get(name.log)
        stream = _find(log, name) if log is not None else None
        return stream if stream is not None and stream.HasField("copy") else None

    async def _advance(self, name: ReplicaId, stream: pb.StreamInfo) -> bool:
        """Ask how far it is, and swap it in if it is complete. Whether it got any further."""
        sources = [node for node in self._survey.sources(name, stream) if not _is_made_anew(stream, node)]
        if not sources:
            self._troubles[name] = self._survey.unavailable(name, stream)
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
        if self._survey.drains(NodeId(stream.copy.replaces)):
            return further  # as somebody wanted it: no trouble
        where = "made anew" if _in_place(stream.copy) else f"copied to node {target}"
        of = f"of node {stream.copy.replaces} " if stream.copy.replaces else "that is missing "
        self._troubles[name] = f"the replica {of}is being {where}: {status.contiguous} of {stream.end_slot} slots"
        return further

    def _request(self, name: ReplicaId, stream: pb.StreamInfo, sources: list[NodeId]) -> pb.CopyRequest:
        log = self._catalog.log(name.log)
        copy = stream.copy
        segment = log.chain[name.segment - 1]
        spec = describe_replica(log, segment, segment.streams, stream)
        spec.copy = copy.number
        spec.members[:] = _with_copy(stream, copy)
        return pb.CopyRequest(spec=spec, end=stream.end_slot, sources=sources, in_place=_in_place(copy))

    async def _swap_in(self, name: ReplicaId, stream: pb.StreamInfo, status: pb.ReplicaStatus) -> None:
        """It is complete. What was trimmed while it was copied must be trimmed there before anybody reads it (I13)."""
        copy = stream.copy
        row = self._links.row(NodeId(copy.node), name)
        if row is not None and is_hurt(row) and not _in_place(copy):  # in place, that is what the copy is to replace
            raise ReplicaFailed("what was copied has been damaged since")
        trimmed = self._catalog.log(name.log).trimmed
        if status.trimmed_glsn < trimmed:
            replica = pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream)
            await self._links.ask(NodeId(copy.node), Method.TRIM, pb.TrimRequest(replica=replica, upto=trimmed))
            return  # asked again, it says so itself
        if self._is_moot(name, stream):
            return
        if await self._change(name, lambda log, copied: _swap(log, copied, copy, status.trimmed_glsn)):
            self._orderer.replace(name.log, name.stream, NodeId(copy.replaces), NodeId(copy.node))
            self._troubles.pop(name, None)
            self._links.mend_all(name.log)

    async def _give_up(self, name: ReplicaId, copy: pb.StreamCopy) -> None:
        now = self._clock.now()
        if await self._change(name, lambda log, copied: _end(copied, copy)):
            self._not_before[name] = now + PAUSE_S
            self._survey.avoid(name, NodeId(copy.node), AVOID_S)
            await self._links.drop_copy(NodeId(copy.node), name, copy.number, in_place=_in_place(copy))
        else:
            await self._clock.sleep(PAUSE_S)


def _find(log: pb.LogInfo, name: ReplicaId) -> pb.StreamInfo:
    return next(stream for stream in log.chain[name.segment - 1].streams if stream.id == name.stream)


def _in_place(copy: pb.StreamCopy) -> bool:
    return copy.node == copy.replaces


def _is_made_anew(stream: pb.StreamInfo, node: NodeId) -> bool:
    return _in_place(stream.copy) and stream.copy.node == node


def _with_copy(stream: pb.StreamInfo, copy: pb.StreamCopy) -> list[int]:
    """The members once the copy is one of them."""
    if copy.replaces not in stream.members:
        return [*stream.members, copy.node]
    return [copy.node if node == copy.replaces else node for node in stream.members]


def _begin(log: pb.LogInfo, stream: pb.StreamInfo, lost: NodeId, target: NodeId) -> None:
    there = lost in stream.members or lost == NOBODY
    if not there or (target in stream.members and target != lost) or stream.HasField("copy"):
        raise Conflict("the stream has other members by now")
    # the version that this very change gives the record
    stream.copy.CopyFrom(pb.StreamCopy(node=target, replaces=lost, number=log.version + 1))


def _end(stream: pb.StreamInfo, copy: pb.StreamCopy) -> None:
    if stream.HasField("copy") and stream.copy.number == copy.number:
        stream.ClearField("copy")


def _swap(log: pb.LogInfo, stream: pb.StreamInfo, copy: pb.StreamCopy, trimmed: int) -> None:
    """In the place of the lost one or, if that was removed meanwhile or is nobody, behind the others."""
    if stream.copy.number != copy.number or (copy.node in stream.members and not _in_place(copy)):
        raise Conflict("the stream has other members by now")
    if log.trimmed > trimmed:
        raise Conflict("the log was trimmed meanwhile")
    members = _with_copy(stream, copy)
    del stream.members[:]
    stream.members.extend(members)
    stream.ClearField("copy")
