"""Waiting until the cluster has repaired what faults left, as far as it can; `scenario` has the course of a run."""

from itertools import cycle

from google.protobuf.message import Message

from varlog.base.errors import VarlogError
from varlog.client import Cluster
from varlog.client.describe import ClusterStatus
from varlog.sim.checkers import Violation
from varlog.sim.cluster import REPOSITORY_PORT, SimulatedCluster
from varlog.sim.excuses import Excuses, streams_of
from varlog.sim.host import Process
from varlog.sim.loop import SimulatedLoop
from varlog.sim.weather import Shape
from varlog.transport.peer import connect as connect_peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

BOUND_SECONDS = 60.0
"""Within so long after all faults have stopped, every stream takes an append and every subscriber is at the tail."""


class Repair:
    """Looks at logs and at the status, from the admin's process, until they are as they should be."""

    def __init__(
        self, loop: SimulatedLoop, cluster: SimulatedCluster, log_names: list[str], shape: Shape, excuses: Excuses
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._log_names = log_names
        self._shape = shape
        self._excuses = excuses
        self.infos: dict[str, pb.LogInfo] = {}
        """The logs' records, as last seen."""

    async def healed(self, admin: Process, seconds: float) -> None:
        """Until streams that lost a member for good are replaced, where that can be, or time is up."""
        deadline = self._loop.now + seconds
        while True:
            await self.look(admin)
            if all(map(self._is_whole, self.infos.values())) or self._loop.now > deadline:
                return
            await admin.clock.sleep(0.5)

    def _is_whole(self, info: pb.LogInfo) -> bool:
        well = [stream for stream in streams_of(info) if not self._excuses.excuse(info, stream)]
        hurt = [stream for stream in well if any(self._excuses.trouble(info, stream, node) for node in stream.members)]
        whole = not hurt and len(well) >= info.streams and not self._excuses.on_drained(info)
        return info.sealed or not self._excuses.healable(info) or whole

    # ------------------------------------------------------------ copies

    async def rebuilt(self, admin: Process) -> None:
        """Until every stream that has ended has all its replicas again, where that can be, or time is up."""
        began = self._loop.now
        deadline = began + BOUND_SECONDS
        while self._loop.now < deadline:
            await self.look(admin)
            reply = await self.ask(admin, Method.STATUS, pb.StatusRequest())
            assert isinstance(reply, pb.StatusReply)
            states = {(each.log, each.stream): list(each.replicas) for log in reply.logs for each in log.streams}
            self._excuses.replicas = states
            stored = sum(each.stored_bytes for replicas in states.values() for each in replicas)
            copying = stored / self._shape.copy_bytes_per_s  # at most, however slow copies are
            deadline = max(deadline, began + BOUND_SECONDS + copying)
            if all(
                self._excuses.thin(info, stream)
                or all(each.state == pb.REPLICA_FINISHED for each in states.get((info.id, stream.id), ()))
                for info in self.infos.values()
                for stream in streams_of(info)
                if stream.state == pb.STREAM_FINALIZED
            ) and not self._excuses.not_moved(self.infos):
                break
            await admin.clock.sleep(0.5)
        await self._bound(admin)

    async def _bound(self, admin: Process) -> None:
        """Until the backups of led streams have what is committed, on their disks too, or time is up."""
        deadline = self._loop.now + BOUND_SECONDS
        while self._loop.now < deadline:
            reply = await self.ask(admin, Method.STATUS, pb.StatusRequest())
            assert isinstance(reply, pb.StatusReply)
            streams = [stream for log in reply.logs for stream in log.streams]
            if all(each.contiguous >= stream.committed for stream in streams for each in stream.replicas):
                break
            await admin.clock.sleep(0.5)
        await admin.clock.sleep(1.0)  # positions that came last are written after a short idle

    # ------------------------------------------------------------ what the status says

    async def calm(self, admin: Process, cluster: Cluster) -> list[Violation]:
        """Until the status names no trouble of a stream that has none: an operator must be able to believe it."""
        deadline = self._loop.now + BOUND_SECONDS
        while True:
            try:
                status = await cluster.status()
                await self.look(admin)
                alarms = self._false_alarms(status)
            except VarlogError as error:
                alarms = [Violation("status", "", f"cannot be asked for: {error!r}")]
            if not alarms or self._loop.now > deadline:
                return alarms
            await admin.clock.sleep(1.0)

    def _false_alarms(self, status: ClusterStatus) -> list[Violation]:
        found = []
        for log in status.logs:
            info = self.infos[log.log.name]
            for stream, known in zip(log.streams, streams_of(info), strict=False):
                troubled = any(self._excuses.trouble(info, known, node) for node in known.members)
                troubled = troubled or bool(self._excuses.stuck_with_rot(info, known))
                troubled = troubled or self._excuses.short_of_nodes(info, known)
                if stream.trouble and not troubled and not self._excuses.end_is_gone(info, known):
                    found.append(Violation("status", info.name, f"stream {stream.stream}: {stream.trouble}"))
        return found

    # ------------------------------------------------------------ asking

    async def look(self, admin: Process) -> None:
        self.infos = {name: await self._log_info(admin, name) for name in self._log_names}

    async def _log_info(self, admin: Process, name: str) -> pb.LogInfo:
        """The chain, asked for by the published protocol."""
        reply = await self.ask(admin, Method.GET_LOG, pb.GetLogRequest(name=name))
        assert isinstance(reply, pb.LogInfo)
        return reply

    async def ask(self, admin: Process, method: Method, message: Message) -> Message:
        hosts = cycle(self._cluster.repositories)
        deadline = admin.clock.now() + BOUND_SECONDS
        while True:
            try:
                address = f"{next(hosts).name}:{REPOSITORY_PORT}"
                peer = await connect_peer(admin.world, address, {}, timeout=5.0)
                try:
                    reply: Message = (await peer.call(method, message, timeout=5.0)).message
                finally:
                    peer.close()
            except VarlogError:
                if admin.clock.now() > deadline:
                    raise
                await admin.clock.sleep(0.2)
            else:
                return reply
