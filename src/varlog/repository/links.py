"""Connections to the nodes, and keeping each node where the catalog wants it.

A node's report is compared with what should be: commits it missed are sent from the history, a trim
point or seal it has not heard of is sent again, replicas of removed logs are dropped. So nothing
that was lost on the way, by a crash or a broken connection, needs anybody to remember it: the next
heartbeat shows what is missing.
"""

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from google.protobuf.message import Message

from varlog.base.errors import Timeout, Unavailable, VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.cut import Commit, Cut, ReportGate, StreamOrder
from varlog.ports import Clock
from varlog.repository.catalog import Catalog
from varlog.repository.orderer import Orderer
from varlog.repository.standing import Standing
from varlog.runtime.scope import Scope
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

CALL_TIMEOUT_S = 5.0
RESEND_S = 0.3
"""A commit that a node has not applied this long after it was sent is sent again."""
HISTORY_PAUSE_S = 0.02
"""Between two answers to a node that says it missed commits."""
MEND_PAUSE_S = 0.05
"""After something could not be put right, before it is tried again."""
COMMITS_PER_MESSAGE = 1000
"""A node that missed more gets the rest when it has applied these."""


class Step(Enum):
    """What a member of an ended stream does next."""

    WAIT = "others have to take what it shows"
    TAKE = "take what it lacks, and show none of it"
    FINISH = "take what it lacks, and show all"


NextStep = Callable[["NodeLink", ReplicaId, pb.SegmentInfo, pb.StreamInfo], Step]
_UNUSUAL: tuple[pb.LogInfo | None, int, StreamOrder | None] = (pb.LogInfo(), 0, None)
"""Of a replica that has to be compared."""


class NodeLink:
    """One registered node."""

    def __init__(self, node: NodeId, peer: Peer, boot: int, now: float, gate: ReportGate) -> None:
        self.node = node
        self.gate = gate
        self.peer = peer
        self.boot = boot
        self.last_report = now
        self.rows: dict[ReplicaId, pb.LogStreamUncommitReport] = {}
        """The newest report of each replica."""
        self.volumes: list[pb.Volume] = []
        """As last reported; empty before that."""
        self.scrub = pb.ScrubStatus()
        """As last reported."""
        self.listed: dict[ReplicaId, None] | None = None
        """What its last complete report named; None before that."""
        self.owes = True
        """Whether logs may be on record as gone that a complete report of it shows to be gone from here."""
        self.sent_at: dict[ReplicaId, float] = {}
        """When a commit was last sent for a replica."""
        self.history_at: dict[ReplicaId, float] = {}
        """When missed commits were last sent for a replica."""
        self.mending: dict[tuple[str, ReplicaId], None] = {}
        """What is being put right just now."""
        self.waits: dict[ReplicaId, tuple[float, float, int]] = {}
        """Replicas that are to be finished after others of their streams: since when, since when those got no further,
        and how many slots they had then."""
        self.usual: dict[ReplicaId, tuple[pb.LogInfo, int, StreamOrder | None]] = {}
        """Replicas of open streams that lacked nothing when last looked at: the log's record as of then, its trim
        point, and the stream's order, under `cut`. As long as the record is the same, there is little to compare."""


class NodeLinks:
    """All registered nodes, and what is sent to them."""

    def __init__(self, clock: Clock, scope: Scope, catalog: Catalog, orderer: Orderer, silent_s: float) -> None:
        self._clock = clock
        self._scope = scope
        self._catalog = catalog
        self._orderer = orderer
        self._silent_s = silent_s
        self._links: dict[NodeId, NodeLink] = {}
        self._gates: dict[NodeId, ReportGate] = {}
        self._boots: dict[NodeId, int] = {}
        """Of those that have registered in this term."""
        self.last_seen_us: dict[NodeId, int] = {}
        self.left_at: dict[NodeId, float] = {}
        """When the last connection of a node ended."""
        self.creating: dict[LogId, None] = {}
        """Logs whose replicas are being opened: not known yet, and not to be dropped."""
        self.opening: dict[tuple[LogId, StreamId], None] = {}
        """The same of single streams."""
        self.next_step: NextStep = lambda *_: Step.FINISH
        """Whether a member of an ended stream may show what it has."""
        self.standing = Standing(clock)
        self._stopped = False
        catalog.may_hold = self.may_hold

    # ------------------------------------------------------------ who is there

    def register(self, node: NodeId, peer: Peer, boot: int) -> None:
        """A node has (re)connected; an older connection of it ends."""
        old = self._links.get(node)
        if old is not None and old.boot > boot:
            raise Unavailable(f"node {node} is connected with a later start")
        if old is not None and old.peer is not peer:
            old.peer.close()
        if old is None or old.peer is not peer:
            gate = self._gates.setdefault(node, ReportGate())
            link = NodeLink(node, peer, boot, self._clock.now(), gate)
            self._links[node] = link
            self._boots[node] = boot
            peer.context = link
            peer.on_close(lambda _: self._lost(link))
        self.last_seen_us[node] = self._clock.wall_us()

    def forget(self, node: NodeId) -> None:
        """It was removed: its connection ends, and it is told why when it asks again."""
        link = self._links.pop(node, None)
        self._gates.pop(node, None)
        self._boots.pop(node, None)
        self.last_seen_us.pop(node, None)
        self.left_at.pop(node, None)
        self.standing.forget(node)
        if link is not None:
            link.peer.close()

    def node_at(self, peer: Peer) -> NodeLink | None:
        """The node whose connection this is; None for others, and for one that was replaced."""
        link = peer.context
        return link if isinstance(link, NodeLink) and self._links.get(link.node) is link else None

    def _lost(self, link: NodeLink) -> None:
        if self._links.get(link.node) is link:
            del self._links[link.node]
            self.left_at[link.node] = self._clock.now()

    def connected(self) -> list[NodeId]:
        """Nodes that can be relied on for new work."""
        silent_since = self._clock.now() - self._silent_s
        return sorted(node for node, link in self._links.items() if link.last_report >= silent_since)

    def row(self, node: NodeId, replica: ReplicaId) -> pb.LogStreamUncommitReport | None:
        link = self._links.get(node)
        return link.rows.get(replica) if link is not None else None

    def reported(self, replica: ReplicaId, stream: pb.StreamInfo) -> int:
        """How many slots of a stream are committed, as far as its members have told."""
        rows = (self.row(NodeId(node), replica) for node in stream.members)
        return max(0, *(row.uncommitted_llsn_offset - 1 for row in rows if row is not None), 0)

    def lacks(self, node: NodeId, replica: ReplicaId) -> bool:
        """It has listed all it has, and that is not among it."""
        link = self._links.get(node)
        return link is not None and link.listed is not None and replica not in link.listed

    def may_hold(self, log: LogId) -> list[NodeId]:
        """Nodes that have something of a log, have not said yet what they have, or cannot say it now."""
        connected = dict.fromkeys(self.connected())
        found = []
        for node in self._catalog.nodes:
            link = self._links.get(node)
            told = link is not None and node in connected and link.listed is not None
            if link is None or not told or any(each.log == log for each in link.rows):
                found.append(node)
        return found

    async def call(self, node: NodeId, method: Method, message: Message) -> None:
        """Have a node do something."""
        link = self._links.get(node)
        if link is None:
            raise Unavailable(f"node {node} is not connected")
        await link.peer.call(method, message, timeout=CALL_TIMEOUT_S)

    async def ask(self, node: NodeId, method: Method, message: Message, timeout_s: float = CALL_TIMEOUT_S) -> Message:
        """The same, for its answer."""
        link = self._links.get(node)
        if link is None:
            raise Unavailable(f"node {node} is not connected")
        answer: Message = (await link.peer.call(method, message, timeout=timeout_s)).message
        return answer

    # ------------------------------------------------------------ commits

    def announce(self, cuts: list[Cut]) -> None:
        """Tell primaries what a persisted cut means for their streams: one message a node.

        They tell the other members. Where one is away, all members are told from here.
        """
        now = self._clock.now()
        messages: dict[NodeId, pb.CommitRequest] = {}
        for cut in cuts:
            order = self._orderer.order(cut.log)
            for commit in cut.commits:
                stream = order.stream(commit.stream)
                members = stream.members if stream is not None else ()
                relayed = bool(members) and members[0] in self._links
                for node in members:
                    link = self._links.get(node)
                    if link is not None:
                        link.sent_at[ReplicaId(cut.log, cut.segment, commit.stream)] = now
                    if link is not None and (node == members[0] or not relayed):
                        message = messages.setdefault(node, pb.CommitRequest(storage_node_id=node))
                        _add_commit(message, cut.log, cut.segment, commit)
        for node, message in messages.items():
            self._links[node].peer.notify(Method.ADVANCE, message)

    def _send_missed(self, link: NodeLink, replica: ReplicaId, row: pb.LogStreamUncommitReport) -> None:
        """M3: a replica that reports from an older cut gets every commit it missed."""
        now = self._clock.now()
        if now - link.history_at.get(replica, -RESEND_S) < HISTORY_PAUSE_S:
            return
        waits = not row.missed_commits and row.state == pb.REPLICA_OPEN
        if waits and now - link.sent_at.get(replica, -RESEND_S) < RESEND_S:
            return
        missed = self._orderer.order(replica.log).missed(replica.stream, Slot(row.uncommitted_llsn_offset - 1))
        if not missed:
            return
        message = pb.CommitRequest(storage_node_id=link.node)
        for commit in missed[:COMMITS_PER_MESSAGE]:
            _add_commit(message, replica.log, replica.segment, commit)
        link.peer.notify(Method.ADVANCE, message)
        link.sent_at[replica] = link.history_at[replica] = now

    # ------------------------------------------------------------ reports

    def report(self, peer: Peer, report: pb.GetReportResponse) -> None:
        """Take a pushed report: count it for the order, then compare it with what should be."""
        link = self.node_at(peer)
        if link is None:
            return
        if report.boot == link.boot:
            link.last_report = self._clock.now()  # a sign of life, though a later one may have come by another way
        if not link.gate.admits(report.boot, report.sequence):
            return
        if report.directory_version < self._catalog.directory_version:
            link.peer.notify(Method.DIRECTORY, self._catalog.directory())
        if report.complete:
            self.last_seen_us[link.node] = self._clock.wall_us()
            link.usual.clear()
            link.volumes = list(report.volumes)
            link.scrub = report.scrub
            link.listed = dict.fromkeys(map(_replica_of, report.uncommit_reports))
            link.rows = {name: row for name, row in link.rows.items() if name in link.listed}
            link.sent_at = {name: at for name, at in link.sent_at.items() if name in link.listed}
            link.history_at = {name: at for name, at in link.history_at.items() if name in link.listed}
            link.waits = {name: since for name, since in link.waits.items() if name in link.listed}
        self._take(link.node, link, report)
        if report.complete and link.owes and not self._stopped:
            self._forget_unlisted(link)

    def forwarded(self, report: pb.GetReportResponse) -> None:
        """Take a report that another repository has gathered, if it is news; the node need not be connected now."""
        node = NodeId(report.storage_node_id)
        gate = self._gates.get(node)
        if gate is not None and self._boots[node] == report.boot and gate.admits(report.boot, report.sequence):
            self._take(node, self._links.get(node), report)

    def _take(self, node: NodeId, link: NodeLink | None, report: pb.GetReportResponse) -> None:
        for row in report.uncommit_reports:
            replica = _replica_of(row)
            state, offset = row.state, row.uncommitted_llsn_offset - 1
            if state != pb.REPLICA_FAILED:
                tail = Slot(offset + row.uncommitted_llsn_length)
                self._orderer.report(replica.log, node, replica.stream, tail, Slot(row.bound_llsn_offset - 1))
            if link is None:
                continue
            link.rows[replica] = row
            log, trimmed, order = link.usual.get(replica, _UNUSUAL)
            changed = log is not self._catalog.logs.get(replica.log)
            if changed or state != pb.REPLICA_OPEN or row.leads or row.trimmed_glsn < trimmed:
                self._compare(link, replica, row)
            elif order is not None and offset < order.committed:
                self._send_missed(link, replica, row)

    def _compare(self, link: NodeLink, replica: ReplicaId, row: pb.LogStreamUncommitReport) -> None:
        link.usual.pop(replica, None)
        log = self._catalog.logs.get(replica.log)
        if log is None:
            if replica.log in self._catalog.gone and replica.log not in self.creating:
                self._mend(link, "drop", replica, self._drop)
            return
        stream = self._stream(replica)
        if stream is not None and link.node not in stream.members:
            if not _is_copied_to(stream, link.node):
                self._mend(link, "drop", replica, self._drop_replaced)
            return
        if row.state == pb.REPLICA_FAILED:
            return
        if stream is None:
            if replica.stream < log.next_stream and (replica.log, replica.stream) not in self.opening:
                self._mend(link, "drop", replica, self._drop)  # it was opened, and never became part of the log
            return
        order = self._orderer.order(replica.log)
        known = order.stream(replica.stream)
        if known is not None and row.uncommitted_llsn_offset - 1 < known.committed:
            self._send_missed(link, replica, row)
        if row.trimmed_glsn < log.trimmed:
            self._mend(link, "trim", replica, self._trim)
        if stream.state == pb.STREAM_FINALIZED:
            segment = log.chain[replica.segment - 1]
            step = self.next_step(link, replica, segment, stream) if row.state != pb.REPLICA_FINISHED else Step.WAIT
            if step is Step.FINISH:
                self._mend(link, "seal", replica, self._seal)
            elif step is Step.TAKE:
                self._mend(link, "take", replica, self._have_taken)
        elif row.leads == pb.LEADS_WAITING:
            self._mend(link, "lead", replica, self._lead)
        else:
            link.usual[replica] = (log, log.trimmed, known)

    def _stream(self, replica: ReplicaId) -> pb.StreamInfo | None:
        """As the log's record has it."""
        log = self._catalog.logs.get(replica.log)
        if log is None or replica.segment > len(log.chain):
            return None
        for each in log.chain[replica.segment - 1].streams:
            if each.id == replica.stream:
                return each
        return None

    # ------------------------------------------------------------ putting right

    def stop(self) -> None:
        """Put nothing right any more: what the store has and what is known here may have parted. A replica that was
        never part of a log, as far as is known here, may be one of its members by now."""
        self._stopped = True

    def mend_all(self, log: LogId) -> None:
        """Look at every replica of a log now instead of at its next report."""
        for link in self._links.values():
            for replica, row in list(link.rows.items()):
                if replica.log == log:
                    self._compare(link, replica, row)

    def _mend(
        self, link: NodeLink, what: str, replica: ReplicaId, work: Callable[[NodeLink, ReplicaId], Awaitable[None]]
    ) -> None:
        """One at a time per replica and matter; what fails is seen again at the next report."""
        key = (what, replica)
        if key not in link.mending and not self._stopped:
            link.mending[key] = None
            self._scope.spawn(self._try(link, key, work), name=f"{what} {replica} on {link.node}")

    async def _try(
        self,
        link: NodeLink,
        key: tuple[str, ReplicaId],
        work: Callable[[NodeLink, ReplicaId], Awaitable[None]],
    ) -> None:
        try:
            await work(link, key[1])
        except VarlogError:
            # The replica goes on reporting what it has, which brings us here again; the try itself may make it report.
            await self._clock.sleep(MEND_PAUSE_S)
        finally:
            link.mending.pop(key, None)

    async def _trim(self, link: NodeLink, replica: ReplicaId) -> None:
        log = self._catalog.log(replica.log)
        request = pb.TrimRequest(replica=_name(replica), upto=log.trimmed)
        await link.peer.call(Method.TRIM, request, timeout=CALL_TIMEOUT_S)

    async def _seal(self, link: NodeLink, replica: ReplicaId) -> None:
        segment, stream, _ = await self._ask_to_finish(link, replica, take=False)
        row = link.rows.get(replica)
        if row is not None and segment.ordering != "cut":
            link.waits.pop(replica, None)
            row.state = pb.REPLICA_FINISHED  # as its next report says, which others need not wait for
            self._look_at_others(replica, stream)

    async def _have_taken(self, link: NodeLink, replica: ReplicaId) -> None:
        """What it is to show is on too few members yet: it becomes one of those that have it."""
        _, stream, status = await self._ask_to_finish(link, replica, take=True)
        row = link.rows.get(replica)
        if row is not None:
            row.uncommitted_llsn_length = max(0, status.contiguous - (row.uncommitted_llsn_offset - 1))
            self._look_at_others(replica, stream)

    async def _ask_to_finish(
        self, link: NodeLink, replica: ReplicaId, *, take: bool
    ) -> tuple[pb.SegmentInfo, pb.StreamInfo, pb.ReplicaStatus]:
        """Seal it, and have it finished, or only take what it lacks; what it is part of, and what it says."""
        segment = self._catalog.log(replica.log).chain[replica.segment - 1]
        stream = next(stream for stream in segment.streams if stream.id == replica.stream)
        await link.peer.call(Method.SEAL, pb.SealRequest(replica=_name(replica)), timeout=CALL_TIMEOUT_S)
        request = pb.FinishRequest(replica=_name(replica), end=stream.end_slot, take=take)
        if segment.ordering != "cut":
            request.base = segment.base
            request.sources.extend(self._sources(link.node, stream))
            if stream.HasField("junk_slot"):
                request.junk_slot = stream.junk_slot
        status = (await link.peer.call(Method.FINISH, request, timeout=CALL_TIMEOUT_S)).message
        return segment, stream, status

    def _sources(self, node: NodeId, stream: pb.StreamInfo) -> list[int]:
        """Who is asked for what a member lacks: those first that had everything, last those that are not here."""
        others = [other for other in stream.members if other != node]
        return sorted(others, key=lambda other: (other not in stream.held_by, other not in self._links))

    def _look_at_others(self, replica: ReplicaId, stream: pb.StreamInfo) -> None:
        """More members have what it ends with: some may wait for that."""
        for node in map(NodeId, stream.members):
            link, row = self._links.get(node), self.row(node, replica)
            if link is not None and row is not None:
                self._compare(link, replica, row)

    def begin_to_lead(self, log: LogId) -> None:
        """A segment has become part of a log: the node that is to lead it, or to grant positions, may begin at once."""
        record = self._catalog.log(log)
        segment = record.chain[-1]
        for stream in segment.streams[:1] if not segment.journal else ():
            link = self._links.get(NodeId(stream.members[0]))
            if segment.ordering != "cut" and stream.state != pb.STREAM_FINALIZED and link is not None:
                self._mend(link, "lead", ReplicaId(log, Epoch(segment.epoch), StreamId(stream.id)), self._lead)

    async def _lead(self, link: NodeLink, replica: ReplicaId) -> None:
        await self.lead(link.node, replica)

    async def lead(self, node: NodeId, replica: ReplicaId, timeout_s: float = CALL_TIMEOUT_S) -> pb.ReplicaStatus:
        """Have a node lead a stream, or grant positions; what it has committed, or granted.

        Asked again, it only says so.
        """
        segment = self._catalog.log(replica.log).chain[replica.segment - 1]
        request = pb.LeadRequest(replica=_name(replica), base=segment.base)
        status = await self.ask(node, Method.LEAD, request, timeout_s)
        assert isinstance(status, pb.ReplicaStatus)
        return status

    async def status(self, node: NodeId, replica: ReplicaId) -> pb.ReplicaStatus:
        """How far a node's replica is; nothing changes by asking."""
        status = await self.ask(node, Method.LEAD, pb.LeadRequest(replica=_name(replica)))
        assert isinstance(status, pb.ReplicaStatus)
        return status

    async def _drop(self, link: NodeLink, replica: ReplicaId) -> None:
        await self._ask_to_drop(link, replica)
        link.rows.pop(replica, None)
        if not any(each.log == replica.log for each in link.rows):
            await self._catalog.forget_gone([replica.log], link.node)

    async def _ask_to_drop(self, link: NodeLink, replica: ReplicaId) -> None:
        """Until it answers: what it does behind a deadline is in no report, which would bring us here again."""
        while not self._stopped:
            try:
                await link.peer.call(Method.DROP, pb.DropRequest(replica=_name(replica)), timeout=CALL_TIMEOUT_S)
                return
            except Timeout:
                await self._clock.sleep(MEND_PAUSE_S)
        raise Unavailable(f"replica {replica} is not dropped any more: it may be part of a log")

    def _forget_unlisted(self, link: NodeLink) -> None:
        """Of logs that went before the node was started, it has no more than it lists: it need not be asked to drop
        any. In the same life it may: what is being opened or copied there is not listed before it is complete."""
        listed = {replica.log for replica in link.listed or ()}
        gone = [log for log, nodes in self._catalog.gone.items() if nodes.get(link.node, link.boot) < link.boot]
        link.owes = any(log in self.creating for log in gone)
        logs = [log for log in gone if log not in listed and log not in self.creating]
        if logs:
            self._scope.spawn(self._forget(link, logs), name=f"forget what is gone on {link.node}")

    async def _forget(self, link: NodeLink, logs: list[LogId]) -> None:
        try:
            await self._catalog.forget_gone(logs, link.node)
        except VarlogError:
            link.owes = True  # tried again at its next complete report

    async def _drop_replaced(self, link: NodeLink, replica: ReplicaId) -> None:
        """The record says that others are the members. A copy that is begun from now on has a greater number."""
        log, stream = self._catalog.logs.get(replica.log), self._stream(replica)
        if log is None or stream is None or link.node in stream.members or _is_copied_to(stream, link.node):
            return
        request = pb.DropRequest(replica=_name(replica), before=log.version + 1)
        await link.peer.call(Method.DROP, request, timeout=CALL_TIMEOUT_S)
        link.rows.pop(replica, None)

    async def drop_copy(self, node: NodeId, replica: ReplicaId, number: int, *, in_place: bool) -> None:
        """A copy is not wanted any more. If this does not reach the node: it reports it once it is complete."""
        request = pb.DropRequest(replica=_name(replica), before=number + 1, copy=in_place)
        try:
            await self.ask(node, Method.DROP, request)
        except VarlogError:
            return
        link = self._links.get(node)
        if link is not None and not in_place:
            link.rows.pop(replica, None)

    async def drop_of_gone(self, node: NodeId, replica: ReplicaId) -> None:
        """The log was removed while it was copied. A node that is not reached reports it once it is complete."""
        link = self._links.get(node)
        if link is not None and replica.log in self._catalog.gone:
            await self._try(link, ("drop copy", replica), self._drop)

    def volumes(self, node: NodeId) -> list[pb.Volume]:
        """With the free space the node reported last; empty if it is not connected."""
        link = self._links.get(node)
        return link.volumes if link is not None else []

    def scrub(self, node: NodeId) -> pb.ScrubStatus | None:
        """How far it is with reading its files, as it reported last."""
        link = self._links.get(node)
        return link.scrub if link is not None else None

    def troubles(self, node: NodeId) -> Iterable[str]:
        """What is wrong with a node, in words."""
        link = self._links.get(node)
        if link is None:
            yield "not connected"
            return
        for replica, row in link.rows.items():
            if row.state == pb.REPLICA_FAILED:
                yield f"replica {replica} has failed: {row.trouble}" if row.trouble else f"replica {replica} has failed"
            elif row.trouble:
                yield f"replica {replica}: {row.trouble}"
            elif replica.log not in self._catalog.logs and replica.log not in self._catalog.gone:
                yield f"replica {replica} belongs to no log this cluster knows"


def is_hurt(row: pb.LogStreamUncommitReport) -> bool:
    """It has stopped, or something in it does not match its checksum: another is to take its place."""
    return row.state == pb.REPLICA_FAILED or bool(row.damage)


def slots_of(row: pb.LogStreamUncommitReport) -> Slot:
    """How many slots, from the first on, a replica has on disk."""
    return Slot(max(0, row.uncommitted_llsn_offset - 1 + row.uncommitted_llsn_length))


def _replica_of(row: pb.LogStreamUncommitReport) -> ReplicaId:
    return tuple.__new__(ReplicaId, (row.log_id, row.segment, row.log_stream_id))  # in half the time of its own


def _is_copied_to(stream: pb.StreamInfo, node: NodeId) -> bool:
    return stream.HasField("copy") and stream.copy.node == node


def _name(replica: ReplicaId) -> pb.ReplicaId:
    return pb.ReplicaId(log=replica.log, segment=replica.segment, stream=replica.stream)


def _add_commit(message: pb.CommitRequest, log: LogId, segment: Epoch, commit: Commit) -> None:
    message.commit_results.add(
        log_stream_id=commit.stream,
        committed_glsn_offset=commit.binding.glsn,
        committed_glsn_length=commit.binding.count,
        high_watermark=commit.high_watermark,
        prev_high_watermark=commit.previous_high_watermark,
        log_id=log,
        segment=segment,
        committed_llsn_offset=commit.binding.slot + 1,
    )
