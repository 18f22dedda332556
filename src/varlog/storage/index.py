"""The columns by which positions in one data file are found: a sparse index, and the bindings of its slots.

The index has an entry about every 64 KiB of the file, so a look-up is a bisection and a walk over the
record headers of one such stretch. Each entry carries the largest batch time of its own stretch (not
the maximum since the file's beginning: trimming takes batches off the front, and a prefix maximum
would go on counting them), so a search by time skips every stretch that cannot hold the answer.

Bindings are kept as the points where the difference between GLSN and slot changes: what the cuts of a
lone stream bind is one row.
"""

import sys
from array import array
from bisect import bisect_right

from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding
from varlog.wire.frame import Buffer

INDEX_EVERY_BYTES = 64 << 10
"""Bytes of a file between two entries of its index."""


class SparseIndex:
    """Where batches lie in one file."""

    __slots__ = ("batches", "max_times", "offsets", "slots")

    def __init__(self) -> None:
        self.slots = array("Q")
        """First slot of each stretch."""
        self.offsets = array("Q")
        """Where its first record lies."""
        self.max_times = array("Q")
        """Largest batch time in it."""
        self.batches = 0

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, slot: int, offset: int, time_us: int) -> None:
        """A batch, in file order."""
        self.batches += 1
        if not self.offsets or offset - self.offsets[-1] >= INDEX_EVERY_BYTES:
            self.slots.append(slot)
            self.offsets.append(offset)
            self.max_times.append(time_us)
        elif time_us > self.max_times[-1]:
            self.max_times[-1] = time_us

    def stretch_of(self, slot: int) -> int:
        """The number of the stretch in which the batch with `slot` begins."""
        return bisect_right(self.slots, slot) - 1

    def extent(self, stretch: int, file_end: int) -> tuple[int, int]:
        """Offsets `[start, end)` of a stretch."""
        following = stretch + 1
        return self.offsets[stretch], self.offsets[following] if following < len(self.offsets) else file_end

    @property
    def max_time(self) -> int:
        return max(self.max_times, default=0)


class BindingColumn:
    """GLSNs of the slots `[start, end)` of one file, as far as they are bound."""

    __slots__ = ("end", "glsns", "slots", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.slots = array("Q")
        self.glsns = array("Q")

    def add(self, binding: Binding) -> None:
        """The next slots, continuing where the column ends."""
        slot, glsn, count = binding
        if slot != self.end:
            invariant(False, "bindings of a file are added in order", binding=binding, end=self.end)
        if not self.slots or self.glsns[-1] + slot - self.slots[-1] != glsn:
            self.slots.append(slot)
            self.glsns.append(glsn)
        self.end = slot + count

    def add_part(self, binding: Binding, limit: int) -> None:
        """As much of a binding as lies in `[self.end, limit)`."""
        slot, glsn, count = binding
        if slot == self.end and slot + count <= limit:  # the usual case
            self.add(binding)
            return
        low = max(slot, self.end)
        high = min(slot + count, limit)
        if low < high:
            self.add(Binding(Slot(low), Glsn(glsn + low - slot), high - low))

    def glsn_of(self, slot: int) -> int:
        """The GLSN of a slot; at the end of the column: what it would be if the last row went on."""
        row = bisect_right(self.slots, slot) - 1
        return self.glsns[row] + slot - self.slots[row]

    @property
    def glsn_end(self) -> int:
        """One past the last GLSN; 0 if nothing is bound."""
        return self.glsn_of(self.end) if self.slots else 0

    def first_at_or_after(self, glsn: int) -> int:
        """The first slot whose GLSN is `glsn` or greater; the end if there is none."""
        row = bisect_right(self.glsns, glsn) - 1
        if row < 0:
            return self.start
        slot = self.slots[row] + glsn - self.glsns[row]
        return min(slot, self._row_end(row))

    def ranges(self, start: int, end: int) -> list[Binding]:
        """What covers exactly `[start, end)`, which must be bound."""
        invariant(self.start <= start and end <= self.end, "bound slots only", start=start, end=end, bound=self.end)
        found: list[Binding] = []
        row = bisect_right(self.slots, start) - 1
        while start < end:
            stop = min(self._row_end(row), end)
            found.append(Binding(Slot(start), Glsn(self.glsns[row] + start - self.slots[row]), stop - start))
            start, row = stop, row + 1
        return found

    def _row_end(self, row: int) -> int:
        return self.slots[row + 1] if row + 1 < len(self.slots) else self.end


class Columns:
    """All that is known about positions in one file."""

    __slots__ = ("bindings", "index")

    def __init__(self, index: SparseIndex, bindings: BindingColumn) -> None:
        self.index = index
        self.bindings = bindings

    @property
    def memory_bytes(self) -> int:
        """About what it takes; what a bounded cache counts."""
        return 8 * (3 * len(self.index) + 2 * len(self.bindings.slots)) + 512


def column_bytes(column: "array[int]") -> bytes:
    """Little endian on any machine."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def column_from(data: Buffer) -> "array[int]":
    if len(data) % 8:
        raise Corrupt(f"a column of {len(data)} bytes")
    column = array("Q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
