"""A log's entries in order, for ever or up to a stop: from the nodes, and from the archive what they have given up.

    archive     [====== runs ======)
    nodes               (trimmed)  [====== feed =======>

The application waits once for many batches, and steps through their entries without waiting.
"""

from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import Any, TypeVar

from varlog.base.errors import InvalidArgument, NotFound, Trimmed
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.archived import archive_end, archived_at, archived_runs
from varlog.client.bounds import Bounds, find_bounds
from varlog.client.context import LogContext
from varlog.client.entry import Entry, ReadBatch
from varlog.client.feed import Feed
from varlog.client.parts import Placed
from varlog.core.merge import Piece

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A wait was cancelled while the feed stays at work. A raise in its place would end the generators around it."""

    args: tuple[Any, ...]
    """Of the `CancelledError`: there are those who know their own by it."""


@dataclass(eq=False, slots=True)
class Place:
    """How far a reader has come. It outlives the generators that bring it there."""

    bounds: Bounds | None = None
    """`start` lies behind what was given; unknown until the log has been asked."""
    delivered: bool = False


class Runs(AsyncIterator[list[ReadBatch]]):
    """Batches in order, all that are there at once in a list.

    An error or a cancelled wait does not end it: the next one is what comes behind the last that was given.
    """

    def __init__(self, source: "Source") -> None:
        self._source = source
        self._place = Place()
        self._runs = source.runs(self._place)
        self._awaited = False

    async def __anext__(self) -> list[ReadBatch]:
        run = await self.next()
        if run is None:
            raise StopAsyncIteration
        return run

    async def next(self) -> list[ReadBatch] | None:
        """At least one batch; none at the end."""
        if self._awaited:
            raise InvalidArgument("another task waits for the next of this subscription: let each have its own")
        self._awaited = True
        try:
            run = await anext(self._runs, None)
        except BaseException:
            self._runs = self._source.runs(self._place)  # a generator that raised says ever after that it is at its end
            raise
        finally:
            self._awaited = False
        if isinstance(run, Interrupted):
            raise CancelledError(*run.args)
        return run

    async def aclose(self) -> None:
        """Stop; nothing is read any more."""
        await self._runs.aclose()


class Steps(AsyncIterator[Item]):
    """What runs consist of, one by one. Only the wait for a run can be cancelled: what is ready stays where it is."""

    def __init__(self, runs: Runs, items: Callable[[Iterable[ReadBatch]], Iterator[Item]]) -> None:
        self._runs = runs
        self._items = items
        self._ready: Iterator[Item] = iter(())

    async def __anext__(self) -> Item:
        for item in self._ready:
            return item
        while (run := await self._runs.next()) is not None:
            self._ready = self._items(run)
            for item in self._ready:
                return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop; nothing is read any more."""
        await self._runs.aclose()


class Subscription(Steps[Entry]):
    """An async iterator of entries; `batches()` gives them by the batch. `async with`, or `aclose`, ends it early.

    Iterating again goes on where it was left, also after an error or a wait that was cancelled; `batches()` begins
    anew. It is for one task at a time.
    """

    def __init__(
        self,
        context: LogContext,
        *,
        start: int | None,
        stop: int | None,
        stream: StreamId | None,
        wait: bool,
        junk: bool,
        timeout: float,
        patience: float,
    ) -> None:
        self._source = Source(context, start, stop, stream, wait, junk, timeout, patience)
        super().__init__(self.runs(), chain.from_iterable)

    def batches(self) -> Steps[ReadBatch]:
        """The same, batch by batch: no Python object is made for an entry."""
        return Steps(self.runs(), iter)

    def runs(self) -> Runs:
        """The same, with all batches that are there at once in a list."""
        return Runs(self._source)

    async def aclose(self) -> None:
        """Stop; nothing is read any more."""
        self._source.close()

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@dataclass(eq=False, slots=True)
class Source:
    """What the entries come from. It knows no generator, so that one that nobody holds any more ends at once."""

    context: LogContext
    start: int | None
    stop: int | None
    stream: StreamId | None
    wait: bool
    junk: bool
    timeout: float
    patience: float
    feeds: list[Feed] = field(default_factory=list)
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        for feed in self.feeds:
            feed.close()
        self.feeds.clear()

    async def runs(self, place: Place) -> AsyncGenerator[list[ReadBatch] | Interrupted, None]:
        if self.closed:
            return
        if place.bounds is None:
            place.bounds = await find_bounds(
                self.context,
                start=self.start,
                stop=self.stop,
                stream=self.stream,
                wait=self.wait,
                timeout=self.timeout,
            )
        bounds = place.bounds
        left = (await self.context.routes.resolve(self.timeout)).trimmed + 1
        part: AsyncGenerator[list[ReadBatch] | Interrupted, None]
        while not self.closed and (bounds.stop is None or bounds.start < bounds.stop):
            given_up = bounds.start < left
            part = self._from_archive(bounds, left) if given_up else self._from_nodes(bounds)
            try:
                async with aclosing(part):
                    async for run in part:
                        if isinstance(run, Interrupted):
                            yield run
                            continue
                        if self.closed:
                            return
                        place.delivered = True
                        if not self.junk:
                            run = [batch for batch in run if not batch.junk]
                        if run:
                            yield run
                if not given_up:
                    return
                left = bounds.start
            except Trimmed as lost:
                if given_up and (place.delivered or self.start is not None):
                    raise  # the archive has not got it either
                if given_up:
                    bounds.start = Glsn(lost.first)  # what was first when we asked was trimmed since
                left = lost.first

    async def _from_archive(self, bounds: Bounds, left: int) -> AsyncGenerator[list[ReadBatch], None]:
        """What the nodes have given up, as far as is known; the bounds begin behind what was given."""
        info = await archived_at(self.context, bounds.start, left, self.patience)
        if info.id != bounds.log:
            raise NotFound(f"log {info.name!r} was removed")
        end = archive_end(info, bounds.start, bounds.stop)
        async with aclosing(archived_runs(self.context, info, bounds.start, end, bounds.stream)) as runs:
            async for run in runs:
                if run:
                    bounds.start = Glsn(run[-1].last + 1)
                yield run
        bounds.start = end

    async def _from_nodes(self, bounds: Bounds) -> AsyncGenerator[list[ReadBatch] | Interrupted, None]:
        """What the nodes have; the bounds begin behind what was given."""
        feed = Feed(self.context, bounds, self.patience)
        self.feeds.append(feed)
        given: list[ReadBatch] | Interrupted
        try:
            while True:
                try:
                    pieces = await feed.next()
                except CancelledError as cancelled:
                    # The feed stays: one who looks in for a moment again and again would else never see it connected.
                    given = Interrupted(cancelled.args)
                else:
                    if not pieces:
                        return
                    bounds.start = feed.position
                    given = [_read_batch(piece) for piece in pieces]
                yield given
        finally:
            feed.close()
            if feed in self.feeds:
                self.feeds.remove(feed)


def _read_batch(piece: Piece[Placed]) -> ReadBatch:
    placed = piece.item
    return ReadBatch(
        placed.batch, piece.glsn, StreamId(piece.stream), Slot(placed.slot + piece.low), piece.low, piece.high
    )
