"""The name of a producer under `sequencer`: it belongs to who opened it last.

    claim the name ──▶ what was granted before is written or given up ──▶ look back ──▶ batches

No stream there sees all batches of a producer, so none could tell that a number comes a second time, from an earlier
process that does not know it was followed. So the sequencer grants positions to the highest claim alone. It knows
nothing of the segments before its own: in each, a name is claimed anew before its first batch. An opening takes the
name from whoever has it; who only goes on in the next segment does not, and hears that he was followed. Openings
are in the order of their clocks where no sequencer has seen them, as the log was of another ordering then.
"""

from typing import cast

from varlog.base.errors import (
    ConnectionLost,
    Fenced,
    NotFound,
    Overloaded,
    ReplicaFailed,
    Sealed,
    Timeout,
    Unavailable,
    WrongWriter,
)
from varlog.base.ids import Epoch, Glsn, LogId
from varlog.client.context import LogContext
from varlog.client.errors import CLOSED
from varlog.client.limits import STORE_SECONDS
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PASSING = (ConnectionLost, Timeout, Unavailable, Overloaded, NotFound, ReplicaFailed, WrongWriter)
"""Errors of a sequencer that is asked again: another segment may be about to follow."""
_HIGHEST = (1 << 64) - 1


class Claim:
    """Of one producer, in one process. As bytes: a number, the time unless a higher one is met, and what is unlike
    anybody else's; so claims compare as they are."""

    def __init__(self, context: LogContext, producer: bytes) -> None:
        self._context = context
        self._world = context.world
        self._producer = producer
        self._mark = self._world.random.randbytes(8)
        self._segment: tuple[LogId, Epoch] | None = None
        self._given_up = False
        self.claim = self._numbered(self._world.clock.wall_us())

    def holds(self, route: StreamRoute) -> bool:
        """Whether it was the highest in the segment of this stream when it was made there."""
        return self._segment == (route.log, route.segment)

    def give_up(self) -> None:
        """Nobody sends any more: whoever opens the name from now on is to keep it."""
        self._given_up = True

    async def take(self, route: StreamRoute, deadline: float, *, opening: bool) -> None:
        """Have the name in the segment of this stream. Raises `Sealed` if that takes no more, and `Fenced` where
        another has it, unless he is to lose it."""
        routes = self._context.routes
        first, base = routes.siblings(route)[0], routes.stripes(route).base
        while (held := await self._ask(first, base, deadline)) != self.claim:
            if not opening:
                raise Fenced("another producer of this name was opened since: open it again", route.segment)
            self.claim = self._numbered(int.from_bytes(held[:8]) + 1)
        self._segment = (route.log, route.segment)

    def _numbered(self, number: int) -> bytes:
        return min(number, _HIGHEST).to_bytes(8) + self._mark

    async def _ask(self, first: StreamRoute, base: Glsn, deadline: float) -> bytes:
        """Who has the name now."""
        context, clock = self._context, self._world.clock
        request = pb.GrantRequest(
            log=first.log,
            segment=first.segment,
            stream=first.id,
            base=base,
            producer=self._producer,
            claim=self.claim,
        )
        failures = 0
        while True:
            if self._given_up:
                raise Unavailable(CLOSED)
            left = deadline - clock.now()
            try:
                peer = await within(clock, max(left, 0.0), context.pool.get(context.routes.place(first.members[0])))
                reply = await peer.call(Method.GRANT, request, timeout=min(left, STORE_SECONDS))
                return cast(pb.GrantReply, reply.message).claim
            except PASSING as error:
                failures += 1
                if left <= 0:
                    node = first.members[0]
                    raise Unavailable(f"node {node}, which grants positions, does not: {error.message}") from error
                context.routes.refresh_soon()
                await clock.sleep(min(left, pause(self._world, failures)))
                if not context.routes.now(first).writable:
                    raise Sealed("the segment has ended") from error
