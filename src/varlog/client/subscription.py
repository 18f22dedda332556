"""A log's entries in order, for ever or up to a stop: from the nodes, and from the archive what they have given up.

    archive     [====== runs ======)
    nodes               (trimmed)  [====== feed =======>

The application waits once for many batches, and steps through their entries without waiting.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType

from varlog.base.errors import NotFound, Trimmed
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.archived import archive_end, archived_at, archived_runs
from varlog.client.bounds import Bounds, find_bounds
from varlog.client.context import LogContext
from varlog.client.entry import Entry, ReadBatch
from varlog.client.feed import Feed
from varlog.client.parts import Placed
from varlog.core.merge import Piece


class Subscription(AsyncIterator[Entry]):
    """An async iterator of entries; `batches()` gives them by the batch. `async with`, or `aclose`, ends it early."""

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
        self._context = context
        self._start = start
        self._stop = stop
        self._stream = stream
        self._wait = wait
        self._junk = junk
        self._timeout = timeout
        self._patience = patience
        self._feeds: list[Feed] = []
        self._closings = 0
        """How often it was closed: what was begun before the last time is over."""
        self._entries: AsyncGenerator[Entry, None] | None = None

    def __aiter__(self) -> AsyncIterator[Entry]:
        return _entries(self.runs())

    async def __anext__(self) -> Entry:
        if self._entries is None:
            self._entries = _entries(self.runs())
        return await anext(self._entries)

    async def batches(self) -> AsyncGenerator[ReadBatch, None]:
        """The same, batch by batch: no Python object is made for an entry."""
        runs = self.runs()
        try:
            async for run in runs:
                for batch in run:
                    yield batch
        finally:
            await runs.aclose()

    async def runs(self) -> AsyncGenerator[list[ReadBatch], None]:
        """The same, with all batches that are there at once in a list."""
        bounds = await find_bounds(
            self._context,
            start=self._start,
            stop=self._stop,
            stream=self._stream,
            wait=self._wait,
            timeout=self._timeout,
        )
        left = (await self._context.routes.resolve(self._timeout)).trimmed + 1
        delivered, begun = False, self._closings
        while self._closings == begun and (bounds.stop is None or bounds.start < bounds.stop):
            given_up = bounds.start < left
            part = self._from_archive(bounds, left) if given_up else self._from_nodes(bounds)
            try:
                async with aclosing(part):
                    async for run in part:
                        if self._closings != begun:
                            return
                        delivered = True
                        if not self._junk:
                            run = [batch for batch in run if not batch.junk]
                        if run:
                            yield run
                if not given_up:
                    return
                left = bounds.start
            except Trimmed as lost:
                if given_up and (delivered or self._start is not None):
                    raise  # the archive has not got it either
                if given_up:
                    bounds.start = Glsn(lost.first)  # what was first when we asked was trimmed since
                left = lost.first

    async def _from_archive(self, bounds: Bounds, left: int) -> AsyncGenerator[list[ReadBatch], None]:
        """What the nodes have given up, as far as is known; the bounds begin behind it then."""
        info = await archived_at(self._context, bounds.start, left, self._patience)
        if info.id != bounds.log:
            raise NotFound(f"log {info.name!r} was removed")
        end = archive_end(info, bounds.start, bounds.stop)
        async with aclosing(archived_runs(self._context, info, bounds.start, end, bounds.stream)) as runs:
            async for run in runs:
                yield run
        bounds.start = end

    async def _from_nodes(self, bounds: Bounds) -> AsyncGenerator[list[ReadBatch], None]:
        """What the nodes have; after an error the bounds begin behind what was given."""
        feed = Feed(self._context, bounds, self._patience)
        self._feeds.append(feed)
        try:
            while pieces := await feed.next():
                yield [_read_batch(piece) for piece in pieces]
        finally:
            bounds.start = feed.position
            feed.close()
            if feed in self._feeds:
                self._feeds.remove(feed)

    async def aclose(self) -> None:
        """Stop; nothing is read any more."""
        self._closings += 1
        for feed in self._feeds:
            feed.close()
        self._feeds.clear()

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _read_batch(piece: Piece[Placed]) -> ReadBatch:
    placed = piece.item
    return ReadBatch(
        placed.batch, piece.glsn, StreamId(piece.stream), Slot(placed.slot + piece.low), piece.low, piece.high
    )


async def _entries(runs: AsyncGenerator[list[ReadBatch], None]) -> AsyncGenerator[Entry, None]:
    try:
        async for run in runs:
            for batch in run:
                for entry in batch:
                    yield entry
    finally:
        await runs.aclose()
