r"""One segment of a journal as its leader writes it: batches go to all members, answers tell what is committed.

    store --> tenure --STORE--> member 1 ---synced--.
                    \--STORE--> member 2 ---synced---> committed, in order --> those who wait are told
                     \-STORE--> member 3 ---synced--'

In a chain they go to the first member, which passes them on; its answers tell what all members have, and nothing else
is committed. Each line is several STOREs ahead of its answers. What is committed rides on the next STORE,
or on an empty one after a short idle. After a failure a line asks its member how far it is, and goes on from there
with what is kept in memory; a member that lacks more than that is left behind, and other members are asked for.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Protocol

from varlog.base.errors import Gap, NotFound, Sealed, Unavailable, VarlogError
from varlog.base.ids import Glsn, NodeId, Slot, StreamId
from varlog.client.context import LogContext
from varlog.client.lane import Appends
from varlog.client.limits import (
    JOURNAL_BEHIND_BYTES,
    JOURNAL_RELEASE_SECONDS,
    JOURNAL_STORE_BYTES,
    JOURNAL_STORE_SECONDS,
    JOURNAL_STORES_IN_FLIGHT,
    LONGEST_PAUSE_SECONDS,
    STORE_SECONDS,
)
from varlog.client.repository import pause
from varlog.core.ordering.journal import Numbered, Tenure
from varlog.core.ordering.leader import CHAIN, is_safe
from varlog.ports.clock import Timer
from varlog.runtime.polling import Heard, poll
from varlog.runtime.scope import Scope
from varlog.transport.peer import Peer, Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class SegmentOwner(Protocol):
    """Who leads."""

    def committed(self, segment: "LedSegment", batches: list[Numbered[Appends]]) -> None:
        """In the log, each at the segment's base plus its slot."""
        ...

    def is_over(self) -> None:
        """A member takes no more: the segment has ended, or is about to."""
        ...

    def left_behind(self, node: NodeId) -> None:
        """A member cannot be brought up any more."""
        ...


class LedSegment:
    """Its lines, and what they carry."""

    def __init__(self, context: LogContext, log: int, info: pb.SegmentInfo, owner: SegmentOwner) -> None:
        (stream,) = info.streams
        self.epoch = info.epoch
        self.base = Glsn(info.base)
        self.stream = StreamId(stream.id)
        self.context = context
        self.owner = owner
        self.closed = False
        """It sends nothing more."""
        self.chained = info.replication == CHAIN
        members = [NodeId(node) for node in (stream.members[:1] if self.chained else stream.members)]
        self.tenure = Tenure[Appends](members, 1 if self.chained else info.ack, JOURNAL_BEHIND_BYTES)
        self._name = (log, info.epoch, stream.id, info.leader.id)
        self._lines = [_Line(self, node) for node in members]
        self._encoded = b""
        self._encoded_for = (Slot(-1), Slot(-1))
        self._scope = Scope()
        self._timer: Timer | None = None
        for line in self._lines:
            self._scope.spawn(line.run(), name=f"journal {log}.{self.epoch} to {line.node}")

    def store(self, appends: Appends, count: int, data: bytes) -> None:
        """Give a batch its slots, and send it."""
        self.tenure.add(appends, count, data)
        for line in self._lines:
            line.push()

    async def close(self) -> None:
        """Send nothing more."""
        self.cancel()
        await self._scope.close()

    def cancel(self) -> None:
        """The same, without waiting."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._scope.cancel()

    async def release(self, seconds: float) -> None:
        """See that the members hear of what is committed, those that answer within so long."""
        clock = self.context.world.clock
        until = clock.now() + seconds
        for line in self._lines:
            line.release()
        while any(line.is_releasing for line in self._lines) and clock.now() < until:
            await clock.sleep(JOURNAL_RELEASE_SECONDS / 5)

    async def wait_until_shown(self) -> None:
        """Once the record says where it ended: until what lies before that may be acknowledged. One of its members
        shows it, or as many have it as an acknowledgement needs.

        Who lacks some of it is given that: those who have it may be lost, and then nobody else can. Nothing is given
        where junk was decided, though it is here: others fill that, or have already.
        """
        record = self._record()
        [stream] = record.streams
        end = Slot(stream.junk_slot) if stream.HasField("junk_slot") else Slot(record.end - record.base)
        holders = dict.fromkeys(map(NodeId, stream.held_by))

        async def ask(member: int) -> Heard:
            members = self._record().streams[0].members  # they may be others by now
            node = NodeId(members[member % len(members)])
            status = await self._bring_up(node, end)
            if status.state == pb.REPLICA_FAILED:
                holders.pop(node, None)  # its files are not to be trusted
            elif status.contiguous >= end:
                holders[node] = None
            shown = status.state == pb.REPLICA_FINISHED or is_safe(len(holders), record.ack)
            return Heard.ENOUGH if shown else Heard.AGAIN

        asks = [partial(ask, member) for member in range(len(stream.members))]
        name = f"show the end of journal {self._name[0]}.{self.epoch}"
        await poll(self.context.world.clock, asks, name, LONGEST_PAUSE_SECONDS)  # it may take until one is mended

    def _record(self) -> pb.SegmentInfo:
        log, epoch, _, _ = self._name
        info = self.context.routes.info
        if info is None or info.id != log:
            raise NotFound("the log was removed")
        return info.chain[epoch - 1]

    async def _bring_up(self, node: NodeId, end: Slot) -> pb.ReplicaStatus:
        """Give a member what it lacks before the end, as far as that is kept here; how far it is then."""
        log, epoch, stream, _ = self._name
        peer = await self.context.pool.get(self.context.routes.place(node))
        question = pb.LeadRequest(replica=pb.ReplicaId(log=log, segment=epoch, stream=stream))
        status: pb.ReplicaStatus = (await peer.call(Method.LEAD, question, timeout=STORE_SECONDS)).message
        slot = Slot(-1)
        while status.state in (pb.REPLICA_OPEN, pb.REPLICA_SEALED) and slot < status.contiguous < end:
            slot = Slot(status.contiguous)
            _, body = self.tenure.after(slot, JOURNAL_STORE_BYTES, end)
            if not body:
                break
            request = self.request(slot)
            request.settle = True
            status = (await peer.call(Method.STORE, request, body, timeout=JOURNAL_STORE_SECONDS)).message
        return status

    # ------------------------------------------------------------ for the lines

    def request(self, slot: Slot) -> pb.StoreRequest:
        log, segment, stream, writer = self._name
        return pb.StoreRequest(
            log=log,
            segment=segment,
            stream=stream,
            writer=writer,
            slot=slot,
            base=self.base,
            committed=self.tenure.committed,
        )

    def encoded(self, slot: Slot) -> bytes:
        """The same as bytes, made once for members that are equally far."""
        if self._encoded_for != (slot, self.tenure.committed):
            self._encoded_for = (slot, self.tenure.committed)
            self._encoded = self.request(slot).SerializeToString()
        return self._encoded

    def has(self, node: NodeId, tail: Slot) -> None:
        """A member says how far it is."""
        found = self.tenure.has(node, tail)
        if found:
            self.owner.committed(self, found)
            if self._timer is None:
                self._timer = self.context.world.clock.call_later(JOURNAL_RELEASE_SECONDS, self._idle)

    def _idle(self) -> None:
        self._timer = None
        for line in self._lines:
            line.release()


class _Line:
    """To one member."""

    def __init__(self, segment: LedSegment, node: NodeId) -> None:
        self.node = node
        self._segment = segment
        self._tenure = segment.tenure
        self._world = segment.context.world
        self._peer: Peer | None = None
        """Set while batches may be sent."""
        self._cursor = Slot(0)
        """What comes next."""
        self._told = Slot(0)
        """What the member was last told to be committed."""
        self._in_flight: deque[asyncio.Future[Reply]] = deque()
        self._failure: VarlogError | None = None
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Connect again and again, until the member takes no more."""
        failures = 0
        while True:
            began = self._world.clock.now()
            try:
                await self._follow(await self._connect())
            except Sealed:
                self._segment.owner.is_over()
                return
            except VarlogError:
                pass  # asked again after a pause; who waits for an append has a deadline
            finally:
                self._peer = None
                self._forget_in_flight()
            failures = 0 if self._world.clock.now() - began > 1.0 else failures + 1
            await self._world.clock.sleep(pause(self._world, failures))

    async def _connect(self) -> Peer:
        context = self._segment.context
        place = context.routes.place(self.node)
        try:
            return await context.pool.get(place)
        except VarlogError:
            context.routes.refresh_soon()  # it may have moved
            raise

    async def _follow(self, peer: Peer) -> None:
        """Ask how far the member is, and send what it lacks, for ever."""
        question = self._segment.request(Slot(0))
        reply = await peer.call(Method.STORE, question, timeout=JOURNAL_STORE_SECONDS)
        self._cursor, self._told = self._judge(reply), Slot(question.committed)
        self._failure = None
        with peer.waking(self._wake):
            while True:
                self._wake.clear()
                self._peer = peer
                self.push()
                if self._failure is not None:
                    raise self._failure
                if peer.closed_error is not None:
                    raise peer.closed_error
                if not peer.writable:
                    await peer.drained()
                    continue
                if self._tenure.dropped(self._cursor):
                    self._segment.owner.left_behind(self.node)
                    raise Unavailable(f"node {self.node} lacks slot {self._cursor}, which is not kept any more")
                await self._wake.wait()

    def push(self) -> None:
        """Send what comes next, as far as the member takes it."""
        peer = self._peer
        if peer is None or self._cursor >= self._tenure.end:
            return
        while self._cursor < self._tenure.end and peer.writable and len(self._in_flight) < JOURNAL_STORES_IN_FLIGHT:
            end, body = self._tenure.after(self._cursor, JOURNAL_STORE_BYTES)
            if not body:
                if self._tenure.dropped(self._cursor):
                    self._wake.set()
                return
            self._send(peer, end, body)
        if not peer.writable:
            self._wake.set()  # the task waits until it is

    def _send(self, peer: Peer, end: Slot, body: list[bytes]) -> None:
        header = self._segment.encoded(self._cursor)
        self._told = self._tenure.committed
        self._cursor = end
        timeout = JOURNAL_STORE_SECONDS
        self._in_flight.append(peer.start_call(Method.STORE, header, body, timeout=timeout, answered=self._answered))

    def _answered(self, _: "asyncio.Future[Reply]") -> None:
        """Answers are taken in the order of what was sent."""
        in_flight = self._in_flight
        try:
            while in_flight and in_flight[0].done():
                self._judge(in_flight.popleft().result())
        except Gap as gap:
            # an earlier one was lost: go back to what the member has
            self._forget_in_flight()
            self._cursor = Slot(gap.expected)
        except VarlogError as error:
            self._failure = error
            self._peer = None
        if self._failure is not None or self._peer is None:
            self._wake.set()
        else:
            self.push()

    def _judge(self, reply: Reply) -> Slot:
        status: pb.ReplicaStatus = reply.message
        if status.state in (pb.REPLICA_SEALED, pb.REPLICA_FINISHED):
            raise Sealed(f"node {self.node} takes no more", status.contiguous)
        if status.state == pb.REPLICA_FAILED:
            raise Unavailable(f"the replica of node {self.node} has stopped")
        if status.contiguous > self._tenure.end:
            raise Unavailable(f"node {self.node} has {status.contiguous} slots, more than were ever stored")
        self._segment.has(self.node, Slot(status.behind if self._segment.chained else status.contiguous))
        return Slot(status.contiguous)

    def _forget_in_flight(self) -> None:
        for future in self._in_flight:
            future.remove_done_callback(self._answered)  # it is one where no answer came
            future.add_done_callback(_retrieve)
            future.cancel()
        self._in_flight.clear()

    # ------------------------------------------------------------ what is committed

    @property
    def is_releasing(self) -> bool:
        """The member has not yet answered what told it of all that is committed."""
        return self._peer is not None and (self._told < self._tenure.committed or bool(self._in_flight))

    def release(self) -> None:
        """Tell the member what is committed, if no STORE has."""
        peer = self._peer
        if peer is not None and peer.writable and self._told < self._tenure.committed:
            self._send(peer, self._cursor, [])


def _retrieve(future: "asyncio.Future[Reply]") -> None:
    """An answer nobody waits for any more; its error, if any, has been dealt with by starting over."""
    if not future.cancelled():
        future.exception()
