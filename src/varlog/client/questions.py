"""Questions about a log that only the repository can answer."""

from collections.abc import Callable
from typing import TypeVar, cast

from google.protobuf.message import Message

from varlog.base.errors import NotFound
from varlog.base.ids import LogId, Slot, StreamId
from varlog.client.context import LogContext
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

Answer = TypeVar("Answer", bound=Message)


async def ask_by_id(
    context: LogContext, method: Method, make: Callable[[LogId], Message], timeout: float, *, changes: bool = False
) -> Message:
    """Ask about the log by its id; one that was removed and made anew has another, which is found out."""
    known = context.routes.info is not None
    info = await context.routes.resolve(timeout)
    try:
        return await context.repositories.call(method, make(LogId(info.id)), timeout=timeout, changes=changes)
    except NotFound:
        if not known:
            raise
    await context.routes.refresh(timeout)
    info = await context.routes.resolve(timeout)
    return await context.repositories.call(method, make(LogId(info.id)), timeout=timeout, changes=changes)


async def ask_tail(context: LogContext, timeout: float) -> pb.TailReply:
    """The log's last position and trim point, as fresh as this call (I10)."""
    answer = await ask_by_id(context, Method.TAIL, lambda log: pb.TailRequest(log=log), timeout)
    return cast(pb.TailReply, answer)


async def committed_slots(context: LogContext, timeout: float) -> dict[StreamId, Slot]:
    """How many slots of each stream have positions, as fresh as this call."""
    tail = (await ask_tail(context, timeout)).tail
    info = await context.routes.resolve(timeout)
    answer = await context.repositories.call(Method.STATUS, pb.StatusRequest(), timeout=timeout)
    for status in cast(pb.StatusReply, answer).logs:
        if status.log.id == info.id:
            committed = {StreamId(each.stream): Slot(each.committed) for each in status.streams}
            last = status.log.chain[-1]
            if last.ordering == "leader" and not status.log.sealed:
                # What members have reported may be old; what is at a slot follows from its position.
                committed[StreamId(last.streams[0].id)] = Slot(max(0, tail + 1 - last.base))
            return committed
    raise NotFound(f"log {context.routes.name!r} was removed")


async def committed_slot(context: LogContext, stream: StreamId, timeout: float) -> Slot:
    """The same of one stream."""
    found = await committed_slots(context, timeout)
    if stream not in found:
        raise NotFound(f"log {context.routes.name!r} has no stream {stream}")
    return found[stream]
