"""Which batches of which producer a stream holds, so that a retry is recognised.

The table is derived from the stored batches and from nothing else. A producer's sequences are dense,
so the last ones are kept as a first sequence and a row (slot, count) for each that follows.

    first                          next
      |  (slot, count) (slot, count) |      at most PRODUCER_WINDOW rows

A snapshot is taken for the slots below a given one. It need not be what the table was when the stream
ended there: rows that have left a window since are missing from it. Whoever loads it goes on with all
batches from that slot on, and these push the same rows out again: the table comes out the same. For the same
reason it may be taken piece by piece, while more batches come.
"""

from array import array
from collections import OrderedDict
from struct import Struct

from varlog.base import limits
from varlog.base.errors import Corrupt
from varlog.base.ids import Slot
from varlog.runtime.give_way import give_way
from varlog.storage.index import column_bytes, column_from
from varlog.wire.batch import NO_PRODUCER
from varlog.wire.frame import Buffer

ROWS_PER_STREAM = 1 << 20
"""Rows of all windows together; beyond it, producers that have been silent longest keep only their last row."""

_SLACK = 32
"""Rows a window may have beyond its size, so that the front is cut off seldom."""

TURN_PRODUCERS = 1 << 11
"""Taken into a snapshot before others have their turn: of all that a stream remembers it takes a tenth of a second."""

_ENTRY = Struct("<16sQQ")
"""Producer, first sequence, number of rows."""


class _Window:
    """The last batches of one producer."""

    __slots__ = ("first", "rows")

    def __init__(self, first: int) -> None:
        self.first = first
        self.rows = array("Q")
        """slot, count, slot, count, ..."""

    @property
    def next(self) -> int:
        return self.first + len(self.rows) // 2

    def cut_front(self, keep: int) -> int:
        """Forget all but the last `keep` rows; gives how many were forgotten."""
        excess = len(self.rows) // 2 - keep
        if excess <= 0:
            return 0
        del self.rows[: 2 * excess]
        self.first += excess
        return excess

    def below(self, end: int) -> int:
        """How many rows, from the first on, have a slot below `end`."""
        count = len(self.rows) // 2
        while count and self.rows[2 * count - 2] >= end:
            count -= 1
        return count


class ProducerTable:
    """Producers in the order of their last batch, the one silent longest first."""

    def __init__(self) -> None:
        self._windows: OrderedDict[bytes, _Window] = OrderedDict()
        self._rows = 0

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def snapshot_bytes(self) -> int:
        """Of a snapshot of all of it, about."""
        return _ENTRY.size * len(self._windows) + 16 * self._rows

    def next_sequence(self, producer: bytes) -> int:
        """The sequence expected next; 0 for one that is not known."""
        window = self._windows.get(producer)
        return window.next if window is not None else 0

    def first_sequence(self, producer: bytes) -> int:
        """The oldest that is remembered; 0 for a producer that is not known."""
        window = self._windows.get(producer)
        return window.first if window is not None else 0

    def begin(self, producer: bytes, sequence: int) -> None:
        """Expect this sequence next of a producer, or a later one if the stream has it already.

        He sent the others elsewhere, to streams that have ended. Forgotten unless a batch follows.
        """
        window = self._windows.get(producer)
        if producer != NO_PRODUCER and (window is None or window.next < sequence):
            self._replace(producer, sequence)
            self._forget_silent()

    def _replace(self, producer: bytes, sequence: int) -> _Window:
        """What is remembered of a producer is not dense with what comes: that begins anew."""
        before = self._windows.get(producer)
        self._rows -= len(before.rows) // 2 if before is not None else 0
        window = self._windows[producer] = _Window(sequence)
        return window

    def _forget_silent(self) -> None:
        if len(self._windows) > limits.PRODUCERS_PER_STREAM:
            self._rows -= len(self._windows.popitem(last=False)[1].rows) // 2

    def find(self, producer: bytes, sequence: int) -> tuple[Slot, int] | None:
        """Slot and count of a batch, if it is still remembered."""
        window = self._windows.get(producer)
        if window is None or not window.first <= sequence < window.next:
            return None
        row = 2 * (sequence - window.first)
        return Slot(window.rows[row]), window.rows[row + 1]

    def oldest(self, producer: bytes) -> Slot:
        """Slot of the oldest batch that is remembered; 0 for a producer that is not known."""
        window = self._windows.get(producer)
        return Slot(window.rows[0]) if window is not None and window.rows else Slot(0)

    def record(self, producer: bytes, sequence: int, slot: Slot, count: int) -> None:
        """A batch was stored. One that is known already changes nothing."""
        if producer == NO_PRODUCER:
            return
        window = self._windows.get(producer)
        if window is None or sequence > window.next:
            window = self._replace(producer, sequence)
        self._windows.move_to_end(producer)
        rows = window.rows
        if sequence == window.first + len(rows) // 2:
            rows.append(slot)
            rows.append(count)
            self._rows += 1
            if len(rows) > 2 * (limits.PRODUCER_WINDOW + _SLACK):
                self._rows -= window.cut_front(limits.PRODUCER_WINDOW)
        if len(self._windows) > limits.PRODUCERS_PER_STREAM:
            self._forget_silent()
        if self._rows > ROWS_PER_STREAM:
            self._shrink()

    def _shrink(self) -> None:
        """Take rows from those silent longest until a part is free again."""
        for window in self._windows.values():
            self._rows -= window.cut_front(1)
            if self._rows <= ROWS_PER_STREAM - ROWS_PER_STREAM // 8:
                return

    def truncate(self, end: Slot) -> None:
        """Batches at or beyond `end` are not part of the log."""
        for producer, window in list(self._windows.items()):
            keep = window.below(end)
            self._rows -= len(window.rows) // 2 - keep
            del window.rows[2 * keep :]
            if not window.next:
                del self._windows[producer]

    # ------------------------------------------------------------ snapshots

    async def snapshot(self, end: Slot) -> bytes:
        """What is remembered of batches below `end`, all of which are recorded."""
        parts: list[bytes] = []
        producers, windows = list(self._windows), list(self._windows.values())
        for number, (producer, window) in enumerate(zip(producers, windows, strict=True), 1):
            if not number % TURN_PRODUCERS:
                await give_way()
            keep = window.below(end)
            if keep:
                parts.append(_ENTRY.pack(producer, window.first, keep))
                parts.append(column_bytes(window.rows[: 2 * keep]))
        return b"".join(parts)

    @classmethod
    def load(cls, data: Buffer) -> "ProducerTable":
        table = cls()
        view = memoryview(data)
        at = 0
        while at < len(view):
            if at + _ENTRY.size > len(view):
                raise Corrupt("a snapshot of producers is cut off")
            producer, first, rows = _ENTRY.unpack_from(view, at)
            at += _ENTRY.size
            end = at + 16 * rows
            if end > len(view):
                raise Corrupt("a snapshot of producers is cut off")
            window = table._windows[producer] = _Window(first)
            window.rows = column_from(view[at:end])
            table._rows += rows
            at = end
        return table
