"""What a subscription gives, one by one, to any number of threads: each item to one of them, none lost, none twice.

    loop's thread    run run run ...      fetched one at a time, kept until the next is asked for
                      |
    callers          ready ready ...      a part of a run; its items are taken without a lock

A lock for every entry would nearly double what it costs. There is none because the iterator of what is
ready is never one written in Python: the interpreter lets no other thread in while it takes an item.

An interrupt (Ctrl-C) strikes a caller between any two steps. So what was received is one value that is
set at once, and a run that was fetched for somebody who never got it is given to who asks next.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from varlog.client.entry import Entry, ReadBatch
from varlog.client.subscription import Runs
from varlog.sync.thread import LoopThread

READY_BYTES = 8 << 10
"""So much of a run, or one batch, is unpacked at once. More of small ones costs more: the caches do not hold them."""

Item = TypeVar("Item")

Cut: TypeAlias = "Callable[[list[ReadBatch], int], tuple[Iterator[Item], int]]"
"""Of a run from a batch on: items, in an iterator not written in Python, and the batch behind them."""


def all_batches(run: list[ReadBatch], index: int) -> tuple[Iterator[ReadBatch], int]:
    return iter(run[index:] if index else run), len(run)


def some_entries(run: list[ReadBatch], index: int) -> tuple[Iterator[Entry], int]:
    parts = []
    size = 0
    while index < len(run) and size < READY_BYTES:
        batch = run[index]
        parts.append(iter(batch))
        size += batch.nbytes
        index += 1
    return (parts[0] if len(parts) == 1 else chain(*parts)), index


class Received(NamedTuple, Generic[Item]):
    """What came over last, and what of it has not been taken."""

    ready: Iterator[Item]
    run: list[ReadBatch] | None
    """None at the end of the subscription."""
    behind: int
    """Index of the first batch that is not in `ready`."""


class Steps(Iterator[Item]):
    """Nothing that it holds knows of it: in a circle they could be freed by the garbage collector alone.

    Whoever leaves early does not wait: the loop ends a generator that nobody holds any more.
    """

    def __init__(self, runs: Runs, thread: LoopThread, cut: "Cut[Item]") -> None:
        self._runs = runs
        self._thread = thread
        self._cut = cut
        self._lock = threading.Lock()
        """Held by whoever gets more ready."""
        self._fetched: list[ReadBatch] | None = []
        self._fetching = asyncio.Lock()
        """One that was interrupted may still be on its way out."""
        self._received: Received[Item] = Received(iter(()), self._fetched, 0)

    def __iter__(self) -> Iterator[Item]:
        """A generator each: for a loop that is cheaper than `__next__`, and no other thread is ever inside."""
        ready: Iterator[Item] | None = self._received.ready
        while ready is not None:
            yield from ready
            ready = self._behind(ready)

    def __next__(self) -> Item:
        ready: Iterator[Item] | None = self._received.ready
        while ready is not None:
            for item in ready:
                return item
            ready = self._behind(ready)
        raise StopIteration

    def _behind(self, taken: Iterator[Item]) -> Iterator[Item] | None:
        """What is ready after `taken`, perhaps for another thread already; none at the end."""
        self._thread.check_usable()
        with self._lock:
            ready, run, index = self._received
            if run is None:
                return None
            if ready is not taken:
                return ready
            if index == len(run):
                run, index = self._thread.run(self._fetch(run)), 0
            if run is None:
                self._received = Received(iter(()), None, 0)
                return None
            ready, index = self._cut(run, index)
            self._received = Received(ready, run, index)
            return ready

    async def _fetch(self, last: list[ReadBatch]) -> list[ReadBatch] | None:
        """On the loop's thread: the run behind the last that was received."""
        async with self._fetching:
            if self._fetched is last:
                self._fetched = await self._runs.next()
            return self._fetched
