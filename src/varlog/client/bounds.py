"""From where to where a subscription goes."""

from collections.abc import Sequence
from dataclasses import dataclass

from varlog.base.errors import InvalidArgument, NotFound
from varlog.base.ids import FIRST_GLSN, Glsn, LogId, Slot, StreamId
from varlog.client.archived import earliest
from varlog.client.context import LogContext
from varlog.client.questions import ask_tail, committed_slot, time_left
from varlog.client.tail import fresh_tail


@dataclass(slots=True)
class Bounds:
    """Positions `[start, stop)` of one log."""

    log: LogId
    start: Glsn
    stop: Glsn | None
    stream: StreamId | None
    """Only entries of this stream."""
    slot_limit: Slot | None = None
    """Of that stream: it has nothing before `stop` from this slot on."""
    known_end: Glsn = FIRST_GLSN
    """Everything below is certainly there: a replica that does not show it is behind."""


def check_position(value: object, what: str, least: int = FIRST_GLSN) -> Glsn:
    """A position that somebody gave."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{what} is a position, not {type(value).__name__}")
    if value < least or value >= 1 << 63:
        raise InvalidArgument(f"{what} is a position from {least} on, not {value}")
    return Glsn(value)


def check_stream(value: object) -> StreamId | None:
    """The log stream that somebody gave, if he did. Whether there is such a one is seen later."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"stream is the number of a log stream, not {value!r}")
    return StreamId(value)


def check_seconds(value: object, what: str) -> float:
    """How long something may take, as somebody gave it."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise InvalidArgument(f"{what} is a positive number of seconds, not {value!r}")
    return value


def check_count(value: object, what: str) -> int:
    """A number of things that somebody gave."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise InvalidArgument(f"{what} is a positive whole number, not {value!r}")
    return value


def check_bytes(value: object, what: str) -> int:
    """A limit in bytes; 0 is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise InvalidArgument(f"{what} is a number of bytes, or 0 for no limit, not {value!r}")
    return value


def check_milliseconds(seconds: object, what: str) -> int:
    """A limit in seconds, as milliseconds; 0 is none."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1 << 40:
        raise InvalidArgument(f"{what} is a number of seconds, or 0 for no limit, not {seconds!r}")
    return round(seconds * 1000)


def check_names(names: Sequence[str], what: str) -> list[str]:
    """A list of names; a single one is a mistake that is easily made."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"{what} is a list of names, not {names!r}")
    return list(names)


async def find_bounds(
    context: LogContext, *, start: int | None, stop: int | None, stream: StreamId | None, wait: bool, timeout: float
) -> Bounds:
    """Ask for what is not given: the first position that is there, or the last."""
    left = time_left(context, timeout)
    info = await context.routes.resolve(timeout)
    first = None if start is None else check_position(start, "start")
    limit = None if stop is None else check_position(stop, "stop")
    if stream is not None and not any(route.id == stream for route in context.routes.streams):
        raise NotFound(f"log {info.name!r} has no stream {stream}")
    if first is None:
        trimmed = (await ask_tail(context, left())).trimmed
        if trimmed > info.trimmed:
            await context.routes.refresh(left())
            info = await context.routes.resolve(left())
        first = earliest(info, trimmed)
    if not wait:
        end = Glsn(await fresh_tail(context, left()) + 1)
        limit = end if limit is None else min(limit, end)
    bounds = Bounds(LogId(info.id), first, limit, stream)
    if not wait and limit is not None:
        bounds.known_end = limit
    if stream is not None and not wait:
        bounds.slot_limit = await committed_slot(context, stream, left())
    return bounds
