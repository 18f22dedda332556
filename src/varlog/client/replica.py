"""One copy of a stream, read by itself: for whoever compares copies. Nothing here turns to another replica.

What comes are the heads of batches, each checked against its checksum: where it lies and what its bytes sum up to.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from varlog.base.errors import NotFound, Timeout
from varlog.base.ids import Glsn, NodeId, Slot
from varlog.client.context import LogContext
from varlog.client.limits import ATTEMPT_SECONDS, LAGGING_SECONDS, READ_PART_BYTES, READ_WINDOW_BYTES
from varlog.client.parts import Placed, placed_batches
from varlog.runtime.timeout import within
from varlog.transport.peer import Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as a replica holds it."""

    slot: Slot
    first: Glsn
    count: int
    crc: int
    """Of all its bytes, found to be right."""

    @property
    def end(self) -> int:
        """One past its last position."""
        return self.first + self.count


class Replica:
    """What one node has of one stream; made by `replica_of`."""

    def __init__(self, context: LogContext, segment: int, stream: int, node: int, timeout: float) -> None:
        self._context = context
        self._segment = segment
        self._stream = stream
        self._node = NodeId(node)
        self._timeout = timeout

    async def batches(
        self, start: int, stop: int, *, committed: int, slot: int | None = None
    ) -> AsyncGenerator[list[StoredBatch], None]:
        """All batches with positions in `[start, stop)`, or those of them from `slot` on.

        The replica must have all slots below `committed`; one that has not heard of the last commits is given time to.
        Raises `Corrupt`, with the slot, where bytes do not match their checksum.
        """
        request = await self._request()
        request.stop_glsn = stop
        if slot is None:
            request.glsn = start
        else:
            request.slot = slot
        clock = self._context.world.clock
        deadline = clock.now() + self._timeout
        while True:
            shown = cursor = 0
            async for part in _parts(self._context, self._node, request, self._timeout):
                message: pb.ReadPart = part.message
                found = placed_batches(message, part.body)
                shown, cursor = message.status.committed, max(cursor, message.slot)
                if found:
                    cursor = found[-1].slot + len(found[-1].batch)
                    deadline = clock.now() + self._timeout
                    yield [_stored(each) for each in found]
            if cursor < shown or cursor >= committed:
                return  # what follows lies beyond the stop, or nothing does
            if clock.now() > deadline:
                raise Timeout(f"node {self._node} shows slots up to {cursor} only, of {committed} that are committed")
            await clock.sleep(LAGGING_SECONDS)
            request.slot = cursor

    async def batch_at(self, slot: int) -> StoredBatch:
        """The batch that begins at a slot."""
        request = await self._request()
        request.slot, request.max_batches = slot, 1
        async for part in _parts(self._context, self._node, request, self._timeout):
            for placed in placed_batches(part.message, part.body):
                return _stored(placed)
        raise NotFound(f"node {self._node} has no batch at slot {slot}")

    async def _request(self) -> pb.ReadRequest:
        routes = self._context.routes
        info = await routes.resolve(self._timeout)
        if not any((route.segment, route.id) == (self._segment, self._stream) for route in routes.streams):
            raise NotFound(f"log {info.name!r} has no stream {self._stream} in segment {self._segment}")
        return pb.ReadRequest(log=info.id, segment=self._segment, stream=self._stream, part_bytes=READ_PART_BYTES)


async def _parts(
    context: LogContext, node: NodeId, request: pb.ReadRequest, timeout: float
) -> AsyncGenerator[Reply, None]:
    place = context.routes.place(node)
    clock = context.world.clock
    peer = await within(clock, min(timeout, ATTEMPT_SECONDS), context.pool.get(place))
    async with peer.stream(Method.READ, request, window_bytes=READ_WINDOW_BYTES, timeout=timeout) as parts:
        async for part in parts:
            yield part


def _stored(placed: Placed) -> StoredBatch:
    return StoredBatch(placed.slot, placed.glsn, len(placed.batch), placed.batch.header.crc)
