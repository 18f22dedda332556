"""The repository's methods, for nodes, clients and operators.

A method that changes something is carried to its end once it has begun, even if its caller goes away
half way: what the store has and what memory shows must not part.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from varlog.base.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    NoSpace,
    NotWritten,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.base.ids import FIRST_EPOCH, FIRST_GLSN, Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.base.names import check_name
from varlog.core.ordering.cut import LogOrder
from varlog.core.placement import place_streams
from varlog.ports import World
from varlog.ports.disk import DiskFailed
from varlog.repository.catalog import Catalog
from varlog.repository.config import RepositoryConfig
from varlog.repository.links import NodeLinks, slots_of
from varlog.repository.opening import all_or_first_error, open_replicas
from varlog.repository.orderer import Orderer
from varlog.repository.rebuilder import Rebuilder
from varlog.runtime.scope import Scope
from varlog.transport.peer import Handler, Handlers, Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ORDERINGS = ("cut",)
MOST_REPLICAS = 16
MOST_STREAMS = 1024


class Service:
    """Handlers for everything a repository is asked."""

    def __init__(
        self,
        world: World,
        config: RepositoryConfig,
        scope: Scope,
        catalog: Catalog,
        orderer: Orderer,
        links: NodeLinks,
        rebuilder: Rebuilder,
        closing: asyncio.Lock,
    ) -> None:
        """`scope` outlives every connection. `closing` is held by whoever seals, removes or heals a log: one
        that is refused must not open what another has closed."""
        self._world = world
        self._config = config
        self._scope = scope
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._rebuilder = rebuilder
        self._closing = closing

    def handlers(self) -> Handlers:
        return {
            Method.REGISTER: self._to_the_end(self.register),
            Method.REPORT: self.report,
            Method.CREATE_LOG: self._to_the_end(self.create_log),
            Method.GET_LOG: self.get_log,
            Method.WATCH_LOG: self.watch_log,
            Method.LIST_LOGS: self.list_logs,
            Method.LIST_NODES: self.list_nodes,
            Method.TAIL: self.tail,
            Method.TRIM_LOG: self._to_the_end(self.trim_log),
            Method.SEAL_LOG: self._to_the_end(self.seal_log),
            Method.REMOVE_LOG: self._to_the_end(self.remove_log),
            Method.STATUS: self.status,
        }

    def _to_the_end(self, handler: Callable[[Request], Awaitable[None]]) -> Handler:
        """The handler as a task of the repository's own, which does not end with the request."""

        async def run(request: Request) -> None:
            try:
                await handler(request)
            except DiskFailed as error:
                request.fail(OutcomeUnknown(f"the store failed, and may have it or not: {error.message}"))
                raise  # the store is gone, and with it this repository: see Repository.wait_failed
            except VarlogError as error:
                request.fail(error)

        def handle(request: Request) -> None:
            self._scope.spawn(run(request), name=request.method.name.lower())

        return handle

    # ------------------------------------------------------------ nodes

    async def register(self, request: Request) -> None:
        message: pb.RegisterRequest = request.message
        node = await self._catalog.register(message)
        self._links.register(NodeId(node.id), request.peer, message.boot)
        request.reply(
            pb.RegisterReply(
                cluster_id=self._catalog.cluster_id,
                node_id=node.id,
                heartbeat_ms=self._config.heartbeat_ms,
                directory=self._catalog.directory(),
            )
        )

    def report(self, request: Request) -> None:
        self._links.report(request.peer, request.message)

    def list_nodes(self, request: Request) -> None:
        request.reply(pb.ListNodesReply(nodes=self._nodes()))

    def _nodes(self) -> list[pb.NodeInfo]:
        connected = self._links.connected()
        load = self._catalog.load_of(self._catalog.nodes)
        served = []
        for number, node in self._catalog.nodes.items():
            copy = pb.NodeInfo()
            copy.CopyFrom(node)
            copy.connected = number in connected
            copy.last_seen_us = self._links.last_seen_us.get(number, 0)
            copy.replicas = load[number]
            if volumes := self._links.volumes(number):
                del copy.volumes[:]
                copy.volumes.extend(volumes)
            copy.troubles.extend(self._links.troubles(number))
            served.append(copy)
        return served

    # ------------------------------------------------------------ making and removing logs

    async def create_log(self, request: Request) -> None:
        """Place the streams, open every replica, then let the log exist (W13, M7)."""
        message: pb.CreateLogRequest = request.message
        _check_log(message)
        if any(log.name == message.name for log in self._catalog.logs.values()):
            raise AlreadyExists(f"a log named {message.name!r} exists")
        load = self._catalog.load_of(self._links.connected())
        placed = place_streams(message.streams, message.replicas, load)
        nodes = sorted({node for members in placed for node in members})
        number = await self._catalog.reserve_log(nodes)
        self._links.creating[number] = None
        try:
            log = self._new_log(number, message, placed)
            await open_replicas(self._links, log, log.chain[0], log.chain[0].streams)
            await self._catalog.add_log(log)
            self._orderer.add(log)
        finally:
            del self._links.creating[number]
        request.reply(self._catalog.served(log))

    def _new_log(self, number: LogId, message: pb.CreateLogRequest, placed: list[tuple[NodeId, ...]]) -> pb.LogInfo:
        segment = pb.SegmentInfo(
            epoch=FIRST_EPOCH,
            ordering=message.ordering,
            base=FIRST_GLSN,
            replicas=message.replicas,
            ack=message.replicas,
            streams=[pb.StreamInfo(id=index, members=members) for index, members in enumerate(placed, 1)],
        )
        return pb.LogInfo(
            id=number,
            name=message.name,
            ordering=message.ordering,
            replicas=message.replicas,
            streams=message.streams,
            next_stream=message.streams + 1,
            chain=[segment],
            created_us=self._world.clock.wall_us(),
        )

    async def remove_log(self, request: Request) -> None:
        async with self._closing:
            log = self._catalog.log_named(request.message.name)
            number = LogId(log.id)
            async with self._closed(number):
                await self._catalog.remove_log(log)
            self._orderer.remove(number)
        self._links.mend_all(number)
        request.reply(pb.Empty())

    # ------------------------------------------------------------ looking at logs

    def get_log(self, request: Request) -> None:
        request.reply(self._catalog.served(self._catalog.log_named(request.message.name)))

    async def watch_log(self, request: Request) -> None:
        """Parts: the log as it is, and again whenever it or a member's address changes; ends when it is removed."""
        last: pb.LogInfo | None = None
        while True:
            changed = self._catalog.changed()
            served = self._catalog.served(self._catalog.log_named(request.message.name))
            if last is not None and served.id != last.id:
                raise Unavailable("the log was removed and made anew")
            if served != last:
                await request.part(served)
                last = served
            await changed

    def list_logs(self, request: Request) -> None:
        logs = [self._catalog.served(log) for log in self._catalog.logs.values()]
        request.reply(pb.ListLogsReply(logs=logs))

    def tail(self, request: Request) -> None:
        log = self._catalog.log(request.message.log)
        order = self._orderer.order(LogId(log.id))
        request.reply(pb.TailReply(tail=order.high_watermark, trimmed=log.trimmed))

    # ------------------------------------------------------------ trim and seal

    async def trim_log(self, request: Request) -> None:
        """Record the point, then have every member make it durable; only then is it answered (I13)."""
        message: pb.TrimLogRequest = request.message
        log = self._catalog.log(message.log)
        tail = self._orderer.order(LogId(log.id)).high_watermark
        if message.upto > tail:
            raise NotWritten(f"cannot trim up to {message.upto}: the log's tail is {tail}", tail)
        if message.upto > log.trimmed:

            def trim_further(changed: pb.LogInfo) -> None:
                changed.trimmed = max(changed.trimmed, message.upto)

            log = await self._catalog.change_log(LogId(log.id), trim_further)
        calls = []
        for segment in log.chain:
            for stream in segment.streams:
                name = pb.ReplicaId(log=log.id, segment=segment.epoch, stream=stream.id)
                trim = pb.TrimRequest(replica=name, upto=log.trimmed)
                calls += [self._links.call(NodeId(node), Method.TRIM, trim) for node in stream.members]
        await all_or_first_error(calls, "the trim point is recorded, and reaches every node as it comes back")
        request.reply(pb.TailReply(tail=tail, trimmed=log.trimmed))

    async def seal_log(self, request: Request) -> None:
        """Under `cut` the end is the last cut: no more cuts, record it, tell the members."""
        number = LogId(request.message.log)
        async with self._closing:
            log = self._catalog.log(number)
            if not log.sealed:
                async with self._closed(number) as order:
                    log = await self._catalog.change_log(number, lambda changed: _end_at(changed, order))
                self._links.mend_all(number)
        request.reply(self._catalog.served(log))

    @asynccontextmanager
    async def _closed(self, number: LogId) -> AsyncIterator[LogOrder]:
        """The log gets no more cuts; if the store refuses the change that goes with it, it gets them again."""
        order = await self._orderer.close(number)
        try:
            yield order
        except (NoSpace, Conflict):
            # After any other error the store may have the change: then no cut may be made in this life.
            if not self._catalog.log(number).sealed:
                self._orderer.reopen(number)
            raise

    # ------------------------------------------------------------ status

    def status(self, request: Request) -> None:
        reply = pb.StatusReply(cluster_id=self._catalog.cluster_id, nodes=self._nodes(), cuts=self._orderer.cuts)
        for log in self._catalog.logs.values():
            reply.logs.append(self._log_status(log))
        request.reply(reply)

    def _log_status(self, log: pb.LogInfo) -> pb.LogStatus:
        order = self._orderer.order(LogId(log.id))
        status = pb.LogStatus(log=self._catalog.served(log), tail=order.high_watermark, kept_cuts=order.kept_cuts)
        for segment in log.chain:
            for stream in segment.streams:
                replica = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
                status.streams.append(self._stream_status(replica, stream))
        return status

    def _stream_status(self, replica: ReplicaId, stream: pb.StreamInfo) -> pb.StreamStatus:
        known = self._orderer.order(replica.log).stream(replica.stream)
        status = pb.StreamStatus(
            log=replica.log,
            segment=replica.segment,
            stream=replica.stream,
            committed=known.committed if known is not None else stream.end_slot,
            trouble=self._rebuilder.trouble(replica) or (known.stopped if known is not None else ""),
        )
        silent = []
        for node in stream.members:
            row = self._links.row(NodeId(node), replica)
            report = status.replicas.add(node=node, reported=row is not None)
            if row is None:
                silent.append(str(node))
                continue
            report.contiguous = slots_of(row)
            report.state = row.state
            report.stored_bytes = row.stored_bytes
            if row.state == pb.REPLICA_FAILED and not status.trouble:
                status.trouble = f"its replica on node {node} has failed"
            elif row.trouble and not status.trouble:
                status.trouble = f"its replica on node {node}: {row.trouble}"
        if silent and not status.trouble:
            status.trouble = f"waits for node {', '.join(silent)}"
        return status


def _end_at(log: pb.LogInfo, order: LogOrder) -> None:
    """Let a log end where its last cut did."""
    log.sealed = True
    segment = log.chain[-1]
    segment.state = pb.SEGMENT_SEALED
    segment.end = order.high_watermark + 1
    for stream in segment.streams:
        known = order.stream(StreamId(stream.id))
        stream.state = pb.STREAM_FINALIZED
        stream.end_slot = known.committed if known is not None else 0


def _check_log(message: pb.CreateLogRequest) -> None:
    check_name(message.name)
    if message.ordering not in ORDERINGS:
        raise Unsupported(f"ordering {message.ordering!r}: this release has {', '.join(ORDERINGS)}")
    if not 1 <= message.replicas <= MOST_REPLICAS:
        raise InvalidArgument(f"a log has 1 to {MOST_REPLICAS} replicas, not {message.replicas}")
    if not 1 <= message.streams <= MOST_STREAMS:
        raise InvalidArgument(f"a log has 1 to {MOST_STREAMS} streams, not {message.streams}")
