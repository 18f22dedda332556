"""The merge of a log's streams into one order, by ranges of positions.

    stream 1   [1 2 3]          [6 7]  ...
    stream 2           [4 5]                [9]
    stream 3                         [8]
               ----------------------------------> GLSN
    next ------------^          everything below it was taken

Positions are dense: each belongs to exactly one stream, so the next one lies at the front of exactly
one stream's queue or has not arrived yet. Nothing is compared: the fronts are kept by position, and
the next range is one look-up, whatever the number of streams and of entries in the range.

Invariants: I3 (what is taken has no gap), I9 (in order, none twice). A range may begin before `next`
only at the start of the merge (its batch holds entries that were not asked for): its index is cut.
"""

from collections import deque
from math import inf
from typing import Generic, NamedTuple, TypeVar

from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn

Item = TypeVar("Item")


class Piece(NamedTuple, Generic[Item]):
    """Entries `[low, high)` of an item; the first of them has position `glsn`."""

    stream: int
    item: Item
    glsn: Glsn
    low: int
    high: int


class Merge(Generic[Item]):
    """Ranges in, per stream in order; pieces out, in the order of the log."""

    def __init__(self, start: Glsn, stop: Glsn | None = None) -> None:
        self.next = start
        """The position that is taken next."""
        self.stop = stop
        """One past the last position wanted; may be set or lowered later."""
        self.known_end = start
        """One past the highest position that any stream has shown."""
        self._queues: dict[int, deque[tuple[Glsn, int, Item]]] = {}
        self._ends: dict[int, int] = {}
        self._fronts: dict[int, int] = {}
        """Position of the first entry still to be taken from a queue -> its stream."""

    @property
    def finished(self) -> bool:
        return self.stop is not None and self.next >= self.stop

    def empty(self, stream: int) -> bool:
        """Whether nothing of this stream waits to be taken."""
        return not self._queues.get(stream)

    def feed(self, stream: int, glsn: Glsn, count: int, item: Item) -> bool:
        """The next range of a stream. False: all of it lies before what is wanted, and it was dropped."""
        end = glsn + count
        if glsn < self._ends.get(stream, 0) or count <= 0:
            raise Corrupt(f"stream {stream} shows positions {glsn} to {end - 1} behind {self._ends.get(stream, 0) - 1}")
        self._ends[stream] = end
        if end > self.known_end:
            self.known_end = Glsn(end)
        if end <= self.next:
            return False
        queue = self._queues.setdefault(stream, deque())
        queue.append((glsn, count, item))
        if len(queue) == 1:
            self._show(stream, glsn)
        return True

    def take(self) -> list[Piece[Item]]:
        """Everything that is ready, in order."""
        pieces: list[Piece[Item]] = []
        stop = inf if self.stop is None else self.stop
        while self.next < stop and (stream := self._fronts.pop(self.next, None)) is not None:
            queue = self._queues[stream]
            glsn, count, item = queue.popleft()
            low = self.next - glsn
            high = count if glsn + count <= stop else int(stop) - glsn
            pieces.append(Piece(stream, item, self.next, low, high))
            self.next = Glsn(glsn + high)
            if queue:
                self._show(stream, queue[0][0])
        if self._fronts and (front := min(self._fronts)) < self.next:
            raise Corrupt(f"stream {self._fronts[front]} holds position {front}, which another stream held too")
        return pieces

    def _show(self, stream: int, glsn: Glsn) -> None:
        front = max(self.next, glsn)
        other = self._fronts.setdefault(front, stream)
        if other != stream:
            raise Corrupt(f"streams {other} and {stream} both hold position {front}")


class InOrder(Generic[Item]):
    """One stream alone, with the same face as `Merge`: there is nothing to wait for but what comes next."""

    def __init__(self, start: Glsn, stop: Glsn | None = None) -> None:
        self.next = start
        self.stop = stop
        self.known_end = start
        self._queue: deque[tuple[int, Glsn, int, Item]] = deque()
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether the stream was seen to reach the stop."""
        return self.stop is not None and self.next >= self.stop

    def empty(self, stream: int) -> bool:
        return not self._queue

    def feed(self, stream: int, glsn: Glsn, count: int, item: Item) -> bool:
        end = Glsn(glsn + count)
        if count <= 0 or (self._begun and glsn < self.known_end < end):
            raise Corrupt(f"stream {stream} shows positions {glsn} to {end - 1} behind {self.known_end - 1}")
        if end <= self.known_end:
            return False
        self._queue.append((stream, glsn, count, item))
        self.known_end = end
        self._begun = True
        return True

    def take(self) -> list[Piece[Item]]:
        pieces: list[Piece[Item]] = []
        while self._queue and not self.finished:
            stream, glsn, count, item = self._queue.popleft()
            low = max(0, self.next - glsn)
            high = count if self.stop is None else max(0, min(count, self.stop - glsn))
            if low < high:
                pieces.append(Piece(stream, item, Glsn(glsn + low), low, high))
            self.next = Glsn(glsn + count)
        return pieces
