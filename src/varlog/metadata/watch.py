"""Watching keys: each watcher has a bounded queue of changes, filled in commit order."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Sequence

from varlog.base.errors import Overloaded, VarlogError
from varlog.ports.metadata import Change

WATCH_CHANGES = 65_536
"""Most changes that wait for one watcher; one that falls further behind must read all again."""


class Watch(AsyncIterator[Change]):
    """Every change to a key with the prefix from its construction on. Ends when the store is closed."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._changes: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: VarlogError | None = None

    def offer(self, change: Change) -> None:
        """Queue one change, or give up on a watcher that does not keep up."""
        if self._ended:
            return
        if len(self._changes) >= WATCH_CHANGES:
            self._changes.clear()
            self.end(Overloaded(f"a watcher of {self.prefix!r} fell {WATCH_CHANGES} changes behind"))
            return
        self._changes.append(change)
        self._wake()

    def end(self, error: VarlogError | None = None) -> None:
        """Nothing comes after what is queued; then `error`, if there is one."""
        self._ended = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> Change:
        while not self._changes:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._changes.popleft()

    async def aclose(self) -> None:
        """Want no more."""
        self._changes.clear()
        self.end()


class Watchers:
    """All watchers of one store. One that its owner has dropped goes by itself."""

    def __init__(self) -> None:
        self._watches: list[weakref.ref[Watch]] = []
        self._closed = False

    def watch(self, prefix: str) -> Watch:
        watch = Watch(prefix)
        if self._closed:
            watch.end()
        else:
            self._watches.append(weakref.ref(watch, self._watches.remove))
        return watch

    def offer(self, changes: Sequence[Change]) -> None:
        """Changes in commit order, each to those who watch its key."""
        if not self._watches:
            return
        for watch in self._live():
            for change in changes:
                if change.key.startswith(watch.prefix):
                    watch.offer(change)

    def close(self) -> None:
        self._closed = True
        for watch in self._live():
            watch.end()

    def _live(self) -> list[Watch]:
        return [watch for reference in list(self._watches) if (watch := reference()) is not None]
