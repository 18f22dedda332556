"""The storage node process: volumes, identity, replicas, and the tie to the repository.

What each verb does is found through `verbs.py`; this file only joins the parts and starts and ends them.
"""

import asyncio
from collections.abc import Callable, Sequence

from varlog.base.errors import Unavailable, VarlogError, WrongCluster
from varlog.base.ids import NodeId
from varlog.node.config import NodeConfig
from varlog.node.link import RepositoryLink
from varlog.node.pace import Pace
from varlog.node.replica import Replica
from varlog.node.replicas import Replicas
from varlog.node.scrubber import Scrubber
from varlog.node.verbs import Verbs
from varlog.ports import Disk, World
from varlog.runtime.scope import Scope
from varlog.storage.damage import describe
from varlog.storage.volume import Volume
from varlog.transport.peer import Peer, Request, Server, serve
from varlog.transport.pool import PeerPool, Place
from varlog.transport.tcp import advertised
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

VOLUME_FULL = "its volume is full: appends are refused until there is room"
HOUSEKEEPING_EVERY_S = 5.0
"""How often volumes are asked for their free space, and replicas tidied."""
UNTIDY = "housekeeping"
"""The beginning of what is told of a replica while that does not work."""


class StorageNode:
    """One storage node. `start` it, wait for whatever the caller likes, `close` it."""

    def __init__(
        self,
        world: World,
        disks: Sequence[Disk],
        config: NodeConfig,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`tell` gets lines for people about what they may want to mend."""
        self._world = world
        self._disks = list(disks)
        self._config = config
        self._tell = tell
        self._scope = Scope()
        self._volumes: list[Volume] = []
        self._spaces: list[tuple[int, int]] = []
        self._directory = pb.NodeDirectory()
        self._pool = PeerPool(world)
        pace = Pace(world.clock, config.copy_bytes_per_s)
        self._replicas = Replicas(world, self._volumes, config.file_bytes, self._connect, self._changed, pace, tell)
        scrub_pace = Pace(world.clock, config.scrub_bytes_per_s)
        self._scrubber = Scrubber(world, self._replicas, scrub_pace, config.scrub_every_s, tell)
        self._replicas.on_damage = self._scrubber.suspect
        self._server: Server | None = None
        self._link: RepositoryLink | None = None

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Open the volumes and every replica on them, serve, and begin to join the cluster."""
        for disk in self._disks:
            self._volumes.append(await Volume.open(disk, self._world.random))
        self._check_identities()
        for volume in self._volumes:
            await volume.begin_boot()
        await self._replicas.open_all()
        await self._ask_spaces()
        verbs = Verbs(self._replicas, self._scrubber, self._report, self._learn_directory)
        handlers = {**verbs.handlers(), Method.HELLO: self._hello}
        self._server = await serve(self._world, self._config.listen, handlers)
        self._scope.spawn(self._keep_house(), name="housekeeping")
        self._scope.spawn(self._scrubber.run(), name="scrub")
        self._link = RepositoryLink(
            self._world,
            self._config.repositories,
            handlers,
            registration=self._registration,
            registered=self._registered,
            report=self._report,
            tell=self._tell,
            suspend=self._replicas.roles.suspend,
        )
        self._scope.spawn(self._link.run(), name="repository link")

    @property
    def address(self) -> str:
        """By which others reach it."""
        if self._server is None:
            raise Unavailable("the node has not been started")
        return advertised(self._config.advertise, self._server.address)

    @property
    def node_id(self) -> NodeId:
        """0 until the repository has given one."""
        return NodeId(self._volumes[0].identity.node_id)

    @property
    def replicas(self) -> Replicas:
        return self._replicas

    @property
    def connected(self) -> bool:
        """Registered with a repository just now."""
        return self._link is not None and self._link.connected

    async def wait_failed(self) -> VarlogError:
        """Returns only if this node can never join the cluster, with the reason."""
        if self._link is None:
            raise Unavailable("the node has not been started")
        return await asyncio.shield(self._link.fatal)

    async def close(self) -> None:
        """Stop serving and close the files. What was acknowledged is on disk already."""
        if self._server is not None:
            await self._server.close()
        await self._scope.close()
        await self._scrubber.close()
        await self._replicas.close()
        self._pool.close()
        for disk in self._disks:
            disk.close()

    # ------------------------------------------------------------ identity

    def _check_identities(self) -> None:
        """All folders belong to one node, and to the one that was asked for."""
        first = self._volumes[0].identity
        names: dict[str, str] = {}
        for volume in self._volumes:
            other = names.setdefault(volume.identity.incarnation, volume.name)
            if other != volume.name:
                raise WrongCluster(f"the data folders {other} and {volume.name} are one volume and a copy of it")
        for volume in self._volumes[1:]:
            identity = volume.identity
            if identity.node_id and (identity.cluster_id, identity.node_id) != (first.cluster_id, first.node_id):
                raise WrongCluster(
                    f"the data folders belong to different nodes: {first.node_id} of cluster "
                    f"{first.cluster_id or '(none)'} and {identity.node_id} of {identity.cluster_id or '(none)'}"
                )
        if self._config.node_id and first.node_id not in (0, self._config.node_id):
            raise WrongCluster(f"the data folder belongs to node {first.node_id}, not to {self._config.node_id}")

    def _registration(self) -> pb.RegisterRequest:
        identity = self._volumes[0].identity
        return pb.RegisterRequest(
            cluster_id=identity.cluster_id,
            node_id=identity.node_id or self._config.node_id,
            incarnation=identity.incarnation,
            boot=identity.boot,
            address=self.address,
            zone=self._config.zone,
            volumes=self._volume_list(),
        )

    def _volume_list(self) -> list[pb.Volume]:
        return [
            pb.Volume(path=volume.name, free_bytes=free, total_bytes=total)
            for volume, (free, total) in zip(self._volumes, self._spaces, strict=True)
        ]

    def _hello(self, request: Request) -> None:
        identity = self._volumes[0].identity
        request.reply(pb.HelloReply(cluster_id=identity.cluster_id, node_id=identity.node_id))

    async def _registered(self, reply: pb.RegisterReply) -> None:
        for volume in self._volumes:
            await volume.join(reply.cluster_id, reply.node_id)
        self._pool.cluster_id = reply.cluster_id
        self._learn_directory(reply.directory)
        self._replicas.take_roles()

    # ------------------------------------------------------------ reports

    def _changed(self, replica: Replica) -> None:
        if self._link is not None:
            self._link.changed(replica)

    def _report(self, replicas: Sequence[Replica] | None = None) -> pb.GetReportResponse:
        """What seed 003 calls a report, one message for the whole node; None: of all replicas."""
        identity = self._volumes[0].identity
        report = pb.GetReportResponse(
            storage_node_id=identity.node_id, boot=identity.boot, directory_version=self._directory.version
        )
        for replica in self._replicas.all() if replicas is None else replicas:
            _add_row(report, replica)
        if replicas is None:
            self._complete(report)
        return report

    def _complete(self, report: pb.GetReportResponse) -> None:
        """What a report of all replicas has besides them."""
        report.complete = True
        report.volumes.extend(self._volume_list())
        report.scrub.CopyFrom(self._scrubber.status())
        for failed, error in self._replicas.failed.items():
            report.uncommit_reports.add(
                log_id=failed.log,
                segment=failed.segment,
                log_stream_id=failed.stream,
                state=pb.REPLICA_FAILED,
                trouble=error.message,
            )

    # ------------------------------------------------------------ other nodes

    def _learn_directory(self, directory: pb.NodeDirectory) -> None:
        if directory.version >= self._directory.version:
            self._directory = directory

    async def _connect(self, node: NodeId) -> Peer:
        for each in self._directory.nodes:
            if each.node_id == node:
                return await self._pool.get(Place(each.address, node))
        raise Unavailable(f"nobody has said where node {node} is")

    # ------------------------------------------------------------ volumes

    async def _ask_spaces(self) -> None:
        known = [volume.trouble for volume in self._volumes]
        self._spaces = [await volume.space() for volume in self._volumes]
        for volume, before in zip(self._volumes, known, strict=True):
            if volume.trouble and not before:
                self._tell(f"the volume {volume.name} does not say what space it has: {volume.trouble}")

    async def _keep_house(self) -> None:
        while True:
            await self._world.clock.sleep(HOUSEKEEPING_EVERY_S)
            await self._ask_spaces()
            for replica in self._replicas.all():
                try:
                    await replica.tidy()
                except VarlogError as error:
                    replica.trouble = f"{UNTIDY}: {error.message}"
                else:
                    if replica.trouble.startswith(UNTIDY):
                        replica.trouble = ""


def _add_row(report: pb.GetReportResponse, replica: Replica) -> None:
    log, name = replica.log, replica.id
    facts, written = log.facts, log.written
    row = report.uncommit_reports.add(
        log_stream_id=name.stream,
        uncommitted_llsn_offset=facts.committed + 1,
        uncommitted_llsn_length=log.durable - facts.committed,
        high_watermark=facts.high_watermark,
        log_id=name.log,
        segment=name.segment,
        bound_llsn_offset=written.committed + 1,
        state=replica.state,
        trimmed_glsn=written.trimmed_glsn,
        stored_bytes=log.stored_bytes,
        read_us=replica.read_us,
    )
    if replica.missed_commits or replica.leads or replica.trouble or log.damage or replica.full:
        _add_particulars(row, replica)


def _add_particulars(row: pb.LogStreamUncommitReport, replica: Replica) -> None:
    """What most replicas have nothing to say of."""
    row.missed_commits = replica.missed_commits
    row.leads = replica.leads
    row.trouble = replica.trouble or _ailment(replica)
    row.damage.extend(
        pb.Damage(slot=each.slot, end_slot=each.end, glsn=each.glsn, end_glsn=each.glsn_end)
        for each in replica.log.damage
    )


def _ailment(replica: Replica) -> str:
    if replica.log.damage:
        return f"it is damaged: {describe(replica.log.damage)}"
    return VOLUME_FULL if replica.full and not replica.log.sealed else ""
