"""Single questions to the streams of a log: the entry at a position, the first position at a time."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

from varlog.base.errors import (
    Corrupt,
    InvalidArgument,
    Junk,
    NotWritten,
    Timeout,
    Trimmed,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import Glsn, NodeId, Slot, StreamId
from varlog.client.archived import archive_behind, archived_entry, archived_time
from varlog.client.context import LogContext
from varlog.client.entry import EPOCH, Entry, ReadBatch
from varlog.client.errors import CLOSED
from varlog.client.limits import ATTEMPT_SECONDS, LAGGING_SECONDS
from varlog.client.parts import Placed, placed_batches
from varlog.client.questions import ask_tail, committed_slots
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.client.tail import fresh_tail
from varlog.runtime.scope import Scope
from varlog.runtime.timeout import within
from varlog.transport.peer import Reply
from varlog.wire.batch import BatchHeader
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def time_us_of(time: datetime | float) -> int:
    """Microseconds since 1970 of a time with a zone, or of seconds since 1970 as `time.time()` gives them."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidArgument("a time needs a zone, as in datetime.now(UTC)")
        return max(0, (time - EPOCH) // timedelta(microseconds=1))
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise InvalidArgument(f"a time is a datetime or seconds since 1970, not {type(time).__name__}")
    if not 0 <= time < 1 << 43:
        raise InvalidArgument(f"{time} is not a time in seconds since 1970")
    return round(time * 1_000_000)


async def _first_part(context: LogContext, node: NodeId, request: pb.ReadRequest, timeout: float) -> Reply:
    """One replica's answer to a question that one part answers."""
    clock = context.world.clock
    place = context.routes.place(node)
    limit = min(timeout, ATTEMPT_SECONDS)
    peer = await within(clock, limit, context.pool.get(place))
    async with peer.stream(Method.READ, request, timeout=limit) as parts:
        async for part in parts:
            return part
    raise Unavailable(f"node {node} answered nothing")


def _question(route: StreamRoute) -> pb.ReadRequest:
    return pb.ReadRequest(log=route.log, segment=route.segment, stream=route.id, max_batches=1)


class _Search:
    """Asks the replicas of several streams, each in turn, until the deadline."""

    def __init__(self, context: LogContext, timeout: float) -> None:
        self._context = context
        self._clock = context.world.clock
        self._timeout = timeout
        self._deadline = self._clock.now() + timeout
        self._offset = context.world.random.randrange(1 << 16)
        self.last: VarlogError | None = None

    @property
    def left(self) -> float:
        return self._deadline - self._clock.now()

    @property
    def rest(self) -> float:
        """The same as a time limit, which is never quite over."""
        return max(0.001, self.left)

    async def ask(self, route: StreamRoute, request: pb.ReadRequest, attempt: int) -> Reply | None:
        """One replica's answer; another one for every attempt. None: it has none, and `last` says why."""
        first = self._offset if route.first_to_know is None else route.first_to_know
        node = route.members[(first + attempt) % len(route.members)]
        try:
            return await _first_part(self._context, node, request, self.rest)
        except Trimmed:
            raise
        except VarlogError as error:
            self.last = error
            self._context.routes.refresh_soon()
            return None

    async def again(self, attempt: int) -> None:
        """Before the next attempt: raises when there is no time for it, or nobody to ask any more."""
        if self._context.scope.closed:
            raise Unavailable(CLOSED)
        if self.left <= 0:
            why = self.last.message if self.last is not None else "the replicas have not heard of it yet"
            raise Timeout(f"not answered in {self._timeout:.3g} s: {why}")
        wait = pause(self._context.world, attempt) if self.last is not None else LAGGING_SECONDS / 10
        await self._clock.sleep(min(wait, max(0.0, self.left)))


async def _first_result(works: list[Coroutine[Any, Any, Entry | None]]) -> Entry | None:
    """Run all at once; the first entry found, or None when none finds one. The rest is cancelled."""
    found: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
    scope = Scope()
    left = len(works)

    async def run(work: Coroutine[Any, Any, Entry | None]) -> None:
        nonlocal left
        try:
            entry = await work
        except VarlogError as error:
            if not found.done():
                found.set_exception(error)
            return
        left -= 1
        if not found.done() and (entry is not None or not left):
            found.set_result(entry)

    for work in works:
        scope.spawn(run(work), name="read an entry")
    try:
        return await found
    finally:
        await scope.close()


# ---------------------------------------------------------------- by position


async def read_entry(context: LogContext, glsn: Glsn, timeout: float) -> Entry:
    """The entry at a position, from the nodes or else from the archive."""
    search = _Search(context, timeout)
    try:
        return await _ask_nodes(context, search, glsn, timeout)
    except Trimmed as lost:
        return await archived_entry(context, glsn, lost.first, search.rest)


async def _ask_nodes(context: LogContext, search: _Search, glsn: Glsn, timeout: float) -> Entry:
    """Asked of its stream if that is known, else of all of them."""
    info = await context.routes.resolve(timeout)
    attempt = 0
    while True:
        if glsn <= info.trimmed:
            raise Trimmed(f"log {info.name!r} is trimmed up to {info.trimmed}", info.trimmed + 1)
        hint = context.hints.stream_of(glsn) if attempt == 0 else None
        routes = [route for route in context.routes.streams if hint in (None, route.id) and route.may_hold(glsn)]
        before = search.last
        entry = await _first_result([_look(search, route, glsn, attempt) for route in routes]) if routes else None
        if entry is not None:
            return entry
        attempt += 1
        others = search.last is not before and attempt % max(len(route.members) for route in routes) > 0
        await _check_written(context, search, glsn, LAGGING_SECONDS if others else ATTEMPT_SECONDS)
        context.routes.refresh_soon()  # it may lie in a stream that we have not heard of, or be trimmed
        await search.again(attempt)
        info = await context.routes.resolve(search.rest)


async def _check_written(context: LogContext, search: _Search, glsn: Glsn, seconds: float) -> None:
    """Raises `NotWritten` if nobody can have it. Another replica may show it before the tail is told."""
    try:
        tail = await fresh_tail(context, min(search.rest, seconds))
    except VarlogError as error:
        if not error.retryable:
            raise
        search.last = error
        return
    if glsn > tail:
        raise NotWritten(f"position {glsn} is not written yet; the tail is {tail}", tail)


async def _look(search: _Search, route: StreamRoute, glsn: Glsn, attempt: int) -> Entry | None:
    request = _question(route)
    request.glsn = glsn
    request.stop_glsn = glsn + 1
    part = await search.ask(route, request, attempt)
    if part is None:
        return None
    try:
        for placed in placed_batches(part.message, part.body):
            index = glsn - placed.glsn
            if 0 <= index < len(placed.batch) and placed.batch.junk:
                raise Junk(f"position {glsn} was given up: it holds no entry, and never will", glsn)
            if 0 <= index < len(placed.batch):
                return _entry_at(placed, route.id, glsn, index)
    except Corrupt as error:
        search.last = error
    return None


async def header_at(context: LogContext, route: StreamRoute, slot: Slot, attempt: int) -> BatchHeader:
    """What is at a slot that is in the log, by the word of one replica; another one for every attempt."""
    request = _question(route)
    request.slot = slot
    part = await _first_part(context, route.members[attempt % len(route.members)], request, ATTEMPT_SECONDS)
    for placed in placed_batches(part.message, part.body):
        if placed.slot <= slot < placed.slot + len(placed.batch):
            return placed.batch.header
    raise NotWritten(f"slot {slot} of stream {route.id} is not there yet")


def _entry_at(placed: Placed, stream: StreamId, glsn: Glsn, index: int) -> Entry:
    batch = ReadBatch(placed.batch, glsn, stream, Slot(placed.slot + index), index, index + 1)
    return batch.entries()[0]


# ---------------------------------------------------------------- by time


async def find_time(context: LogContext, time: datetime | float, timeout: float) -> Glsn:
    """The first position whose batch was sent at or after a time; one past the tail if there is none."""
    time_us = time_us_of(time)
    search = _Search(context, timeout)
    tail = await ask_tail(context, timeout)
    info = await archive_behind(context, tail.trimmed, search.rest)
    while True:
        archived = None if info is None else await archived_time(context, info, time_us, search.rest)
        if archived is not None:
            return archived
        found = await _find_on_nodes(context, search, time_us, tail)
        now = await ask_tail(context, search.rest)
        if now.trimmed == tail.trimmed:
            return found
        info = await archive_behind(context, now.trimmed, search.rest)
        if info is None:
            return found
        tail = now  # what they gave up while we asked them may have been the first: the archive has it


async def _find_on_nodes(context: LogContext, search: _Search, time_us: int, tail: pb.TailReply) -> Glsn:
    committed = await committed_slots(context, search.rest)
    if not committed.keys() <= {route.id for route in context.routes.streams}:
        await context.routes.refresh(search.rest)  # streams have come that we had not heard of
    works = [
        _first_at(search, route, time_us, committed.get(route.id, Slot(0)), tail.trimmed)
        for route in context.routes.streams
        if route.until is None or route.until > tail.trimmed + 1
    ]
    found: list[Glsn] = []
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            found.append(result)
    first = min(found, default=Glsn(tail.tail + 1))
    return Glsn(max(first, tail.trimmed + 1))  # the trim point may lie inside a batch


async def _first_at(search: _Search, route: StreamRoute, time_us: int, committed: Slot, trimmed: int) -> Glsn | None:
    """Of one stream. A replica that is behind does not know what was committed or trimmed: another is asked."""
    request = _question(route)
    request.time_us = time_us
    attempt = 0
    while True:
        part = await search.ask(route, request, attempt)
        if part is not None:
            try:
                placed = next(iter(placed_batches(part.message, part.body)), None)
            except Corrupt as error:
                search.last = error
            else:
                if placed is None and part.message.status.committed >= committed:
                    return None
                if placed is not None and placed.glsn + len(placed.batch) > trimmed + 1:
                    return placed.glsn
        attempt += 1
        await search.again(attempt)
