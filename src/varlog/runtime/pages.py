"""The page cache behind what one disk writes: dropped some way behind the end, where new pages are dear.

Every write takes fresh pages of the kernel's cache, and on most machines they cost next to nothing. On a virtual
one whose host takes free memory back, each page that was not used lately has to be fetched from the host again: ten
times as long as copying into one that is there, half of all the time that large appends take. There the
oldest written pages are let go as new ones are wanted, so that the same memory is used again and again:

    file   |== dropped ==|======= KEEP_BYTES, for readers that are not far behind =======|-> written next
                         in steps of STEP_BYTES

Whether it pays is tried: the processor time of large writes, for each byte, while everything is kept, and then while
the oldest is let go. If that took clearly less it stays so, for nothing but using up all memory again could tell
whether it has changed. If not, the kernel keeps all for readers, and it is tried again after much more was written:
memory that was only just freed is cheap for a while.
"""

from collections import deque
from typing import Protocol

STEP_BYTES = 8 << 20
"""What is let go at a time."""

KEEP_BYTES = 64 << 20
"""Of a disk's newest writes, kept for readers."""

TRIAL_BYTES = 2 * KEEP_BYTES
"""Written before something is concluded from what it took."""

LARGE_BYTES = 256 << 10
"""What is written at once must be so much, for copying to be most of its cost."""

WORTH = 0.85
"""Of the time that writes took before, at most, and it stays."""

FIRST_REST_BYTES = 512 << 20
LONGEST_REST_BYTES = 64 << 30
"""Written before the next trial; twice as much each time."""


class Written(Protocol):
    """A file that is written from its beginning to its end."""

    def let_go(self, start: int, end: int) -> None:
        """Drop what the cache has of `[start, end)`; it is on disk."""
        ...


class PageCache:
    """Of one disk. `wrote` is called by its thread, the rest on the event loop."""

    def __init__(self) -> None:
        self.lets_go = False
        self.settled = False
        """Nothing is to be found out any more."""
        self._ranges: deque[tuple[Written, int, int]] = deque()
        """Oldest first. One that is forgotten while all is kept is left to the kernel."""
        self._bytes = 0
        self._written = 0
        self._seconds = 0.0
        """Since the last conclusion, of large writes."""
        self._kept_cost = 0.0
        """Seconds a byte, while all was kept."""
        self._warming = False
        """Letting go has only begun: what is freed is not yet what is used."""
        self._rest = 0
        self._next_rest = FIRST_REST_BYTES

    def wrote(self, size: int, seconds: float) -> None:
        """Writing so many bytes took so much of the processor."""
        if size < LARGE_BYTES or self.settled:
            return
        self._written += size
        self._seconds += seconds
        if self._written >= TRIAL_BYTES:
            written, cost = self._written, self._seconds / self._written
            self._written, self._seconds = 0, 0.0
            self._conclude(written, cost)

    def _conclude(self, written: int, cost: float) -> None:
        if not self.lets_go:
            self._kept_cost = cost
            self._rest -= written
            self.lets_go = self._warming = self._rest <= 0
        elif self._warming:
            self._warming = False
        elif cost <= WORTH * self._kept_cost:
            self.settled = True
        else:
            self.lets_go = False
            self._rest = self._next_rest
            self._next_rest = min(2 * self._next_rest, LONGEST_REST_BYTES)

    def passed(self, file: Written, start: int, end: int) -> None:
        """This part of a file was written, and writing goes on behind it."""
        self._ranges.append((file, start, end))
        self._bytes += end - start
        while self._bytes > KEEP_BYTES:
            oldest, start, end = self._ranges.popleft()
            self._bytes -= end - start
            if self.lets_go:
                oldest.let_go(start, end)

    def closes(self, file: Written) -> None:
        """A file is about to be closed: nothing of it could be let go later."""
        ours = [each for each in self._ranges if each[0] is file]
        if not ours:
            return
        self._ranges = deque(each for each in self._ranges if each[0] is not file)
        self._bytes -= sum(end - start for _, start, end in ours)
        if self.lets_go:
            file.let_go(ours[0][1], ours[-1][2])
