"""Copies a stream from its primary to one backup, in slot order (S4).

One task per backup: it asks how far the backup is, then sends what is durable here and missing there,
several STOREs ahead of their answers. Whatever goes wrong, it starts over from what the backup says
it has. After a failed copy nothing later is copied until the backup's word is known again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from varlog.base.errors import Gap, Sealed, Unavailable, VarlogError
from varlog.base.ids import NodeId, Slot
from varlog.core.replica import ReplicaState
from varlog.node.replica import Replica
from varlog.ports import Clock
from varlog.transport.peer import Peer, Reply
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

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

    def __init__(self, replica: Replica, backup: NodeId, connect: Connect, clock: Clock) -> None:
        self._replica = replica
        self._backup = backup
        self._connect = connect
        self._clock = clock
        self._wake = asyncio.Event()
        self._in_flight: deque[asyncio.Future[Reply]] = deque()
        self.trouble = ""
        replica.on_sync.append(self._wake.set)

    async def run(self) -> None:
        """Until cancelled, or until the replica is finished or failed."""
        pause = PAUSE_S
        while self._replica.state is not ReplicaState.FAILED:
            try:
                peer = await self._connect(self._backup)
                cursor = await self._ask(peer)
                self.trouble = ""
                pause = PAUSE_S
                await self._copy(peer, cursor)
            except Sealed:
                return
            except VarlogError as error:
                self.trouble = f"node {self._backup}: {error.message}"
            finally:
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
        if status.contiguous > self._replica.log.durable and self._replica.state is ReplicaState.OPEN:
            self._replica.trouble = (
                f"node {self._backup} has {status.contiguous} slots of {self._replica.id}, "
                f"more than its primary ({self._replica.log.durable}): the primary lost synced entries"
            )
            raise Unavailable(self._replica.trouble)
        return Slot(status.contiguous)

    async def _copy(self, peer: Peer, cursor: Slot) -> None:
        """Send from `cursor` on, for ever."""
        replica = self._replica
        while True:
            while cursor < replica.log.durable and len(self._in_flight) < STORES_IN_FLIGHT:
                end, body = await self._next_body(cursor)
                self._send(peer, cursor, body)
                cursor = end
                if not peer.writable:
                    await peer.drained()
            self._wake.clear()
            if self._in_flight:
                cursor = await self._settle_oldest(cursor)
            elif cursor >= replica.log.durable:
                if peer.closed_error is not None:
                    raise peer.closed_error
                if replica.state is ReplicaState.FAILED:
                    return
                await self._wake.wait()

    async def _settle_oldest(self, cursor: Slot) -> Slot:
        """Wait for the oldest answer, or for more to send while there is room for it."""
        oldest = self._in_flight[0]
        if len(self._in_flight) < STORES_IN_FLIGHT and not oldest.done():
            await self._wake.wait()  # set by the next sync and by every answer
            if not oldest.done():
                return cursor
        self._in_flight.popleft()
        try:
            self._judge(await oldest)
        except Gap as gap:
            # an earlier copy was lost: go back to what the backup has
            self._forget_in_flight()
            return Slot(gap.expected)
        return cursor

    def _send(self, peer: Peer, slot: Slot, body: list[Buffer]) -> None:
        future = peer.start_call(Method.STORE, self._request(slot), body, timeout=STORE_TIMEOUT_S)
        future.add_done_callback(lambda _: self._wake.set())
        self._in_flight.append(future)

    def _request(self, slot: Slot) -> pb.StoreRequest:
        replica = self._replica.id
        return pb.StoreRequest(log=replica.log, segment=replica.segment, stream=replica.stream, slot=slot)

    def _forget_in_flight(self) -> None:
        for future in self._in_flight:
            future.add_done_callback(_retrieve)
            future.cancel()
        self._in_flight.clear()

    async def _next_body(self, cursor: Slot) -> tuple[Slot, list[Buffer]]:
        """Durable batches from `cursor` on, about `STORE_BYTES` of them, and where they end."""
        body: list[Buffer] = []
        size = 0
        while size < STORE_BYTES:
            recent = self._replica.recent(cursor)
            if recent is None:
                break
            cursor, data = recent
            body.append(data)
            size += len(data)
        if body:
            return cursor, body
        run = await self._replica.log.read(cursor, self._replica.log.durable, STORE_BYTES)
        batches = [
            run.data[record.body : record.body + record.length]
            for record in walk_records(run.data)
            if record.kind == RecordKind.BATCH
        ]
        return run.end, list(batches)


def _retrieve(future: "asyncio.Future[Reply]") -> None:
    """An answer nobody waits for any more; its error, if any, has been dealt with by starting over."""
    if not future.cancelled():
        future.exception()
