"""Copies a stream from its primary to one backup, in slot order (S4).

One task per backup connects, asks how far the backup is, and deals with whatever goes wrong. The usual
work needs no task: each group of batches is sent the moment it is about to be written here
(`_push`), several STOREs ahead of their answers. After a failed copy nothing later is copied until
the backup's own word is known again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from varlog.base.errors import Gap, Sealed, Unavailable, VarlogError
from varlog.base.ids import NodeId, Slot
from varlog.core.replica import ReplicaState
from varlog.node.leader import Leader
from varlog.node.replica import Replica
from varlog.ports import Clock
from varlog.transport.peer import Peer, Reply
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

STORE_BYTES = 1 << 20
"""Wanted size of one STORE; a larger batch goes alone."""
STORES_IN_FLIGHT = 8
"""STOREs sent ahead of their answers, per backup."""
STORE_TIMEOUT_S = 5.0
PAUSE_S = 0.05
"""After a failure, before the next try; doubles up to `LONGEST_PAUSE_S`."""
LONGEST_PAUSE_S = 1.0

Connect = Callable[[NodeId], Awaitable[Peer]]


class Forwarder:
    """Brings one backup up to the primary and keeps it there."""

    def __init__(
        self,
        replica: Replica,
        backup: NodeId,
        connect: Connect,
        clock: Clock,
        writer: int,
        leader: Leader | None = None,
    ) -> None:
        """A `leader` hears how far the backup is, and what it has committed rides on every STORE."""
        self.trouble = ""
        self._leader = leader
        self._replica = replica
        self._backup = backup
        self._connect = connect
        self._clock = clock
        self._writer = writer
        self._wake = asyncio.Event()
        self._peer: Peer | None = None
        """Set while copies may be sent at once."""
        self._cursor = Slot(0)
        """What comes next."""
        self._in_flight: deque[asyncio.Future[Reply]] = deque()
        self._failure: VarlogError | None = None
        self._told = Slot(0)
        """What the backup was last told to be committed."""
        replica.on_group.append(self._push)
        replica.on_sync.append(self._wake_if_behind)
        if leader is not None:
            leader.tell.append(self._release)

    async def run(self) -> None:
        """Until cancelled, or until the replica is finished or failed."""
        pause = PAUSE_S
        while self._replica.state is not ReplicaState.FAILED:
            try:
                peer = await self._connect(self._backup)
                self._cursor = await self._ask(peer)
                self.trouble = ""
                pause = PAUSE_S
                await self._copy(peer)
            except Sealed:
                return
            except VarlogError as error:
                self.trouble = f"node {self._backup}: {error.message}"
            finally:
                self._peer = None
                self._forget_in_flight()
            await self._clock.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _ask(self, peer: Peer) -> Slot:
        """How far the backup is, by its own word."""
        reply = await peer.call(Method.STORE, self._request(Slot(0)), timeout=STORE_TIMEOUT_S)
        return self._judge(reply)

    def _judge(self, reply: Reply) -> Slot:
        status = reply.message
        assert isinstance(status, pb.ReplicaStatus)
        if status.state == pb.REPLICA_FAILED:
            raise Unavailable("its replica has stopped")
        if status.contiguous > self._replica.log.appended and self._replica.state is ReplicaState.OPEN:
            self._replica.trouble = (
                f"node {self._backup} has {status.contiguous} slots of {self._replica.id}, "
                f"more than its primary ever had ({self._replica.log.appended})"
            )
            raise Unavailable(self._replica.trouble)
        if self._leader is not None:
            self._leader.has(self._backup, Slot(status.contiguous))
        return Slot(status.contiguous)

    # ------------------------------------------------------------ the task's part

    async def _copy(self, peer: Peer) -> None:
        """Send from the cursor on, for ever: what is in memory at once, what is only on disk from there."""
        replica = self._replica
        self._failure = None
        peer.on_close(lambda _: self._wake.set())
        while replica.state is not ReplicaState.FAILED:
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
                self._peer = None  # nothing overtakes what is being read
                self._send(peer, *await self._read_back())
            else:
                await self._wake.wait()

    def _is_behind(self) -> bool:
        """What comes next is no longer in memory, and on disk by now."""
        return self._cursor < self._replica.log.durable and self._replica.recent(self._cursor) is None

    def _wake_if_behind(self) -> None:
        if self._peer is not None and self._is_behind():
            self._wake.set()

    async def _read_back(self) -> tuple[Slot, list[Buffer]]:
        run = await self._replica.log.read(self._cursor, self._replica.log.durable, STORE_BYTES)
        return run.end, list(batches_in(run.data))

    # ------------------------------------------------------------ without a task

    def _push(self) -> None:
        """Send all batches that are in memory, as far as the backup takes them."""
        peer, replica = self._peer, self._replica
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
        future = peer.start_call(Method.STORE, self._request(self._cursor), body, timeout=STORE_TIMEOUT_S)
        self._in_flight.append(future)
        self._cursor = end
        future.add_done_callback(self._answered)

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

    def _release(self) -> None:
        """Tell the backup what is committed, if no STORE has."""
        peer, leader = self._peer, self._leader
        if peer is not None and leader is not None and self._told < leader.committed and peer.writable:
            self._send(peer, self._cursor, [])

    def _request(self, slot: Slot) -> pb.StoreRequest:
        replica = self._replica.id
        request = pb.StoreRequest(
            log=replica.log, segment=replica.segment, stream=replica.stream, slot=slot, writer=self._writer
        )
        leader = self._leader
        if leader is not None and leader.base is not None:
            request.base, request.committed = leader.base, leader.committed
            self._told = leader.committed
        return request

    def _forget_in_flight(self) -> None:
        for future in self._in_flight:
            future.remove_done_callback(self._answered)
            future.add_done_callback(_retrieve)
            future.cancel()
        self._in_flight.clear()


def _retrieve(future: "asyncio.Future[Reply]") -> None:
    """An answer nobody waits for any more; its error, if any, has been dealt with by starting over."""
    if not future.cancelled():
        future.exception()
