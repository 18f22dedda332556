"""Between the readers of a log's streams and the application: what they bring, merged, as far as it is wanted.

    StreamReader 1 --\\
    StreamReader 2 ----> feed (bounded a stream) --> merge --> pieces
    StreamReader 3 --/

The application waits once for many pieces. A feed ends with an error, at its stop, or at the end of a sealed log.
"""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from varlog.base.errors import NotFound, Timeout, Unavailable, VarlogError
from varlog.base.ids import Glsn, StreamId
from varlog.client.bounds import Bounds
from varlog.client.chain import Over
from varlog.client.context import LogContext
from varlog.client.errors import CLOSED, again
from varlog.client.limits import LAGGING_SECONDS, READ_AHEAD_BYTES, SILENT_SECONDS
from varlog.client.parts import Placed
from varlog.client.questions import ask_tail, committed_slot, complete_last_segment, last_segment
from varlog.client.reader import StreamReader
from varlog.client.routes import StreamRoute
from varlog.core.merge import InOrder, Merge, Piece
from varlog.ports.clock import Timer


class Feed:
    """What nodes have of a log. Knows nothing of the subscription, so that that can be dropped."""

    def __init__(self, context: LogContext, bounds: Bounds, patience: float) -> None:
        self._context = context
        self._bounds = bounds
        self._patience = patience
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: dict[StreamId, StreamReader] = {}
        self._reading: dict[StreamId, asyncio.Task[None]] = {}
        """What runs for each of them."""
        self._first_end: float = inf
        """The lowest position behind which a stream that is read has nothing more, as far as is known."""
        self._later: list[StreamRoute] = []
        """Streams of which nothing is needed yet."""
        self._buffered: dict[StreamId, int] = {}
        self._full: dict[StreamId, asyncio.Future[None]] = {}
        self._errors: dict[StreamId, VarlogError] = {}
        self._ended: VarlogError | None = None
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._completing: asyncio.Task[None] | None = None
        self._merge: Merge[Placed] | InOrder[Placed]
        self._merge = (InOrder if bounds.stream else Merge)(bounds.start, bounds.stop)
        context.routes.listeners.append(self._changed)
        context.on_close.append(self._cut_off)
        if bounds.stream is not None and bounds.stop is not None and bounds.slot_limit is None:
            self._spawn(self._find_limit, "find the end of a stream")
        self._changed()
        if context.scope.closed:
            self._cut_off()  # nobody else does so any more

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Work that ends with this feed."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(task := self._context.scope.spawn(self._guard(work), name=name))
        return task

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Whatever ends a reader, the application must not wait for it for ever."""
        try:
            await work()
        except Exception as error:
            self._end(error if isinstance(error, VarlogError) else VarlogError(f"internal error: {error!r}"))
            if not isinstance(error, VarlogError):
                raise

    # ------------------------------------------------------------ for the application

    async def next(self) -> list[Piece[Placed]]:
        """What is ready, at least one piece; empty at the end."""
        while True:
            pieces = self._merge.take()
            if pieces:
                self._release(pieces)
                return pieces
            if self._closed or self._finished():
                return []
            error = self._ended or next(iter(self._errors.values()), None)
            if error is not None:
                raise again(error)
            await self._wait()

    @property
    def position(self) -> Glsn:
        """What `next` gives next."""
        return self._merge.next

    def close(self) -> None:
        """Stop all that works for it; who still waits finds the end."""
        self._closed = True
        self._wake()
        self._cancel()
        self._stop_timer()
        for listeners, own in (
            (self._context.routes.listeners, self._changed),
            (self._context.on_close, self._cut_off),
        ):
            if own in listeners:
                listeners.remove(own)

    def _finished(self) -> bool:
        if self._merge.finished:
            return True
        stream, limit = self._bounds.stream, self._bounds.slot_limit
        if stream is None:
            return False
        reader = self._readers.get(stream)
        if reader is None or reader.cursor is None:
            return limit == 0
        if reader.at_stop:
            return True
        end = reader.route.end if limit is None else limit
        return end is not None and reader.cursor >= end

    async def _wait(self) -> None:
        """Until something comes; if it is known that more exists, only a while, then another replica is asked."""
        self._waiter = asyncio.get_running_loop().create_future()
        if self._timer is None and max(self._merge.known_end, self._bounds.known_end) > self._merge.next:
            self._timer = self._context.world.clock.call_later(LAGGING_SECONDS, self._lags)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _lags(self) -> None:
        self._timer = None
        self._context.routes.refresh_soon()  # it may be in a stream that we have not heard of
        if self._completing is None or self._completing.done():
            self._completing = self._spawn(self._complete, "complete what is half written")
        for stream, reader in self._readers.items():
            if self._merge.empty(stream):
                reader.suspect()
        self._wake()

    async def _complete(self) -> None:
        """Others may wait at a position for good that its writer left behind: see that it is written, or filled."""
        try:
            await complete_last_segment(self._context, last_segment(self._context), self._merge.known_end)
        except (Over, VarlogError):
            pass  # it is tried again as long as something is missing

    def _release(self, pieces: list[Piece[Placed]]) -> None:
        self._stop_timer()
        for piece in pieces:
            stream = StreamId(piece.stream)
            self._buffered[stream] -= len(piece.item.batch.data)
            full = self._full.get(stream)
            if full is not None and self._buffered[stream] < READ_AHEAD_BYTES and not full.done():
                full.set_result(None)
        if self._merge.next >= self._first_end:
            self._end_readers()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ for the readers

    def wanted(self) -> Glsn:
        return self._merge.next

    def feed(self, stream: StreamId, batches: list[Placed]) -> None:
        merge = self._merge
        size = 0
        try:
            for placed in batches:
                if merge.feed(stream, placed.glsn, len(placed.batch), placed):
                    size += len(placed.batch.data)
        except VarlogError as error:
            self._end(error)
        self._buffered[stream] = self._buffered.get(stream, 0) + size
        self._begin_readers()
        self._wake()

    async def room(self, stream: StreamId) -> None:
        while self._buffered.get(stream, 0) >= READ_AHEAD_BYTES:
            full = self._full[stream] = asyncio.get_running_loop().create_future()
            await full

    def failed(self, stream: StreamId, error: VarlogError) -> None:
        self._errors[stream] = error
        self._wake()

    # ------------------------------------------------------------ news of the log

    def _changed(self) -> None:
        """Streams come, and a log that is sealed has an end."""
        routes, bounds = self._context.routes, self._bounds
        if routes.info is None or routes.info.id != bounds.log:
            self._end(NotFound(f"log {routes.name!r} was removed"))
            return
        if routes.end is not None and bounds.stream is None:
            stop = routes.end if bounds.stop is None else min(bounds.stop, routes.end)
            self._merge.stop = Glsn(stop)
        self._later = []
        for route in routes.streams:
            reader = self._readers.get(route.id)
            if reader is not None:
                reader.route = route
            elif bounds.stream in (None, route.id):
                self._later.append(route)
        self._end_readers()
        self._begin_readers()
        self._wake()

    def _is_over(self, route: StreamRoute) -> bool:
        """Nothing of it is needed any more."""
        return self._bounds.stream is None and route.until is not None and route.until <= self._merge.next

    def _begin_readers(self) -> None:
        """Read what may have the next position; streams that begin later wait, those that ended before never come."""
        if not self._later:
            return
        bounds, merge = self._bounds, self._merge
        later, self._later = self._later, []
        for route in later:
            if self._is_over(route):
                continue
            if bounds.stream is None and route.first > merge.known_end:
                self._later.append(route)
                continue
            reader = StreamReader(self._context, route, merge.next, bounds.stop, self, self._patience)
            self._readers[route.id] = reader
            self._reading[route.id] = self._spawn(reader.run, f"read stream {route.id}")
            if route.until is not None:
                self._first_end = min(self._first_end, route.until)

    def _end_readers(self) -> None:
        """Where nothing is needed any more it is no matter that nobody answers, nor that nobody did."""
        for stream in [stream for stream, reader in self._readers.items() if self._is_over(reader.route)]:
            del self._readers[stream]
            self._reading.pop(stream).cancel()
            self._errors.pop(stream, None)
        ends = [reader.route.until for reader in self._readers.values()]
        self._first_end = min((until for until in ends if until is not None), default=inf)

    def _cut_off(self) -> None:
        self._end(Unavailable(CLOSED))

    def _end(self, error: VarlogError) -> None:
        self._ended = self._ended or error
        self._cancel()
        self._wake()

    def _cancel(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    async def _find_limit(self) -> None:
        """One stream cannot tell whether more of it lies before the stop: the repository can, once the log is there."""
        stream, stop = self._bounds.stream, self._bounds.stop
        clock, pause = self._context.world.clock, LAGGING_SECONDS
        while stream is not None and stop is not None:
            try:
                if (await ask_tail(self._context, self._patience)).tail >= stop - 1:
                    self._bounds.slot_limit = await committed_slot(self._context, stream, self._patience)
                    self._wake()
                    return
            except (Timeout, Unavailable):
                pass  # the repository is away; the stream itself may still reach the stop
            await clock.sleep(pause)
            pause = min(2 * pause, SILENT_SECONDS)
