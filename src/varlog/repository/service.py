"""The repository's methods, for nodes, clients and operators.

A method that changes something is carried to its end once it has begun, even if its caller goes away
half way: what the store has and what memory shows must not part.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from varlog.base.errors import (
    NotFound,
    NotWritten,
    OutcomeUnknown,
    Timeout,
    Unavailable,
    VarlogError,
    WrongWriter,
)
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.ports import World
from varlog.ports.disk import DiskFailed
from varlog.repository.archiving import record_archive
from varlog.repository.catalog import Catalog
from varlog.repository.changes import Changes
from varlog.repository.comparer import Comparer
from varlog.repository.config import RepositoryConfig
from varlog.repository.copies import copies_wanted
from varlog.repository.elections import Elections
from varlog.repository.freshness import Freshness
from varlog.repository.gathering import Gatherers
from varlog.repository.healer import Healer
from varlog.repository.journal_tail import journal_tail
from varlog.repository.links import NodeLinks, slots_of
from varlog.repository.logs import Logs
from varlog.repository.opening import all_or_first_error
from varlog.repository.operations import Operations
from varlog.repository.orderer import Orderer
from varlog.repository.positions import Positions
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.retention import Retention
from varlog.repository.roller import Roller
from varlog.runtime.scope import Scope
from varlog.transport.peer import Handler, Handlers, Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LED_TAIL_S = 2.0
"""So long a question for the tail waits for a log's leader, or for the next one."""
LED_ANSWER_S = 0.5
"""So long it waits for his answer: one who stands still keeps his connection, and may have been replaced since."""
LED_PAUSE_S = 0.02
"""Before he is asked again, at first,"""
LED_PAUSE_SHARE = 0.25
"""and later so much of the time that it has taken: a log may be stuck for long, and many may ask."""
ROLE = "leader"
"""Of the repository on an embedded store, which is the only one."""


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
        logs: Logs,
        healer: Healer,
        rebuilder: Rebuilder,
        comparer: Comparer,
        roller: Roller,
        retention: Retention,
        positions: Positions,
        changes: Changes,
        freshness: Freshness,
        elections: Elections,
    ) -> None:
        """`scope` outlives every connection."""
        self._world = world
        self._config = config
        self._scope = scope
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._logs = logs
        self._healer = healer
        self._rebuilder = rebuilder
        self._roller = roller
        self._retention = retention
        self._positions = positions
        self._comparer = comparer
        self._freshness = freshness
        self._elections = elections
        self._gatherers = Gatherers(config.direct_nodes)
        catalog.left = orderer.drop_member
        self._operations = Operations(catalog, orderer, links, changes, config.lost_ms)
        self._started_us = world.clock.wall_us()

    def handlers(self) -> Handlers:
        return {
            Method.REGISTER: self._to_the_end(self.register),
            Method.REPORT: self.report,
            Method.CREATE_LOG: self._to_the_end(self._logs.create),
            Method.GET_LOG: self.get_log,
            Method.WATCH_LOG: self.watch_log,
            Method.LIST_LOGS: self.list_logs,
            Method.LIST_NODES: self._operations.list_nodes,
            Method.TAIL: self.tail,
            Method.TRIM_LOG: self._to_the_end(self.trim_log),
            Method.SEAL_LOG: self._to_the_end(self._logs.seal),
            Method.REMOVE_LOG: self._to_the_end(self._logs.remove),
            Method.STATUS: self._fresh(self.status),
            Method.DRAIN_NODE: self._to_the_end(self._operations.drain_node),
            Method.CHECK_NODE: self._operations.check_node,
            Method.REMOVE_NODE: self._to_the_end(self._operations.remove_node),
            Method.LEASE: self.lease,
            Method.RECONFIGURE_LOG: self._to_the_end(self._logs.reconfigure),
            Method.LEAD_LOG: self.lead_log,
            Method.SCRUB_NODE: self._operations.scrub_node,
            Method.GATHER: self.gather,
            Method.FORWARD: self.forward,
            Method.RECORD_ARCHIVE: self._to_the_end(self.record_archive),
        }

    def _fresh(self, handler: Callable[[Request], None]) -> Handler:
        """The handler, once it is certain that this repository led when it was asked (I10)."""

        def handle(request: Request) -> None:
            def confirmed(error: VarlogError | None) -> None:
                try:
                    if error is not None:
                        raise error
                    if not request.done:
                        handler(request)
                except VarlogError as refused:
                    request.fail(refused)

            self._freshness.confirm(confirmed)

        return handle

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
                lease_ms=self._config.lease_ms,
                directory=self._catalog.directory(),
            )
        )

    def report(self, request: Request) -> None:
        self._links.report(request.peer, request.message)

    def lease(self, request: Request) -> None:
        """A registered node may go on taking appends for a while (W16)."""
        link = self._links.node_at(request.peer)
        if link is None:
            raise Unavailable("no node is registered on this connection")
        gatherers, indirect = self._gatherers.of(link.node, len(self._links.connected()))
        request.reply(pb.LeaseReply(lease_ms=self._config.lease_ms, gatherers=gatherers, indirect=indirect))

    def gather(self, request: Request) -> None:
        """A repository that follows gathers reports from now on, as long as it is connected (M5)."""
        self._gatherers.add(request.message.address, request.peer)
        request.reply(pb.Empty())

    def forward(self, request: Request) -> None:
        if self._gatherers.has(request.peer):
            for report in request.message.reports:
                self._links.forwarded(report)

    # ------------------------------------------------------------ looking at logs

    async def _log_named(self, name: str) -> pb.LogInfo:
        """That there is none is said only by who leads for certain: what is on its way to a log that was removed is
        given up. What there is needs no store that answers."""
        try:
            return self._catalog.log_named(name)
        except NotFound:
            await self._freshness.confirmed()
            return self._catalog.log_named(name)

    async def get_log(self, request: Request) -> None:
        request.reply(self._catalog.served(await self._log_named(request.message.name)))

    async def watch_log(self, request: Request) -> None:
        """Parts: the log as it is, and again whenever it or a member's address changes; ends when it is removed."""
        last: pb.LogInfo | None = None
        while True:
            await self._log_named(request.message.name)
            with self._catalog.changed() as changed:
                served = self._catalog.served(self._catalog.log_named(request.message.name))
                if last is not None and served.id != last.id:
                    raise Unavailable("the log was removed and made anew")
                if served != last:
                    await request.part(served)
                    last = served
                await changed

    def lead_log(self, request: Request) -> None:
        known = LogId(request.message.log) in self._catalog.logs
        (self._elections.lead if known else self._fresh(self._elections.lead))(request)

    def list_logs(self, request: Request) -> None:
        logs = [self._catalog.served(log) for log in self._catalog.logs.values()]
        request.reply(pb.ListLogsReply(logs=logs))

    def tail(self, request: Request) -> Awaitable[None] | None:
        log = self._catalog.logs.get(LogId(request.message.log))
        if log is None or log.sealed or log.chain[-1].ordering == "cut":
            return self._fresh(self._tail_by_cut)(request)
        return self._tail_by_leader(request)

    def _tail_by_cut(self, request: Request) -> None:
        log = self._catalog.log(request.message.log)
        tail = log.chain[-1].end - 1 if log.sealed else self._orderer.order(LogId(log.id)).high_watermark
        request.reply(pb.TailReply(tail=tail, trimmed=log.trimmed, segment=log.chain[-1].epoch, sealed=log.sealed))

    async def _tail_by_leader(self, request: Request) -> None:
        """Who numbers entries knows. That nobody had followed is certain if we still lead after it answered (I10)."""
        clock = self._world.clock
        began = clock.now()
        while True:
            log = self._catalog.log(request.message.log)
            if log.sealed or log.chain[-1].ordering == "cut":
                self._fresh(self._tail_by_cut)(request)
                return
            try:
                tail = await self._led_tail(log)
            except (Unavailable, NotFound, WrongWriter, Timeout) as error:
                if clock.now() > began + LED_TAIL_S:
                    raise Unavailable(f"the leader of log {log.name!r} does not answer: {error.message}") from error
            else:
                await self._freshness.confirmed()
                now = self._catalog.log(request.message.log)
                if now.chain[-1].epoch == log.chain[-1].epoch and not now.sealed:
                    request.reply(pb.TailReply(tail=tail, trimmed=now.trimmed, segment=now.chain[-1].epoch))
                    return
            # it is being replaced, or just was
            await clock.sleep(max(LED_PAUSE_S, LED_PAUSE_SHARE * (clock.now() - began)))

    async def _led_tail(self, log: pb.LogInfo) -> int:
        segment = log.chain[-1]
        stream = segment.streams[0]
        if log.journal:
            return await journal_tail(self._links, self._world.clock, log) - 1
        name = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
        status = await self._links.lead(NodeId(stream.members[0]), name, LED_ANSWER_S)
        if status.state != pb.REPLICA_OPEN:
            # One that has failed binds no more what it has committed, and told others: it knows less than they do.
            raise Unavailable(f"its replica on node {stream.members[0]} takes no more entries")
        return (status.granted or segment.base + status.committed) - 1

    # ------------------------------------------------------------ trim

    async def trim_log(self, request: Request) -> None:
        """Record the point, then have every member make it durable; only then is it answered (I13)."""
        message: pb.TrimLogRequest = request.message
        log = self._catalog.log(message.log)
        tail = await self._tail_beyond(log, message.upto)
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

    async def _tail_beyond(self, log: pb.LogInfo, position: int) -> int:
        """The tail as reported; if a position lies beyond it, as the leader itself has it.

        Under `sequencer` that is what was granted. A segment may end before it, so only what is written counts.
        """
        tail = self._positions.tail(log)
        if position <= tail or log.chain[-1].ordering == "cut" or log.sealed:
            return tail
        tail = await self._led_tail(log)
        if log.chain[-1].ordering != "sequencer" or position > tail:
            return tail
        return await self._written(LogId(log.id), position)

    async def _written(self, number: LogId, position: int) -> int:
        """The tail as reported, once it has reached a position that was granted, or should have."""
        clock = self._world.clock
        deadline = clock.now() + LED_TAIL_S
        while (tail := self._positions.tail(self._catalog.log(number))) < position and clock.now() < deadline:
            await clock.sleep(LED_PAUSE_S)
        return tail

    # ------------------------------------------------------------ archive

    async def record_archive(self, request: Request) -> None:
        """How far the log is archived, by compare-and-swap (P4)."""
        message: pb.RecordArchiveRequest = request.message
        log = self._catalog.log(message.log)
        tail = await self._tail_beyond(log, message.archived - 1)
        if message.archived > tail + 1:
            raise NotWritten(f"position {message.archived - 1} is not archived: the log's tail is {tail}", tail)
        changed = await self._catalog.change_log(LogId(log.id), partial(record_archive, request=message))
        request.reply(self._catalog.served(changed))

    # ------------------------------------------------------------ status

    def status(self, request: Request) -> None:
        reply = pb.StatusReply(
            cluster_id=self._catalog.cluster_id,
            nodes=self._operations.nodes(),
            cuts=self._orderer.cuts,
            role=ROLE,
            started_us=self._started_us,
        )
        for log in self._catalog.logs.values():
            reply.logs.append(self._log_status(log))
        request.reply(reply)

    def _log_status(self, log: pb.LogInfo) -> pb.LogStatus:
        order = self._orderer.order(LogId(log.id))
        status = pb.LogStatus(
            log=self._catalog.served(log),
            tail=self._positions.tail(log),
            kept_cuts=order.kept_cuts,
            trouble=self._log_trouble(LogId(log.id)),
        )
        for segment in log.chain:
            for stream in segment.streams:
                replica = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
                status.streams.append(self._stream_status(replica, stream, copies_wanted(log, segment, stream)))
        return status

    def _log_trouble(self, log: LogId) -> str:
        first = self._healer.trouble(log) or self._elections.trouble(log) or self._rebuilder.log_trouble(log)
        return first or self._roller.trouble(log) or self._retention.trouble(log)

    def _stream_status(self, replica: ReplicaId, stream: pb.StreamInfo, wanted: int) -> pb.StreamStatus:
        known = self._orderer.order(replica.log).stream(replica.stream)
        status = pb.StreamStatus(
            log=replica.log,
            segment=replica.segment,
            stream=replica.stream,
            committed=self._positions.committed(replica, stream),
            trouble=known.stopped if known is not None else "",
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
            report.damage.extend(row.damage)
            if row.state == pb.REPLICA_FAILED and not status.trouble:
                status.trouble = f"its replica on node {node} has failed"
            elif row.trouble and not status.trouble:
                status.trouble = f"its replica on node {node}: {row.trouble}"
        if silent and not status.trouble:
            ended = stream.state == pb.STREAM_FINALIZED
            status.trouble = f"{'no word of its copy on' if ended else 'waits for'} node {', '.join(silent)}"
        elif len(stream.members) < wanted and not status.trouble:
            status.trouble, status.thin = f"has {len(stream.members)} of {wanted} copies", True
        others = (self._rebuilder.trouble(replica), self._comparer.trouble(replica))
        status.trouble = "; ".join(filter(None, (status.trouble, *others)))
        return status
