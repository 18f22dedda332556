"""Appends that wait, by column.

    append        0      1              2      3
    futures       f      f              f      f        one an append
    deadlines     d      d              d      d
    counts        1      3                              entries of each; behind its end, one
    payloads      p      p   p   p      p      p        one an entry
    keys          -      k   k   k                      behind its end, none
    headers                                             the same

Nothing is made for an append but its future, and the usual one, a payload and nothing else, touches
only the columns that every append has. Whatever is done to many of them is done to whole columns.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, chain, repeat, takewhile
from math import inf
from typing import Any

from varlog.base.errors import VarlogError
from varlog.base.ids import Glsn, StreamId
from varlog.client.columns import Columns, entries_cost
from varlog.client.entry import Ack, single_acks
from varlog.client.limits import GATHER_BYTES
from varlog.wire.batch import Headers


class Appends:
    """Appends that can travel as one batch, in order of arrival."""

    __slots__ = ("compress", "cost", "counts", "data", "deadlines", "futures", "headers", "keys", "payloads")

    def __init__(self, compress: bool) -> None:
        self.compress = compress
        self.cost = 0
        """Bytes, with what they cost besides."""
        self.futures: list[asyncio.Future[Ack]] = []
        self.deadlines: list[float] = []
        self.counts: list[int] = []
        self.payloads: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.data: bytes | None = None
        """Encoded already, in place of the columns: a single append, too large to travel with others."""

    @property
    def entries(self) -> int:
        """How many they have."""
        return len(self.futures) - len(self.counts) + sum(self.counts)

    def spans(self) -> "Iterator[tuple[asyncio.Future[Ack], int, int]]":
        """Of each append the future, the index of its first entry, and how many it has."""
        counts = list(self._all_counts())
        return zip(self.futures, accumulate(counts, initial=0), counts, strict=False)

    def _all_counts(self) -> Iterator[int]:
        return chain(self.counts, repeat(1, len(self.futures) - len(self.counts)))

    # ------------------------------------------------------------ coming and going

    def add(self, columns: Columns, data: bytes | None, deadline: float, future: "asyncio.Future[Ack]") -> None:
        """Behind the others."""
        count = len(columns.payloads)
        if count > 1:
            self.counts += [*repeat(1, len(self.futures) - len(self.counts)), count]
        self.futures.append(future)
        self.deadlines.append(deadline)
        self.cost += columns.cost
        self.data = data
        if data is not None:
            return
        if columns.keys is not None:
            _pad(self.keys, len(self.payloads), None)
            self.keys += columns.keys
        if columns.headers is not None:
            _pad(self.headers, len(self.payloads), {})
            self.headers += columns.headers
        self.payloads += columns.payloads

    def cut(self, most: int) -> "Appends":
        """The first so many, which are here no more."""
        first = Appends(self.compress)
        entries = sum(self.counts[:most]) + max(0, most - len(self.counts))
        first.futures = _cut(self.futures, most)
        first.deadlines = _cut(self.deadlines, most)
        first.counts = _cut(self.counts, most)
        first.payloads = _cut(self.payloads, entries)
        first.keys = _cut(self.keys, entries)
        first.headers = _cut(self.headers, entries)
        first.cost = entries_cost(first.payloads, first.keys, first.headers)
        self.cost -= first.cost
        return first

    def fitting(self, entries: int) -> int:
        """How many of the first have no more entries than that together; one at least."""
        ends = accumulate(self._all_counts())
        return max(1, sum(1 for _ in takewhile(lambda end: end <= entries, ends)))

    @property
    def any_awaited(self) -> bool:
        """Whether somebody waits for any."""
        return not all(map(asyncio.Future.done, self.futures))

    def awaited(self) -> "Appends":
        """Without those that nobody waits for any more."""
        if not any(map(asyncio.Future.done, self.futures)):
            return self
        left = Appends(self.compress)
        if self.data is None:
            columns = self.columns()
            for (future, index, count), deadline in zip(self.spans(), self.deadlines, strict=True):
                if not future.done():
                    left.add(columns.part(index, count), None, deadline, future)
        return left

    def columns(self) -> Columns:
        """All entries, as they are encoded."""
        entries = len(self.payloads)
        if self.keys:
            _pad(self.keys, entries, None)
        if self.headers:
            _pad(self.headers, entries, {})
        return Columns(self.payloads, self.keys or None, self.headers or None, self.cost)

    def take_columns(self) -> tuple[list[bytes], list[bytes | None] | None, list[Headers] | None]:
        """The same, and they are here no more."""
        taken = (self.payloads, None, None) if not self.keys and not self.headers else self.columns()[:3]
        self.payloads, self.keys, self.headers = [], [], []
        return taken

    def set_columns(self, columns: Columns) -> None:
        """What the entries are made of, given back."""
        self.payloads, self.keys, self.headers = columns.payloads, columns.keys or [], columns.headers or []

    # ------------------------------------------------------------ telling those who wait

    def acked(self, first: Glsn, stream: StreamId) -> None:
        """They are in the log, from position `first` on."""
        acks = single_acks(first, len(self.futures), stream) if not self.counts else self._acks(first, stream)
        for future, ack in zip(self.futures, acks, strict=True):
            if not future.done():
                future.set_result(ack)

    def _acks(self, first: Glsn, stream: StreamId) -> Iterator[Ack]:
        for _, index, count in self.spans():
            yield Ack(Glsn(first + index), Glsn(first + index + count - 1), stream)

    def fail(self, error: Callable[[int, int], VarlogError], now: float = inf) -> float:
        """End those that are due at `now`, each with what `error` makes of its index and count.

        Returns the earliest deadline of the others.
        """
        following = inf
        for (future, index, count), deadline in zip(self.spans(), self.deadlines, strict=True):
            if future.done():
                continue
            if deadline <= now:
                future.set_exception(error(index, count))
            else:
                following = min(following, deadline)
        return following

    def join(self, index: int, count: int, deadline: float) -> "asyncio.Future[Ack] | None":
        """Wait with whoever waits for just these entries, or in place of him if he gave up; until `deadline` at least.

        Not for ever: what somebody waits for is kept, and asked for.
        """
        for at, (future, *span) in enumerate(self.spans()):
            if span == [index, count]:
                if future.done():
                    future = self.futures[at] = asyncio.get_running_loop().create_future()
                    future.add_done_callback(_retrieve)
                self.deadlines[at] = max(self.deadlines[at], deadline)
                return future
        return None


class Lane:
    """Appends for any stream, or for a chosen one, in order of arrival."""

    __slots__ = ("before", "expect", "last", "new_future", "scheduled", "stream")

    def __init__(
        self, stream: int | None, new_future: "Callable[[], asyncio.Future[Ack]]", expect: int | None = None
    ) -> None:
        self.stream = None if stream is None else StreamId(stream)
        self.expect = expect
        """Of a single append: the only position that it may get."""
        self.new_future = new_future
        """That of the loop; looked up once, not for every append."""
        self.before: deque[Appends] = deque()
        """Those that take no more."""
        self.last = Appends(False)
        """To which appends are added; perhaps there are none yet."""
        self.scheduled = False

    def __bool__(self) -> bool:
        """Whether any append waits."""
        return bool(self.before or self.last.futures)

    def __len__(self) -> int:
        """How many do."""
        return sum(len(appends.futures) for appends in self)

    def __iter__(self) -> Iterator[Appends]:
        return chain(self.before, (self.last,))

    @property
    def full(self) -> bool:
        """Whether what would be taken next is a batch to which not much can be added."""
        return bool(self.before) or self.last.cost >= GATHER_BYTES // 2

    def add(
        self, columns: Columns, data: bytes | None, compress: bool, deadline: float, future: "asyncio.Future[Ack]"
    ) -> None:
        """Behind all others, and with the last of them if they fit one batch."""
        last = self.last
        if data is not None or compress != last.compress or last.cost + columns.cost > GATHER_BYTES:
            last = self._begin(compress)
        last.add(columns, data, deadline, future)
        if data is not None:
            self._begin(False)

    def take(self, most: int, entries: int | None = None) -> Appends:
        """The first of those that wait, as many as travel as one batch; of so many entries, if that is limited."""
        first = self.before[0] if self.before else self.last
        if entries is not None:
            most = min(most, first.fitting(entries))
        if len(first.futures) > most:
            return first.cut(most)
        if self.before:
            return self.before.popleft()
        self.last = Appends(False)
        return first

    def put_back(self, appends: Appends) -> None:
        """Before all others."""
        self.before.appendleft(appends)

    def take_all(self) -> list[Appends]:
        found = list(self)
        self.before.clear()
        self.last = Appends(False)
        return found

    def _begin(self, compress: bool) -> Appends:
        if self.last.futures:
            self.before.append(self.last)
        self.last = Appends(compress)
        return self.last


def _retrieve(future: "asyncio.Future[Ack]") -> None:
    """Whoever asked may have given up waiting; then nobody else looks at the error."""
    if not future.cancelled():
        future.exception()


def _pad(column: list[Any], length: int, nothing: Any) -> None:
    column += repeat(nothing, length - len(column))


def _cut(column: list[Any], at: int) -> list[Any]:
    head = column[:at]
    del column[:at]
    return head
