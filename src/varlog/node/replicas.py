"""The replicas of a node, on its volumes: opening, creating, copying, finding and dropping."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from varlog.base.errors import AlreadyExists, NotFound, ReplicaFailed, Unavailable, VarlogError
from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.node.copier import Connect
from varlog.node.copy import Copy
from varlog.node.pace import Pace
from varlog.node.removals import Removals
from varlog.node.replica import Replica
from varlog.node.roles import Roles
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
        self.roles = Roles(world.clock, volumes, connect, changed)
        self._failed: dict[ReplicaId, VarlogError] = {}
        """Replicas whose files could not be opened, and why."""
        self._failed_copies: dict[ReplicaId, int] = {}
        """The numbers of the copies that had made them."""
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
        self._drops = asyncio.Lock()
        """Hundreds of drops may come at once, and only one of them is to stand before who makes a replica."""

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
        self._removals.begin_garbage()  # beside what the node serves, as it may take long

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
        """No replica comes or goes, and of this one nothing is on its way out."""
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
        self.roles.take(replica, scope, new=new)
        return replica

    def take_roles(self) -> None:
        """Once the node knows its id."""
        for replica in self.all():
            self.roles.take(replica, self._scopes[replica.id], new=False)

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
        self.roles.forget(replica)
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
        """DROP: forget a replica, for good; its space comes back after that. One that is not there is gone already.

        It is done to its end though who asked does not wait for that: what is half gone nobody would ask for again.
        For the same reason what is marked is not waited for: who asked would give up before hundreds are removed.
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
        async with self._drops, self._changing:
            known, copy = self.get(replica), self._copies.get(replica)
            if copy is not None and not (before and copy.spec.copy >= before):
                await self._give_up(replica)
                copy = None
            if copy_only or copy is not None or (known is not None and before and known.spec.copy >= before):
                return
            folders = await self._removals.mark(replica)  # else it goes on being reported, and is asked for again
            await self._retire(replica)
            self._removals.begin(replica, folders)
        await self._removals.settled(replica)

    async def close(self) -> None:
        await self._copying.close()
        for copy in self._copies.values():
            await copy.close()
        self._copies.clear()
        self.roles.close()
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
