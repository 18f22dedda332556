"""The replicas of a node, on its volumes: opening, creating, finding, dropping, and their roles."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from varlog.base.errors import AlreadyExists, NotFound, ReplicaFailed, Unavailable, VarlogError, WrongWriter
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.leader import CHAIN
from varlog.core.replica import ReplicaState
from varlog.node.ahead import Ahead
from varlog.node.copier import Connect
from varlog.node.copy import Copy
from varlog.node.forwarder import Forwarder
from varlog.node.leader import Leader
from varlog.node.pace import Pace
from varlog.node.primary import Primary
from varlog.node.relay import Relay
from varlog.node.removals import Removals
from varlog.node.replica import Replica
from varlog.node.replicator import Head, Replicator
from varlog.node.sequencer import Sequencer
from varlog.node.settle import settle
from varlog.node.takeback import TakeBack
from varlog.ports import World
from varlog.runtime.scope import Scope, result_of
from varlog.storage.folders import drop_folder
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import Volume, newest
from varlog.wire.proto import varlog_pb2 as pb


class Replicas:
    """Every replica this node has, by its id."""

    def __init__(
        self,
        world: World,
        volumes: Sequence[Volume],
        file_bytes: int,
        connect: Connect,
        changed: Callable[[Replica], None],
        pace: Pace,
        tell: Callable[[str], None],
    ) -> None:
        """`pace` is that of all copies. `tell` gets lines for people."""
        self._world = world
        self._volumes = volumes
        self._file_bytes = file_bytes
        self._connect = connect
        self._changed = changed
        self._open: dict[tuple[int, int, int], Replica] = {}
        self._scopes: dict[ReplicaId, Scope] = {}
        self._primaries: dict[ReplicaId, Primary] = {}
        self._leaders: dict[ReplicaId, Leader] = {}
        self._sequencers: dict[ReplicaId, Sequencer] = {}
        self._ahead: dict[ReplicaId, Ahead] = {}
        """Of open replicas under `sequencer`."""
        self._heads: dict[ReplicaId, None] = {}
        """Those of them that decide what is at a slot, or did in an earlier life."""
        self.relays: dict[ReplicaId, Relay] = {}
        """Of the replicas that are in a chain behind its leader."""
        self._settling: dict[ReplicaId, asyncio.Lock] = {}
        self._failed: dict[ReplicaId, VarlogError] = {}
        """Replicas whose files could not be opened, and why."""
        self._failed_copies: dict[ReplicaId, int] = {}
        """The numbers of the copies that had made them."""
        self._suspended = ""
        """Why no primary takes appends; empty when they do."""
        self._copies: dict[ReplicaId, Copy] = {}
        """Replicas in the making: they are none yet."""
        self._copying = Scope()
        self._dropping: dict[tuple[ReplicaId, int, bool], asyncio.Task[None]] = {}
        """By what was asked for."""
        self._removals = Removals(volumes, world.clock, self._copying, tell)
        self._pace = pace
        self._tell = tell
        self.on_damage: Callable[[Replica], None] = lambda replica: None
        """Called when whoever reads a replica meets damage."""
        self.repaired = 0
        """Replicas that were damaged here, and are whole again since the start."""
        self._changing = asyncio.Lock()
        """Creating and dropping are rare and must not overlap."""

    def all(self) -> list[Replica]:
        return list(self._open.values())

    @property
    def failed(self) -> dict[ReplicaId, VarlogError]:
        return self._failed

    def tell_changed(self, replica: Replica) -> None:
        """There is something to report of it, if it is still the one that is here."""
        if self.get(replica.id) is replica:
            self._changed(replica)

    def get(self, replica: tuple[int, int, int]) -> Replica | None:
        """By its id, or by what that is made of."""
        return self._open.get(replica)

    def find(self, log: int, segment: int, stream: int) -> Replica:
        """An open replica, or the error that says why there is none."""
        found = self._open.get((log, segment, stream))
        if found is None:
            replica = ReplicaId(LogId(log), Epoch(segment), StreamId(stream))
            failure = self._failed.get(replica)
            if failure is not None:
                raise ReplicaFailed(f"replica {replica} could not be opened: {failure.message}") from failure
            raise NotFound(f"replica {replica} is not open on this node")
        return found

    def primary(self, log: int, segment: int, stream: int) -> Primary:
        """The primary of a stream, if it is this node.

        Of one that has ended every member knows what is in it; so it is where clients write to the members themselves.
        """
        replica = self.find(log, segment, stream)
        primary = self._primaries.get(replica.id)
        passive = replica.spec.ordering == "sequencer" and replica.state is ReplicaState.OPEN
        if primary is None and (passive or replica.state is ReplicaState.FINISHED):
            primary = self._primaries[replica.id] = Primary(replica)
        if primary is None and replica.state is ReplicaState.SEALED:
            raise Unavailable(f"{replica.id} is sealed; where it ends is not known here yet")
        if primary is None and replica.leads == pb.LEADS_NO_MORE:
            raise Unavailable(f"this node was started since it led {replica.id}; another segment follows")
        if primary is None:
            raise NotFound(f"this node is not the primary of {replica.id}")
        if self._suspended and replica.state is ReplicaState.OPEN and replica.spec.ordering == "cut":
            raise Unavailable(f"the primary of {replica.id} is {self._suspended}")
        return primary

    def suspend(self, why: str) -> None:
        """Take no appends for this reason; with an empty one, take them again."""
        self._suspended = why

    # ------------------------------------------------------------ opening and creating

    async def open_all(self) -> None:
        """At the start of the node. One bad replica does not keep the others from serving."""
        found, replaced = await newest(self._volumes)
        for each in replaced:
            try:
                await drop_folder(each.volume.disk, each.folder)
            except VarlogError as error:
                self._tell(f"{each.folder}, which a copy has replaced, could not be removed: {error.message}")
        for each in found:
            try:
                log = await ReplicaLog.open(
                    each.volume.disk, each.folder, random=self._world.random, file_bytes=self._file_bytes
                )
            except Unavailable:
                raise  # the node lacks something, not the replica
            except VarlogError as error:
                self._failed[each.replica] = error
                self._failed_copies[each.replica] = each.copy
            else:
                self._add(log)

    async def create(self, spec: pb.ReplicaSpec) -> Replica:
        """OPEN: make a replica, or find the same one made before."""
        replica = ReplicaId(LogId(spec.replica.log), Epoch(spec.replica.segment), StreamId(spec.replica.stream))
        async with self._turn(replica):
            known = self.get(replica)
            if known is not None:
                if known.spec != spec:
                    raise AlreadyExists(f"replica {replica} is open with another description")
                return known
            self._refuse_failed(replica)
            if replica in self._copies:
                raise AlreadyExists(f"replica {replica} is being copied")
            volume = await self._volume_for(replica)
            log = await ReplicaLog.create(
                volume.disk,
                volume.folder(replica),
                replica,
                spec.SerializeToString(deterministic=True),
                random=self._world.random,
                file_bytes=self._file_bytes,
            )
            made = self._add(log, new=True)
            self._changed(made)  # the repository counts it from its first report on
            return made

    @asynccontextmanager
    async def _turn(self, replica: ReplicaId) -> AsyncIterator[None]:
        """No replica comes or goes but this one, of which nothing is on its way out."""
        while True:
            await self._removals.ended(replica)
            async with self._changing:
                if not self._removals.removes(replica):
                    yield
                    return

    def _refuse_failed(self, replica: ReplicaId) -> None:
        if replica in self._failed:
            raise ReplicaFailed(self._failed[replica].message)

    async def _volume_for(self, replica: ReplicaId) -> Volume:
        """Where something is left of it, if anything is: it must never lie on two. Else where there is most room."""
        for volume in self._volumes if len(self._volumes) > 1 else ():
            if await volume.disk.exists(volume.folder(replica)):
                return volume
        return await self._emptiest_volume()

    async def _emptiest_volume(self) -> Volume:
        spaces = [(await volume.space())[0] for volume in self._volumes]
        return self._volumes[spaces.index(max(spaces))]

    def _add(self, log: ReplicaLog, *, new: bool = False) -> Replica:
        spec = pb.ReplicaSpec()
        spec.ParseFromString(log.spec)
        scope = self._scopes[log.replica] = Scope()
        replica = Replica(log, spec, self._world.clock, scope, self._changed)
        log.on_damage = lambda: self.on_damage(replica)
        self._open[(log.replica.log, log.replica.segment, log.replica.stream)] = replica
        self._take_role(replica, scope, new=new)
        return replica

    # ------------------------------------------------------------ roles

    def take_roles(self) -> None:
        """Once the node knows its id."""
        for replica in self.all():
            self._take_role(replica, self._scopes[replica.id], new=False)

    def _take_role(self, replica: Replica, scope: Scope, *, new: bool) -> None:
        """The first member is the primary: it takes appends and copies them to the others."""
        if replica.spec.ordering == "sequencer":
            self._take_sequencer_role(replica, new=new)
            return
        members = [NodeId(member) for member in replica.spec.members]
        me = NodeId(self._volumes[0].identity.node_id)
        relays = replica.state is not ReplicaState.FINISHED and me in _passing_on(replica.spec)
        if relays and replica.id not in self.relays:
            self._relay(replica, members[members.index(me) + 1 :][:1], scope)
        if replica.spec.journal or members[0] != me or replica.id in self._primaries:
            return  # a journal is led by a client
        if replica.state is ReplicaState.FINISHED:
            return  # every member can say what is in it, and nobody copies it by pushing
        if replica.spec.ordering == "leader":
            replica.leads = pb.LEADS_WAITING if new else pb.LEADS_NO_MORE
            if not new:
                return  # a leader that was started again never continues its segment
        self._primaries[replica.id] = Primary(replica)
        replica.keep_recent = len(members) > 1
        if replica.spec.ordering == "leader":
            chained = replica.spec.replication == CHAIN
            self._lead(replica, members[1:2] if chained else members[1:], scope)
        elif new or len(members) == 1:
            self._forward(replica, members[1:], scope)
        else:
            replica.closed = f"{replica.id} has been started again and looks at what its backups have"
            scope.spawn(self._resume(replica, members[1:], scope), name=f"take back {replica.id}")

    def _take_sequencer_role(self, replica: Replica, *, new: bool) -> None:
        """All members are passive. The first decides what is at a slot; that of the first stream also grants positions.

        Neither goes on after its node was started again. What a head had synced may be on the others, acknowledged, and
        rotted on its own disk unseen: it would give such a slot to another, and cannot find out by asking the others,
        as what is on its way to them carries nobody's number. Another segment begins, in which nothing is on its way.
        """
        if replica.state is not ReplicaState.OPEN:
            return
        me = self._volumes[0].identity.node_id  # 0 as long as it is not known: then this is asked again
        members = [NodeId(member) for member in replica.spec.members]
        replica.last_of_chain = members[-1] == me
        if replica.id not in self._ahead:
            self._ahead[replica.id] = Ahead(replica, self._world.clock)
        if members[0] != me or replica.id in self._heads:
            return
        self._heads[replica.id] = None
        grants = not replica.spec.index
        if new and grants:
            self._sequencers[replica.id] = Sequencer(replica)
            replica.leads = pb.LEADS_WAITING
        if not new and len(members) > 1:
            replica.closed = f"{replica.id} was started again as the head of its chain: another segment is to follow"
        if not new and (grants or replica.closed):
            replica.leads = pb.LEADS_NO_MORE

    async def _resume(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        boot = self._volumes[0].identity.boot
        await TakeBack(replica, backups, self._connect, self._world.clock, boot).run()
        replica.closed = ""
        self._forward(replica, backups, scope)

    def _lead(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        ack = len(backups) + 1 if replica.spec.replication == CHAIN else replica.spec.ack
        leader = self._leaders[replica.id] = Leader(replica, backups, ack, self._world.clock, self._changed)
        self._replicate(replica, backups, leader, scope)

    def _relay(self, replica: Replica, following: list[NodeId], scope: Scope) -> None:
        """This node is in a chain: what it is given it gives to the next, if there is one."""
        relay = self.relays[replica.id] = Relay(replica, bool(following), self._world.clock, self._changed)
        replica.keep_recent = bool(following)
        self._replicate(replica, following, relay, scope)

    def _replicate(self, replica: Replica, backups: list[NodeId], head: Head, scope: Scope) -> None:
        # Members of a journal take stores in the name of its leader alone, whoever passes them on.
        writer = replica.spec.writer if replica.spec.journal else self._volumes[0].identity.boot
        for backup in backups:
            replicator = Replicator(replica, backup, self._connect, self._world.clock, writer, head)
            scope.spawn(replicator.run(), name=f"replicate {replica.id} to {backup}")

    def leader(self, replica: Replica) -> Leader:
        """Of a stream that this node leads."""
        found = self._leaders.get(replica.id)
        if found is None:
            raise WrongWriter(f"this node does not lead {replica.id}, or was started since it was opened")
        return found

    def sequencer(self, replica: Replica) -> Sequencer:
        """Of a segment whose positions this node grants."""
        found = self._sequencers.get(replica.id)
        if found is None:
            raise WrongWriter(f"this node does not grant positions of {replica.id}, or was started since it was opened")
        return found

    def ahead(self, replica: Replica) -> Ahead | None:
        """What came before its turn, where stores may."""
        return self._ahead.get(replica.id)

    async def settle(self, replica: Replica, request: pb.FinishRequest) -> None:
        """Complete a sealed replica as FINISH wants it; one at a time of each."""
        junk = Slot(request.junk_slot) if request.HasField("junk_slot") else None
        base, end = Glsn(request.base), Slot(request.end)
        sources = [NodeId(node) for node in request.sources]
        lock = self._settling.setdefault(replica.id, asyncio.Lock())
        async with lock:
            await settle(replica, base, end, junk, sources, self._connect, take=request.take)

    def _forward(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        for backup in backups:
            boot = self._volumes[0].identity.boot
            forwarder = Forwarder(replica, backup, self._connect, self._world.clock, boot)
            scope.spawn(forwarder.run(), name=f"forward {replica.id} to {backup}")

    # ------------------------------------------------------------ copying

    async def copy(self, request: pb.CopyRequest) -> pb.ReplicaStatus:
        """COPY: how far a copy is; it is begun if it is not there. Raises once why one was given up."""
        spec = request.spec
        replica = ReplicaId(LogId(spec.replica.log), Epoch(spec.replica.segment), StreamId(spec.replica.stream))
        while True:
            async with self._changing:
                begun = await self._found_or_begun(request, replica)
            if begun is not None:
                return begun
            await self._removals.ended(replica)

    async def _found_or_begun(self, request: pb.CopyRequest, replica: ReplicaId) -> pb.ReplicaStatus | None:
        """None: it can be begun when what is on its way out is gone, as it may have the same name."""
        spec = request.spec
        known = self.get(replica)
        if known is not None and (known.spec.copy >= spec.copy or not request.in_place):
            return _status_of_copy(known, spec)
        if not request.in_place or self._failed_copies.get(replica, -1) >= spec.copy:
            self._refuse_failed(replica)
        copy = self._copies.get(replica)
        if copy is not None and copy.spec.copy > spec.copy:
            raise AlreadyExists(f"replica {replica} is being copied under a later number")
        if copy is not None and copy.spec.copy == spec.copy and copy.error is None:
            copy.sources = request.sources
            return copy.status()
        if copy is not None:
            await self._give_up(replica)
            if copy.error is not None and copy.spec.copy == spec.copy:
                raise copy.error
        if self._removals.removes(replica):
            return None
        return (await self._begin_copy(replica, request)).status()

    async def _begin_copy(self, replica: ReplicaId, request: pb.CopyRequest) -> Copy:
        copy = self._copies[replica] = Copy(
            request,
            replica,
            await self._emptiest_volume(),
            self._file_bytes,
            connect=self._connect,
            clock=self._world.clock,
            random=self._world.random,
            pace=self._pace,
        )
        copy.task = self._copying.spawn(self._carry(copy, replica), name=f"copy {replica}")
        return copy

    async def _carry(self, copy: Copy, replica: ReplicaId) -> None:
        """See a copy to its end; only then is it a replica."""
        try:
            log = await copy.run()
            async with self._changing:
                await log.complete()
                del self._copies[replica]
                repaired = await self._retire(replica)
                self._changed(self._add(log))
                await self._sweep(replica, log)
        except VarlogError as error:
            copy.error = error  # for who asks next
            await self._discard(copy)
        else:
            self.repaired += repaired

    async def _retire(self, replica: ReplicaId) -> bool:
        """Forget the replica that a copy takes the place of; whether there was one."""
        known = self.get(replica)
        failed = self._failed.pop(replica, None)
        self._failed_copies.pop(replica, None)
        primary = self._primaries.pop(replica, None)
        self._leaders.pop(replica, None)
        self._sequencers.pop(replica, None)
        self._heads.pop(replica, None)
        self.relays.pop(replica, None)
        self._settling.pop(replica, None)
        ahead = self._ahead.pop(replica, None)
        if ahead is not None:
            ahead.close()
        if primary is not None:
            primary.dropped()
        self._open.pop((replica.log, replica.segment, replica.stream), None)
        if known is not None:
            await self._close(known)
        return known is not None or failed is not None

    async def _sweep(self, replica: ReplicaId, log: ReplicaLog) -> None:
        """Give back the space of what a complete copy has replaced. What stays is removed when the node starts."""
        try:
            self._removals.begin(replica, await self._removals.mark(replica, keep=log.folder))
        except VarlogError as error:
            self._tell(f"what was left of {replica} beside its copy could not be removed: {error.message}")

    async def _discard(self, copy: Copy) -> None:
        try:
            await copy.discard()
        except VarlogError as error:
            if copy.error is not None:
                copy.error.message += f"; what was copied could not be removed: {error.message}"

    async def _give_up(self, replica: ReplicaId) -> None:
        """End a copy in the making, and leave nothing of it."""
        copy = self._copies.pop(replica)
        if copy.task is not None:
            copy.task.cancel()
            await asyncio.gather(copy.task, return_exceptions=True)
        await copy.discard()

    # ------------------------------------------------------------ dropping and closing

    async def drop(self, replica: ReplicaId, before: int = 0, *, copy_only: bool = False) -> None:
        """DROP: forget a replica and give its space back. One that is not there is gone already.

        It is done to its end though who asked does not wait for that: what is half gone nobody would ask for again.
        With `before` not one that was made by a copy of this number or a later one: the word to drop what was
        there earlier may come late, or twice.
        """
        what = (replica, before, copy_only)
        dropping = self._dropping.get(what)
        if dropping is None:
            work = self._drop(replica, before, copy_only=copy_only)
            dropping = self._dropping[what] = self._copying.spawn(work, name=f"drop {replica}")
            dropping.add_done_callback(lambda _: self._dropping.pop(what, None))
        await result_of(dropping, "the node ends")

    async def _drop(self, replica: ReplicaId, before: int, *, copy_only: bool) -> None:
        async with self._turn(replica):
            known, copy = self.get(replica), self._copies.get(replica)
            if copy is not None and not (before and copy.spec.copy >= before):
                await self._give_up(replica)
                copy = None
            if copy_only or copy is not None or (known is not None and before and known.spec.copy >= before):
                return
            folders = await self._removals.mark(replica)  # else it goes on being reported, and is asked for again
            await self._retire(replica)
            self._removals.begin(replica, folders)
        await self._removals.ended(replica)

    async def close(self) -> None:
        await self._copying.close()
        for copy in self._copies.values():
            await copy.close()
        self._copies.clear()
        for ahead in self._ahead.values():
            ahead.close()
        for replica in self.all():
            await self._close(replica)
        self._open.clear()

    async def _close(self, replica: Replica) -> None:
        replica.close()
        await self._scopes.pop(replica.id).close()
        await replica.log.close()


def _status_of_copy(known: Replica, spec: pb.ReplicaSpec) -> pb.ReplicaStatus:
    """Of one that is complete, with the trim point that is on its disk."""
    if known.spec.copy != spec.copy:
        raise AlreadyExists(f"replica {known.id} is here already, and is not what copy {spec.copy} made")
    status = known.status()
    status.trimmed_glsn = known.log.durable_trimmed_glsn
    return status


def _passing_on(spec: pb.ReplicaSpec) -> list[int]:
    """Of a chain those that somebody stores at: where a client leads all of them, and none where nobody does yet."""
    if spec.replication != CHAIN:
        return []
    if spec.journal:
        return list(spec.members) if spec.writer else []
    return list(spec.members[1:])
