"""The node's methods: each takes a request apart, calls the one place that does it, and answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from varlog.base.errors import Gap, InvalidArgument, Unavailable, VarlogError, WrongWriter
from varlog.base.ids import Epoch, Glsn, LogId, ReplicaId, Slot, StreamId
from varlog.base.ranges import Binding
from varlog.core.replica import ReplicaState, refuse_store
from varlog.node.primary import Primary
from varlog.node.reads import serve_read
from varlog.node.replica import Batches, Done, Replica
from varlog.node.replicas import Replicas
from varlog.node.scrubber import Scrubber
from varlog.storage.damage import Damage
from varlog.transport.peer import Handlers, Request
from varlog.wire.batch import PRODUCER_ID_BYTES, check_batches
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Verbs:
    """Handlers for everything clients, other nodes and the repository ask of a node."""

    def __init__(
        self,
        replicas: Replicas,
        scrubber: Scrubber,
        report: Callable[[], pb.GetReportResponse],
        directory: Callable[[pb.NodeDirectory], None],
    ) -> None:
        self._replicas = replicas
        self._scrubber = scrubber
        self._report = report
        self._directory = directory

    def handlers(self) -> Handlers:
        return {
            Method.OPEN: self.open,
            Method.STORE: self.store,
            Method.ADVANCE: self.advance,
            Method.SEAL: self.seal,
            Method.DIGEST: self.digest,
            Method.FINISH: self.finish,
            Method.READ: self.read,
            Method.TRIM: self.trim,
            Method.DROP: self.drop,
            Method.REPORT: self.report,
            Method.COPY: self.copy,
            Method.SCRUB: self.scrub,
            Method.FINGERPRINT: self.fingerprint,
            Method.CONDEMN: self.condemn,
            Method.MARKS: self.marks,
            Method.APPEND: self.append,
            Method.PRODUCER: self.producer,
            Method.DIRECTORY: self.directory,
            Method.LEAD: self.lead,
            Method.GRANT: self.grant,
        }

    def _find(self, replica: pb.ReplicaId) -> Replica:
        return self._replicas.find(replica.log, replica.segment, replica.stream)

    def _primary(self, log: int, segment: int, stream: int) -> Primary:
        return self._replicas.roles.primary(self._replicas.find(log, segment, stream))

    # ------------------------------------------------------------ the ten verbs

    async def open(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.OpenRequest)
        if not message.spec.members or len(set(message.spec.members)) != len(message.spec.members):
            raise InvalidArgument("a replica has one or more members, each named once")
        replica = await self._replicas.create(message.spec)
        request.reply(replica.status())

    def store(self, request: Request) -> Awaitable[None] | None:
        """Usually without a task: the batches lie at the end of the stream and wait for the next sync."""
        if request.pushed:
            return self._take(request)
        message = request.message
        assert isinstance(message, pb.StoreRequest)
        replica = self._replicas.find(message.log, message.segment, message.stream)
        self._shut_out(replica, message.writer)
        if message.base:
            replica.hear(Glsn(message.base), Slot(message.committed), at_once=not len(request.body))

        def done(error: VarlogError | None) -> None:
            if error is None:
                self._stored(request, replica, end)
            else:
                request.fail(error)

        end = replica.log.appended
        if not len(request.body):
            # what an earlier writer left staged counts: it will be durable, and the answer must cover it
            replica.settled(done)
            return None
        if replica.closed:
            raise Unavailable(replica.closed)
        batches = check_batches(request.body)
        end = Slot(message.slot + sum([header.count for _, header in batches]))
        if not message.settle and replica.store_at_end(Slot(message.slot), batches, done):
            return None
        if message.base:
            replica.release(Glsn(message.base), Slot(message.committed))
        if replica.spec.ordering == "sequencer" and message.slot > replica.log.appended:
            self._hold(replica, message, batches, done)
            return None
        return self._store_elsewhere(request, replica, message, batches)

    def _hold(self, replica: Replica, message: pb.StoreRequest, batches: Batches, done: Done) -> None:
        """It came before its turn. If none comes any more its client must hear that, and not of a gap to see to."""
        error = refuse_store(replica.state, replica.log.appended, settle=message.settle)
        if error is not None:
            raise error
        ahead = self._replicas.roles.ahead(replica)
        if message.settle or ahead is None:
            raise Gap(f"slots from {replica.log.appended} on are missing", replica.log.appended)
        ahead.hold(Slot(message.slot), batches, done)

    def _status(self, replica: Replica) -> pb.ReplicaStatus:
        """With what came before its turn."""
        status = replica.status()
        ahead = self._replicas.roles.ahead(replica)
        if ahead is not None:
            status.ahead = ahead.first or 0
        return status

    def _shut_out(self, replica: Replica, writer: int) -> None:
        """From its first word on a writer is the only one; what is still on its way from an older one is refused.

        A journal was told at its opening who writes it: nobody else ever does.
        """
        if replica.spec.journal and (writer != replica.spec.writer or not writer):
            raise WrongWriter(f"{replica.id} takes stores of its journal's leader alone, who is another")
        if writer < replica.writer:
            raise WrongWriter(f"{replica.id} takes stores of writer {replica.writer}, this is one of {writer}")
        replica.writer = writer

    async def _store_elsewhere(
        self, request: Request, replica: Replica, message: pb.StoreRequest, batches: Batches
    ) -> None:
        await replica.store(Slot(message.slot), batches, settle=message.settle)
        self._stored(request, replica, Slot(message.slot + sum(header.count for _, header in batches)))

    def _stored(self, request: Request, replica: Replica, end: Slot) -> None:
        """Answer a STORE of what lies before `end`; in a chain when all members behind this one have it, too."""
        relay = self._replicas.roles.relays.get(replica.id)
        if relay is None:
            request.reply(self._status(replica))
        else:
            relay.answer(request, end)

    def _take(self, request: Request) -> Awaitable[None] | None:
        """A STORE that is not answered: what cannot be taken is left. The primary hears of no commit then, and asks."""
        message = request.message
        assert isinstance(message, pb.StoreRequest)
        try:
            replica = self._replicas.find(message.log, message.segment, message.stream)
            self._shut_out(replica, message.writer)
            if message.base:
                replica.release(Glsn(message.base), Slot(message.committed))
        except VarlogError:
            return None
        try:
            batches = check_batches(request.body)
            taken = not batches or replica.store_at_end(Slot(message.slot), batches)
        except VarlogError:
            taken = True
        if message.commits:
            # Behind the sync of what came with them, for which an append waits.
            asyncio.get_running_loop().call_soon(self._learn, replica, message)
        return None if taken else self._take_elsewhere(replica, Slot(message.slot), batches)

    def _learn(self, replica: Replica, message: pb.StoreRequest) -> None:
        """What the primary was told."""
        try:
            for commit in message.commits:
                replica.advance(Binding(Slot(commit.slot), Glsn(commit.glsn), commit.count), commit.high_watermark)
        except VarlogError:
            return  # it was closed meanwhile; what it misses the repository sees in its reports

    async def _take_elsewhere(self, replica: Replica, slot: Slot, batches: Batches) -> None:
        try:
            await replica.store(slot, batches, settle=False)
        except VarlogError:
            pass  # as in _take

    def advance(self, request: Request) -> None:
        """Apply every commit that continues where its replica stands; others change nothing (S9)."""
        message = request.message
        assert isinstance(message, pb.CommitRequest)
        for result in message.commit_results:
            replica = self._replicas.get((result.log_id, result.segment, result.log_stream_id))
            if replica is not None:
                slot = Slot(result.committed_llsn_offset - 1)
                binding = Binding(slot, Glsn(result.committed_glsn_offset), result.committed_glsn_length)
                replica.advance(binding, result.high_watermark)
        if not request.pushed:
            request.reply(pb.CommitResponse())

    async def seal(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.SealRequest)
        replica = self._find(message.replica)
        ahead = self._replicas.roles.ahead(replica)
        if ahead is not None:
            ahead.seal()
        await replica.seal()
        status = replica.status()
        # Who grants positions acknowledges nothing: how far others have is not for him to say.
        status.leads = replica.spec.ordering == "leader" and replica.leads in (pb.LEADS, pb.LEADS_WAITING)
        request.reply(status)

    async def digest(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.DigestRequest)
        replica = self._find(message.replica)
        if not replica.log.sealed:
            raise InvalidArgument(f"{replica.id} is not sealed: what it holds may still change")
        reply = pb.DigestReply(status=replica.status())
        for slot, count, content, crc in await replica.log.digest(Slot(message.low), Slot(message.high)):
            reply.rows.add(slot=slot, count=count, content=cast("pb.SlotContent", content), crc=crc)
        if message.bindings:
            await self._add_bindings(reply, replica, Slot(message.low), Slot(message.high))
        request.reply(reply)

    async def _add_bindings(self, reply: pb.DigestReply, replica: Replica, low: Slot, high: Slot) -> None:
        """What covers the rows, as far as it is not trimmed; with the trim point as it is by now."""
        log = replica.log
        end = Slot(reply.rows[-1].slot + reply.rows[-1].count) if reply.rows else high
        for binding in await log.bindings(max(low, log.trimmed), min(end, log.committed)):
            reply.bindings.add(slot=binding.slot, glsn=binding.glsn, count=binding.count)
        reply.status.CopyFrom(replica.status())
        reply.status.trimmed_glsn = log.trimmed_glsn

    async def finish(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.FinishRequest)
        replica = self._find(message.replica)
        if message.base:
            await self._replicas.roles.settle(replica, message)
        if not message.take:
            await replica.finish(Slot(message.end))
        request.reply(replica.status())

    async def read(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.ReadRequest)
        await serve_read(request, self._replicas.find(message.log, message.segment, message.stream))

    async def trim(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.TrimRequest)
        replica = self._find(message.replica)
        await replica.trim(Glsn(message.upto))
        request.reply(replica.status())

    async def drop(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.DropRequest)
        named = message.replica
        replica = ReplicaId(LogId(named.log), Epoch(named.segment), StreamId(named.stream))
        await self._replicas.drop(replica, message.before, copy_only=message.copy)
        request.reply(pb.Empty())

    async def copy(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.CopyRequest)
        if not message.spec.copy or not message.sources:
            raise InvalidArgument("a copy has a number and sources")
        request.reply(await self._replicas.copy(message))

    # ------------------------------------------------------------ scrub

    def scrub(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.ScrubRequest)
        if message.begin:
            self._scrubber.begin()
        request.reply(self._scrubber.status())

    def fingerprint(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.FingerprintRequest)
        request.reply(self._scrubber.fingerprint(self._find(message.replica), message.first))

    async def condemn(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.CondemnRequest)
        replica, found = self._find(message.replica), message.damage
        if not replica.log.damage:
            damage = Damage(found.slot, found.end_slot, found.glsn, found.end_glsn, message.why)
            await self._scrubber.condemn(replica, [damage])
        request.reply(replica.status())

    async def marks(self, request: Request) -> None:
        """Where the log may be trimmed, for who decides what it keeps."""
        message = request.message
        assert isinstance(message, pb.MarksRequest)
        log = self._find(message.replica).log
        reply = pb.MarksReply(committed=log.committed)
        if message.time_us:
            slot = await log.find_time(message.time_us)
            if slot < reply.committed:
                reply.young_glsn = (await log.bindings(slot, Slot(slot + 1)))[0].glsn
        if message.sizes:
            for glsn, size in log.marks():
                reply.marks.add(glsn=glsn, bytes=size)
        request.reply(reply)

    def report(self, request: Request) -> None:
        request.reply(self._report())

    # ------------------------------------------------------------ beyond the ten

    def append(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.AppendRequest)
        self._primary(message.log, message.segment, message.stream).append(request)

    def producer(self, request: Request) -> None:
        """The sequence a producer goes on with, on this stream."""
        message = request.message
        assert isinstance(message, pb.ProducerRequest)
        _check_producer(message.producer)
        replica = self._replicas.find(message.log, message.segment, message.stream)
        if message.ended and replica.spec.ordering == "sequencer" and replica.state is ReplicaState.OPEN:
            raise Unavailable(f"{replica.id} has ended; what is in it is not known here yet")
        primary = self._replicas.roles.primary(replica)
        following, first = primary.producer(
            message.producer, message.begin, begins=message.begins, leaves=message.leaves
        )
        request.reply(pb.ProducerReply(next_sequence=following, first_sequence=first))

    def lead(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.LeadRequest)
        replica = self._find(message.replica)
        granted = 0
        if message.base and replica.spec.ordering == "sequencer":
            sequencer = self._replicas.roles.sequencer(replica)
            sequencer.begin(Glsn(message.base))
            granted = sequencer.granted
        elif message.base:
            self._replicas.roles.leader(replica).begin(Glsn(message.base))
        status = replica.status()
        status.granted = granted
        request.reply(status)

    def grant(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.GrantRequest)
        sequencer = self._replicas.roles.sequencer(self._replicas.find(message.log, message.segment, message.stream))
        sequencer.begin(Glsn(message.base))
        if message.producer:
            _check_producer(message.producer)
        if message.producer and not message.count:
            request.reply(pb.GrantReply(claim=sequencer.claim(message.producer, message.claim)))
            return
        if message.claim:
            sequencer.check_claim(message.producer, message.claim)
        expect = message.expect if message.HasField("expect") else None
        if expect is None or not message.producer:
            first, skipped = sequencer.grant(message.count, expect)
        else:
            first, skipped = sequencer.grant_expected(message.count, expect, message.producer, message.sequence)
        request.reply(pb.GrantReply(first=first, skipped=skipped))

    def directory(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, pb.NodeDirectory)
        self._directory(message)
        request.reply(pb.Empty())


def _check_producer(producer: bytes) -> None:
    """It is kept: nobody shall say how much memory that takes."""
    if len(producer) != PRODUCER_ID_BYTES:
        raise InvalidArgument(f"the id of a producer has {PRODUCER_ID_BYTES} bytes, not {len(producer)}")
