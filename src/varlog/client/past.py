"""What the streams of a log know of a named producer, so that it goes on where it was.

    stream 3 (ended)   0 1 2 3
    stream 1 (ended)           4 5 6
    stream 5 (open)                  7 8 ...       one sequence, whatever becomes of the streams

A producer's batches are numbered through all streams it used. The last of them that has any says what comes
next; one that does not know it is told where it begins there. The last one lies in the newest segment that has
any, as nothing is sent to a segment once another follows: so segments are asked one after the other, the newest
first, each with all its streams. One that stays silent may have the last batch, and nothing is guessed. Older
segments are asked when an older batch comes again.
"""

import asyncio
from dataclasses import dataclass, field

from varlog.base.errors import ConnectionLost, NotFound, Overloaded, Sealed, Timeout, Unavailable
from varlog.base.ids import NodeId
from varlog.client.claim import Claim
from varlog.client.context import LogContext
from varlog.client.limits import ATTEMPT_SECONDS, FIRST_PAUSE_AT_END_SECONDS
from varlog.client.questions import ask_tail
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


@dataclass(slots=True)
class Past:
    """Which stream has which of a producer's batches."""

    next_sequence: int = 0
    last: StreamRoute | None = None
    """The stream with the last of them."""
    known: list[tuple[int, int, StreamRoute]] = field(default_factory=list)
    """The numbers [first, second) are remembered by a stream."""
    unasked: list[list[StreamRoute]] = field(default_factory=list)
    """The streams of older segments, the oldest first."""
    newest: int = 0
    """The last segment as of then; all before it had ended."""

    def add(self, route: StreamRoute, reply: pb.ProducerReply) -> None:
        if reply.next_sequence:
            self.known.append((reply.first_sequence, reply.next_sequence, route))
        if reply.next_sequence > self.next_sequence:
            self.next_sequence, self.last = reply.next_sequence, route

    def stream_of(self, sequence: int) -> StreamRoute | None:
        """The stream that remembers a batch."""
        return next((route for first, end, route in self.known if first <= sequence < end), None)


async def look_back(context: LogContext, producer: bytes, deadline: float, claim: Claim, *, opening: bool) -> Past:
    """Where a producer's last batch is, and what comes next. If that is under `sequencer`, the name is ours from now
    on; raises `Fenced` if it is another's by now, and we are not opening it."""
    clock = context.world.clock
    in_vain = 0
    while True:
        await context.routes.refresh(max(0.001, deadline - clock.now()))
        streams = context.routes.streams
        granted = next((route for route in streams if route.written_by_clients and route.writable), None)
        if granted is None:
            break
        try:
            await claim.take(granted, deadline, opening=opening)
        except Sealed:
            in_vain += 1
            if clock.now() >= deadline:
                raise Unavailable("its last segment takes no more, and none follows yet") from None
            await clock.sleep(pause(context.world, in_vain, FIRST_PAUSE_AT_END_SECONDS))
        else:
            # What an earlier life of the producer has left half written is written or given up first.
            await ask_tail(context, max(0.001, deadline - clock.now()))
            break
    past = Past()
    for route in context.routes.streams:
        if not past.unasked or past.unasked[-1][0].segment != route.segment:
            past.unasked.append([])
        past.unasked[-1].append(route)
        past.newest = route.segment
    while past.unasked and past.last is None:
        await _ask_segment(context, past, producer, deadline)
    return past


async def leave_others(context: LogContext, route: StreamRoute, producer: bytes, newest: int, deadline: float) -> int:
    """Have no other stream take anything of a producer that has begun with this one; what they have by now.

    It has begun before they are asked: of two that begin with different streams, one at least hears of the other so,
    or is refused. What had ended when segment `newest` was the last has nothing new to say.
    """
    await context.routes.refresh(max(0.001, deadline - context.world.clock.now()))
    others = [each for each in context.routes.streams if each.segment >= newest and each != route]
    asked = (ask_producer(context, each, producer, deadline, leaves=True) for each in others)
    return max((reply.next_sequence for reply in await asyncio.gather(*asked)), default=0)


async def find_batch(context: LogContext, past: Past, producer: bytes, sequence: int, deadline: float) -> None:
    """Look further back, until the stream is known that remembers a batch or all have been asked."""
    while past.unasked and past.stream_of(sequence) is None:
        await _ask_segment(context, past, producer, deadline)


async def _ask_segment(context: LogContext, past: Past, producer: bytes, deadline: float) -> None:
    """All streams of the newest segment that was not asked yet."""
    routes = past.unasked[-1]
    replies = await asyncio.gather(*(ask_producer(context, route, producer, deadline) for route in routes))
    past.unasked.pop()
    for route, reply in zip(routes, replies, strict=True):
        past.add(route, reply)


async def ask_producer(
    context: LogContext,
    route: StreamRoute,
    producer: bytes,
    deadline: float,
    *,
    begin: int | None = None,
    leaves: bool = False,
) -> pb.ProducerReply:
    """What one stream knows, asked again until it answers; of one that has ended, any member will do, and the primary
    comes last: most likely it is what was lost.

    Else it is the member that hears first of what is in the log: any other may never hear of a batch whose writer died.
    """
    request = pb.ProducerRequest(
        log=route.log,
        segment=route.segment,
        stream=route.id,
        producer=producer,
        begin=begin or 0,
        begins=begin is not None,
        leaves=leaves,
    )
    clock = context.world.clock
    failures = 0
    while True:
        left = deadline - clock.now()
        now = context.routes.now(route)
        ended = request.ended = now.end is not None
        node = now.members[(failures + 1) % len(now.members) if ended else now.first_to_know or 0]
        try:
            return await _ask(context, node, request, max(left, 0.0))
        except (ConnectionLost, Timeout, Unavailable, Overloaded, NotFound) as error:
            if isinstance(error, NotFound) and now.end is None:
                raise
            failures += 1
            if left <= 0:
                raise
            context.routes.refresh_soon()
            await clock.sleep(min(left, pause(context.world, failures)))


async def _ask(context: LogContext, node: NodeId, request: pb.ProducerRequest, left: float) -> pb.ProducerReply:
    place = context.routes.place(node)
    peer = await within(context.world.clock, left, context.pool.get(place))
    reply = await peer.call(Method.PRODUCER, request, timeout=min(left, ATTEMPT_SECONDS))
    message: pb.ProducerReply = reply.message
    return message
