"""Copies a stream from its leader to one backup, in slot order; every answer says how far the backup is.

Each group of batches is sent the moment it is about to be written here, several STOREs ahead of their answers.
What the leader has committed rides on every STORE, or on an empty one when there is nothing to send. After a
failed copy nothing later is copied until the backup's own word is known again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from varlog.base.errors import Gap, Trimmed, Unavailable, VarlogError
from varlog.base.ids import Glsn, NodeId, Slot
from varlog.core.ordering.leader import CHAIN
from varlog.node.copier import OVER, STORE_BYTES, STORE_TIMEOUT_S, Connect, Copier
from varlog.node.replica import Replica
from varlog.ports import Clock
from varlog.transport.peer import Peer, Reply
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

STORES_IN_FLIGHT = 8
"""STOREs sent ahead of their answers, per backup."""


class Head(Protocol):
    """Who is told how far a backup is: the leader, or a member in the middle of a chain."""

    tell: list[Callable[[], None]]

    @property
    def base(self) -> Glsn | None: ...

    @property
    def committed(self) -> Slot: ...

    def has(self, backup: NodeId, tail: Slot) -> None: ...

    def give_up(self, why: str) -> None: ...


class Replicator(Copier):
    """Brings one backup up to who stores at it, and tells that."""

    def __init__(
        self, replica: Replica, backup: NodeId, connect: Connect, clock: Clock, writer: int, leader: Head
    ) -> None:
        super().__init__(replica, backup, connect, clock, writer)
        self._leader = leader
        self._peer: Peer | None = None
        """Set while copies may be sent at once."""
        self._in_flight: deque[asyncio.Future[Reply]] = deque()
        self._failure: VarlogError | None = None
        self._told = Slot(0)
        """What the backup was last told to be committed."""
        replica.on_group.append(self._push)
        replica.on_sync.append(self._wake_if_behind)
        leader.tell.append(self._release)

    async def _follow(self, peer: Peer) -> None:
        reply = await peer.call(Method.STORE, self._request(Slot(0)), timeout=STORE_TIMEOUT_S)
        self._cursor = self._judge(reply)
        self.trouble = ""
        try:
            await self._copy(peer)
        except Trimmed as error:
            self._leader.give_up(f"node {self._backup} lacks slot {self._cursor}, which is trimmed here")
            raise Unavailable("it is too far behind to be brought up slot by slot") from error

    def _left(self) -> None:
        self._peer = None
        self._forget_in_flight()

    # ------------------------------------------------------------ the task's part

    async def _copy(self, peer: Peer) -> None:
        """Send from the cursor on, until the stream has ended: from memory or, what is only there, from the disk."""
        self._failure = None
        with peer.waking(self._wake):
            while self._replica.state not in OVER:
                self._wake.clear()
                self._peer = peer
                self._push()
                if self._failure is not None:
                    raise self._failure
                if peer.closed_error is not None:
                    raise peer.closed_error
                if not peer.writable:
                    await peer.drained()
                elif self._is_behind() and len(self._in_flight) < STORES_IN_FLIGHT:
                    await self._send_read_back(peer)
                else:
                    self._release()
                    await self._wake.wait()

    async def _send_read_back(self, peer: Peer) -> None:
        """What is only on disk. An answer that comes meanwhile may send us back: then this is not what comes next."""
        self._peer = None  # nothing overtakes what is being read
        start = self._cursor
        end, body = await self._read_back()
        if self._cursor == start and self._failure is None:
            self._send(peer, end, body)

    def _wake_if_behind(self) -> None:
        if self._peer is not None and self._is_behind():
            self._wake.set()

    # ------------------------------------------------------------ without a task

    def _push(self) -> None:
        """Send all batches that are in memory, as far as the backup takes them."""
        peer, replica = self._peer, self._replica
        if peer is not None and not peer.writable:
            self._wake.set()  # the task waits until it is
        while peer is not None and peer.writable and len(self._in_flight) < STORES_IN_FLIGHT:
            body: list[Buffer] = []
            size, end = 0, self._cursor
            while size < STORE_BYTES and (recent := replica.recent(end)) is not None:
                end, data = recent
                body.append(data)
                size += len(data)
            if not body:
                return
            self._send(peer, end, body)

    def _send(self, peer: Peer, end: Slot, body: list[Buffer]) -> None:
        header = self._request(self._cursor).SerializeToString()
        self._cursor = end
        timeout = STORE_TIMEOUT_S
        self._in_flight.append(peer.start_call(Method.STORE, header, body, timeout=timeout, answered=self._answered))

    def _answered(self, _: "asyncio.Future[Reply]") -> None:
        """Answers are taken in the order of what was sent."""
        in_flight = self._in_flight
        try:
            while in_flight and in_flight[0].done():
                self._judge(in_flight.popleft().result())
        except Gap as gap:
            # an earlier copy was lost: go back to what the backup has
            self._forget_in_flight()
            self._cursor = Slot(gap.expected)
        except VarlogError as error:
            self._failure = error
            self._peer = None
        if self._failure is not None or not self._peer or not self._peer.writable or self._is_behind():
            self._wake.set()
        else:
            self._push()

    def _judge(self, reply: Reply) -> Slot:
        """With word to who stores here of how far the backup is, and in a chain all behind it.

        There it counts even where the backup has more than we: the end that we lost in a crash comes again only when
        the one before us has heard how far all from here on are.
        """
        chained = self._replica.spec.replication == CHAIN
        if chained and reply.message.state == pb.REPLICA_OPEN:
            self._leader.has(self._backup, Slot(reply.message.behind))
        tail = super()._judge(reply)
        if not chained:
            self._leader.has(self._backup, tail)
        return tail

    def _forget_in_flight(self) -> None:
        for future in self._in_flight:
            future.remove_done_callback(self._answered)  # it is one where no answer came
            future.add_done_callback(_retrieve)
            future.cancel()
        self._in_flight.clear()

    # ------------------------------------------------------------ what is committed

    def _release(self) -> None:
        """Tell the backup what is committed, if no STORE has."""
        peer = self._peer
        if peer is None or self._told >= self._leader.committed:
            return
        if peer.writable:
            self._send(peer, self._cursor, [])
        else:
            self._wake.set()

    def _request(self, slot: Slot) -> pb.StoreRequest:
        request = super()._request(slot)
        if self._leader.base is not None:
            request.base, request.committed = self._leader.base, self._leader.committed
            self._told = self._leader.committed
        return request


def _retrieve(future: "asyncio.Future[Reply]") -> None:
    """An answer nobody waits for any more; its error, if any, has been dealt with by starting over."""
    if not future.cancelled():
        future.exception()
