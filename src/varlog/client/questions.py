"""Questions about a log that only the repository can answer."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from google.protobuf.message import Message

from varlog.base.errors import NotFound
from varlog.base.ids import Glsn, LogId, Slot, StreamId
from varlog.client.chain import Chain, Over
from varlog.client.context import LogContext
from varlog.client.limits import FIRST_PAUSE_AT_END_SECONDS, SHORTEST_ATTEMPT_SECONDS
from varlog.client.repository import pause
from varlog.core.ordering.sequencer import Stripes
from varlog.runtime.scope import all_of
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

Answer = TypeVar("Answer", bound=Message)


def time_left(context: LogContext, timeout: float) -> Callable[[], float]:
    """How many seconds are left of `timeout`, for several questions one after the other; never quite none."""
    clock = context.world.clock
    deadline = clock.now() + timeout
    return lambda: max(SHORTEST_ATTEMPT_SECONDS, deadline - clock.now())


async def ask_by_id(
    context: LogContext, method: Method, make: Callable[[LogId], Message], timeout: float, *, changes: bool = False
) -> Message:
    """Ask about the log by its id; one that was removed and made anew has another, which is found out."""
    left = time_left(context, timeout)
    known = context.routes.info is not None
    info = await context.routes.resolve(left())
    try:
        return await context.repositories.call(method, make(LogId(info.id)), timeout=left(), changes=changes)
    except NotFound:
        if not known:
            raise
    await context.routes.refresh(left())
    info = await context.routes.resolve(left())
    return await context.repositories.call(method, make(LogId(info.id)), timeout=left(), changes=changes)


async def ask_tail(context: LogContext, timeout: float) -> pb.TailReply:
    """The log's last position and trim point, as fresh as this call (I10)."""
    left = time_left(context, timeout)
    await context.routes.resolve(timeout)
    in_vain = 0
    while True:
        last = last_segment(context)
        answer = await ask_by_id(context, Method.TAIL, lambda log: pb.TailRequest(log=log), left())
        tail = cast(pb.TailReply, answer)
        try:
            if tail.segment != last.segment:
                raise Over  # what has to be done for it is not known here
            await within(context.world.clock, left(), complete_last_segment(context, last, tail.tail + 1))
        except Over:
            await within(context.world.clock, left(), context.routes.refresh(left()))  # another segment has begun
            if last_segment(context) == last:  # or is about to
                in_vain += 1
                await context.world.clock.sleep(min(left(), pause(context.world, in_vain, FIRST_PAUSE_AT_END_SECONDS)))
        else:
            if last_segment(context) == last:
                return tail  # else what was granted in a segment that has ended meanwhile may never be written


class LastSegment(NamedTuple):
    """Of a log, as far as is known here."""

    log: int
    """A log that was removed and made anew has the same name and another id; its segments begin at 1 again."""
    segment: int
    sealed: bool
    """It has ended with the log."""


def last_segment(context: LogContext) -> LastSegment:
    info = context.routes.info
    return LastSegment(0, 0, False) if info is None else LastSegment(info.id, len(info.chain), info.sealed)


async def complete_last_segment(context: LogContext, last: LastSegment, end: int) -> None:
    """Under `sequencer`, where positions are granted before they are written: see that all before `end` are.

    Raises `Over` if the segment takes no more, or another is the last by now: `end` says nothing about that.
    """
    if last_segment(context) != last:
        raise Over
    streams = context.routes.streams
    if not streams or not streams[-1].written_by_clients or not streams[-1].writable:
        return
    stripes = context.routes.stripes(streams[-1])
    siblings = context.routes.siblings(streams[-1])
    await all_of(
        [Chain(context, route, stripes).complete(stripes.slots(route.index, end)) for route in siblings],
        "complete a stream",  # at once: a hole in each would take as long for each
    )


async def committed_slots(context: LogContext, timeout: float) -> dict[StreamId, Slot]:
    """How many slots of each stream have positions, as fresh as this call."""
    left = time_left(context, timeout)
    tail = (await ask_tail(context, timeout)).tail
    info = await context.routes.resolve(left())
    answer = await context.repositories.call(Method.STATUS, pb.StatusRequest(), timeout=left())
    for status in cast(pb.StatusReply, answer).logs:
        if status.log.id == info.id:
            committed = {StreamId(each.stream): Slot(each.committed) for each in status.streams}
            last = status.log.chain[-1]
            if last.ordering != "cut" and not status.log.sealed:
                # What members have reported may be old; what is at a slot follows from its position.
                stripes = Stripes(Glsn(last.base), last.unit or 1, len(last.streams))
                for index, stream in enumerate(last.streams):
                    committed[StreamId(stream.id)] = stripes.slots(index, tail + 1)
            return committed
    raise NotFound(f"log {context.routes.name!r} was removed")


async def committed_slot(context: LogContext, stream: StreamId, timeout: float) -> Slot:
    """The same of one stream."""
    found = await committed_slots(context, timeout)
    if stream not in found:
        raise NotFound(f"log {context.routes.name!r} has no stream {stream}")
    return found[stream]
