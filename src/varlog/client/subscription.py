"""A log's entries in order, for ever or up to a stop: from the nodes, and from the archive what they have given up.

    archive     [====== runs ======)
    nodes               (trimmed)  [====== feed =======>

The application waits once for many batches, and steps through their entries without waiting.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
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
    """An async iterator of entries; `batches()` gives them by the batch. `async with`, or `aclose`, ends it early.

    Iterating again goes on where it was left, `batches()` begins anew.
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
        self._entries = _entries(self.runs())

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._entries

    async def __anext__(self) -> Entry:
        return await anext(self._entries)

    def batches(self) -> AsyncGenerator[ReadBatch, None]:
        """The same, batch by batch: no Python object is made for an entry."""
        return _batches(self.runs())

    def runs(self) -> AsyncGenerator[list[ReadBatch], None]:
        """The same, with all batches that are there at once in a list."""
        return self._source.runs()

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

    async def runs(self) -> AsyncGenerator[list[ReadBatch], None]:
        bounds = await find_bounds(
            self.context,
            start=self.start,
            stop=self.stop,
            stream=self.stream,
            wait=self.wait,
            timeout=self.timeout,
        )
        left = (await self.context.routes.resolve(self.timeout)).trimmed + 1
        delivered = False
        while not self.closed and (bounds.stop is None or bounds.start < bounds.stop):
            given_up = bounds.start < left
            part = self._from_archive(bounds, left) if given_up else self._from_nodes(bounds)
            try:
                async with aclosing(part):
                    async for run in part:
                        if self.closed:
                            return
                        delivered = True
                        if not self.junk:
                            run = [batch for batch in run if not batch.junk]
                        if run:
                            yield run
                if not given_up:
                    return
                left = bounds.start
            except Trimmed as lost:
                if given_up and (delivered or self.start is not None):
                    raise  # the archive has not got it either
                if given_up:
                    bounds.start = Glsn(lost.first)  # what was first when we asked was trimmed since
                left = lost.first

    async def _from_archive(self, bounds: Bounds, left: int) -> AsyncGenerator[list[ReadBatch], None]:
        """What the nodes have given up, as far as is known; the bounds begin behind it then."""
        info = await archived_at(self.context, bounds.start, left, self.patience)
        if info.id != bounds.log:
            raise NotFound(f"log {info.name!r} was removed")
        end = archive_end(info, bounds.start, bounds.stop)
        async with aclosing(archived_runs(self.context, info, bounds.start, end, bounds.stream)) as runs:
            async for run in runs:
                yield run
        bounds.start = end

    async def _from_nodes(self, bounds: Bounds) -> AsyncGenerator[list[ReadBatch], None]:
        """What the nodes have; after an error the bounds begin behind what was given."""
        feed = Feed(self.context, bounds, self.patience)
        self.feeds.append(feed)
        try:
            while pieces := await feed.next():
                yield [_read_batch(piece) for piece in pieces]
        finally:
            bounds.start = feed.position
            feed.close()
            if feed in self.feeds:
                self.feeds.remove(feed)


def _read_batch(piece: Piece[Placed]) -> ReadBatch:
    placed = piece.item
    return ReadBatch(
        placed.batch, piece.glsn, StreamId(piece.stream), Slot(placed.slot + piece.low), piece.low, piece.high
    )


async def _batches(runs: AsyncGenerator[list[ReadBatch], None]) -> AsyncGenerator[ReadBatch, None]:
    try:
        async for run in runs:
            for batch in run:
                yield batch
    finally:
        await runs.aclose()


async def _entries(runs: AsyncGenerator[list[ReadBatch], None]) -> AsyncGenerator[Entry, None]:
    try:
        async for run in runs:
            for batch in run:
                for entry in batch:
                    yield entry
    finally:
        await runs.aclose()
