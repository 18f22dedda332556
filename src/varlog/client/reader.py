"""One stream, from a position on, in order, from whichever of its replicas answers (S7).

    members   1 ---x        lost: go on at the same slot with the next one
              2 ------x     silent though there is more, or corrupt: likewise
              3 ----------->
    cursor    ^ the next slot; what lies before it was handed on, nothing is asked for twice

A replica may be behind: it shows committed entries only, and may not have heard of the last cut. So one
that has shown nothing for a while is left for the next, which costs one question when nothing is new.
"""

from typing import Protocol

from varlog.base.errors import (
    ConnectionLost,
    Corrupt,
    Overloaded,
    Timeout,
    Trimmed,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import Glsn, NodeId, Slot, StreamId
from varlog.client.context import LogContext
from varlog.client.limits import (
    ATTEMPT_SECONDS,
    LAGGING_SECONDS,
    READ_PART_BYTES,
    READ_WINDOW_BYTES,
    SILENT_SECONDS,
)
from varlog.client.parts import Placed, placed_batches
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.runtime.timeout import within
from varlog.transport.peer import PartStream, Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PASSING = (ConnectionLost, Timeout, Unavailable, Overloaded)
"""Errors that say nothing about what is stored."""

MOST_ROUNDS = 3
"""So many times every member must have refused or shown garbage before the reader gives up."""


class Sink(Protocol):
    """Who takes what a reader brings."""

    def wanted(self) -> Glsn:
        """The position that is needed next; nothing below it is."""
        ...

    def feed(self, stream: StreamId, batches: list[Placed]) -> None: ...

    async def room(self, stream: StreamId) -> None:
        """Wait until this stream may bring more."""
        ...

    def failed(self, stream: StreamId, error: VarlogError) -> None:
        """The stream brings no more, because of this."""
        ...


class StreamReader:
    """Reads until it is cancelled, the stream ends, or nothing helps."""

    def __init__(
        self, context: LogContext, route: StreamRoute, start: Glsn, stop: Glsn | None, sink: Sink, patience: float
    ) -> None:
        self.route = route
        self.cursor: Slot | None = None
        """The next slot; None until the first answer told it."""
        self.at_stop = False
        """A replica has shown that what follows in this stream lies at the stop or beyond."""
        self._context = context
        self._clock = context.world.clock
        self._start = start
        self._handed_on = start
        """One past the last position that was handed on."""
        self._stop = stop
        self._sink = sink
        self._patience = patience
        self._member = context.routes.near(route)
        self._failures = 0
        self._refusals = 0
        self._in_vain = 0
        """Attempts since a replica had what is there."""
        self._answered_at = self._supplied_at = self._clock.now()
        """When a replica last showed anything; and when one last had what is there, or no more was wanted."""
        self._asked_at = 0.0
        self._parts: PartStream | None = None
        self._committed = Slot(0)
        """As far as the last part told."""

    def suspect(self) -> None:
        """There is more than this one has shown: if it had its time, leave the present replica for the next."""
        if self._parts is not None and self._clock.now() - self._asked_at >= LAGGING_SECONDS:
            parts, self._parts = self._parts, None
            self._context.scope.spawn(parts.aclose(), name="leave a replica")

    async def run(self) -> None:
        while not self._at_end():
            try:
                members = self.route.members
                await self._follow(members[self._member % len(members)])  # one may have been removed meanwhile
            except Trimmed as trimmed:
                if trimmed.first > self._sink.wanted():
                    self._sink.failed(self.route.id, trimmed)
                    return
                # Only what is not wanted was trimmed: find the place anew.
                self.cursor = None
                self._start = max(self._start, self._handed_on, self._sink.wanted())
                await self._clock.sleep(self._pause())
            except VarlogError as error:
                if self._hopeless(error):
                    error.message = f"{error.message} ({self._where()})"
                    self._sink.failed(self.route.id, error)
                    return
                await self._clock.sleep(self._pause())
            self._member = (self._member + 1) % len(self.route.members)
        self._sink.feed(self.route.id, [])  # who begins behind the last entry is brought nothing, and waits to be told

    def _at_end(self) -> bool:
        if self.at_stop:
            return True
        return self.route.end is not None and self.cursor is not None and self.cursor >= self.route.end

    def _hopeless(self, error: VarlogError) -> bool:
        self._in_vain += 1
        if isinstance(error, PASSING):
            self._context.routes.refresh_soon()  # a member may have moved
            tried = self._in_vain >= len(self.route.members)
            return tried and self._clock.now() - self._supplied_at > self._patience
        self._refusals += 1
        return self._refusals >= MOST_ROUNDS * len(self.route.members)

    def _where(self) -> str:
        """What cannot be read, for people."""
        info = self._context.routes.info
        streams = [stream for segment in info.chain for stream in segment.streams] if info is not None else []
        until = next((stream.until_glsn for stream in streams if stream.id == self.route.id), 0)
        upto = f" up to {until - 1}" if until else ""
        return f"stream {self.route.id} cannot be read from position {self._handed_on} on{upto}"

    def _pause(self) -> float:
        """Nothing as long as there are members not yet tried."""
        self._failures += 1
        rounds = self._failures // len(self.route.members)
        return pause(self._context.world, rounds) if rounds else 0.0

    # ------------------------------------------------------------ one replica

    async def _follow(self, node: NodeId) -> None:
        """Take what a replica has, as long as it brings something."""
        place = self._context.routes.place(node)
        peer = await within(self._clock, ATTEMPT_SECONDS, self._context.pool.get(place))
        self._asked_at, ended = self._clock.now(), self.route.end is not None
        async with peer.stream(
            Method.READ, self._request(), window_bytes=READ_WINDOW_BYTES, timeout=ATTEMPT_SECONDS
        ) as parts:
            self._parts = parts
            try:
                while (part := await self._next(parts)) is not None:
                    self._take(node, part)
                    full_at = self._clock.now()
                    await self._sink.room(self.route.id)
                    self._supplied_at += self._clock.now() - full_at
            finally:
                self._parts = None
        await self._rest()
        if ended and not self._at_end():
            # What has ended grows no more: this one lacks what is there, and perhaps nobody is left who has it.
            raise Unavailable(f"node {node} lacks the end of a stream of {self.route.end} slots")

    def _request(self) -> pb.ReadRequest:
        route = self.route
        request = pb.ReadRequest(
            log=route.log,
            segment=route.segment,
            stream=route.id,
            stop_glsn=self._stop or 0,
            part_bytes=READ_PART_BYTES,
            wait=True,
        )
        if self.cursor is None:
            request.glsn = self._start
        else:
            request.slot = self.cursor
        return request

    async def _next(self, parts: PartStream) -> Reply | None:
        """The next part; None when there is none, or none for so long that another replica is asked."""
        try:
            return await within(self._clock, SILENT_SECONDS, anext(parts))
        except StopAsyncIteration:
            if self._parts is not None and self._stop is not None and (self.cursor or 0) < self._committed:
                self.at_stop = True  # it ended before the end of what it has: only the stop makes it do so
                self._sink.feed(self.route.id, [])
            return None
        except Timeout:
            if self._parts is None or self._answered_at >= self._asked_at:
                return None
            raise

    def _take(self, node: NodeId, part: Reply) -> None:
        message: pb.ReadPart = part.message
        self._committed = Slot(message.status.committed)
        self._answered_at = self._clock.now()
        self._failures = 0
        try:
            batches = placed_batches(message, part.body)
            if self.cursor is None:
                self.cursor = Slot(message.slot)
            batches = self._in_turn(batches)
        except Corrupt as error:
            error.replica = f"{self.route.log}.{self.route.segment}.{self.route.id} on node {node}"
            raise
        self._refusals = 0  # others may have nothing new, and yet be well
        if batches or self.route.end is None:
            self._supplied_at, self._in_vain = self._answered_at, 0
        if batches:
            self._handed_on = Glsn(batches[-1].glsn + len(batches[-1].batch))
            self._sink.feed(self.route.id, batches)

    def _in_turn(self, batches: list[Placed]) -> list[Placed]:
        """Those from the cursor on, which moves behind them."""
        taken = []
        for placed in batches:
            if placed.slot < (self.cursor or 0):
                continue
            if placed.slot != self.cursor:
                raise Corrupt(f"slot {self.cursor} was asked for, {placed.slot} came", placed.slot)
            self.cursor = Slot(placed.slot + len(placed.batch))
            taken.append(placed)
        return taken

    async def _rest(self) -> None:
        """The replica has no more just now. One that ends at once must not be asked in a tight loop."""
        if self._clock.now() - self._asked_at < LAGGING_SECONDS and not self._at_end():
            self._context.routes.refresh_soon()
            await self._clock.sleep(LAGGING_SECONDS)
