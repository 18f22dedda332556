"""The `sequencer` ordering: positions are given out first, and clients write them down the chain of members.

    grant(n)  ->  positions  1 2 3 4 | 5 6 7 8 | 9 ...         unit of 4, two streams
    stream 0      slots      0 1 2 3           | 4 5 6 7
    stream 1                           0 1 2 3

Where a position lies follows from its number alone (`Stripes`), so nobody has to be asked. The head of a chain
decides what is at a slot, once: the batch of whoever was granted the position or, when he stays away for too long,
junk. What the last member has all members have: it is in the log. Slots of a stream are taken without a gap, by
every member, so what a member has is told by one number, and each has a beginning of what the one before it has.

When the segment is sealed a slot may have been acknowledged only if every member that answered has it. The segment
ends behind the last such position of any stream (`end_of`). In the other streams there may be slots before that end
which no member that answered has (`junk_from`): nobody can have been answered for these. They are filled.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.base.ranges import Binding

DEFAULT_UNIT = 4096
"""Positions that go to one stream before the next has its turn."""


class Stripes(NamedTuple):
    """How the positions of a segment lie in its streams."""

    base: Glsn
    """The segment's first position."""
    unit: int
    streams: int

    def place(self, glsn: int) -> tuple[int, Slot]:
        """The stream, by its index in the segment, and the slot of a position."""
        row, within = divmod(glsn - self.base, self.unit * self.streams)
        index, rest = divmod(within, self.unit)
        return index, Slot(row * self.unit + rest)

    def glsn(self, index: int, slot: int) -> Glsn:
        """The position of a slot."""
        row, rest = divmod(slot, self.unit)
        return Glsn(self.base + (row * self.streams + index) * self.unit + rest)

    def slots(self, index: int, end: int) -> Slot:
        """How many slots of a stream have positions before `end`."""
        row, within = divmod(max(0, end - self.base), self.unit * self.streams)
        return Slot(row * self.unit + min(self.unit, max(0, within - index * self.unit)))

    def room(self, glsn: int) -> int | None:
        """How many positions from this one on lie in the same stripe; None: no limit, as there is one stream."""
        return None if self.streams == 1 else self.unit - (glsn - self.base) % self.unit

    def bindings(self, index: int, start: int, end: int) -> Iterator[Binding]:
        """The positions of slots `[start, end)` of a stream, in pieces that are continuous."""
        while start < end:
            stop = end if self.streams == 1 else min(end, start - start % self.unit + self.unit)
            yield Binding(Slot(start), self.glsn(index, start), stop - start)
            start = stop


def first_open(stripes: Stripes, tails: Sequence[int]) -> Glsn:
    """The first position that is not there, if the streams, in their order, have so many slots each."""
    return min(stripes.glsn(index, tail) for index, tail in enumerate(tails))


def end_of(stripes: Stripes, acknowledged: Sequence[int]) -> Glsn:
    """One past the last position of a segment; per stream how many slots may have been acknowledged."""
    ends = [stripes.glsn(index, slots - 1) + 1 for index, slots in enumerate(acknowledged) if slots]
    return Glsn(max(ends, default=stripes.base))


def junk_from(end: Slot, tails: Mapping[NodeId, Slot]) -> Slot | None:
    """From which slot on a stream that ends at `end` is junk, by the tails of the members that were sealed."""
    longest = max(tails.values())
    return longest if longest < end else None
