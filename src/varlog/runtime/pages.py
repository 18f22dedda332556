"""The page cache behind what one disk writes: dropped some way behind the end, where new pages are dear.

Every write takes fresh pages of the kernel's cache, and on most machines they cost next to nothing. On a virtual
one whose host takes free memory back, each page that was not used lately has to be fetched from the host again: ten
times as long as copying into one that is there, half of all the time that large appends take. There the
oldest written pages are let go as new ones are wanted, so that the same memory is used again and again:

    file   |== dropped ==|======= KEEP_BYTES, for readers that are not far behind =======|-> written next
                         in steps of STEP_BYTES

Whether pages are dear is seen from the processor time that writes take. Once they were, that stays so: nothing but
using up all memory again could tell whether it has changed.
"""

from collections import deque
from typing import Protocol

STEP_BYTES = 8 << 20
"""What is let go at a time."""

KEEP_BYTES = 64 << 20
"""Of a disk's newest writes, kept for readers."""

FIXED_SECONDS = 100e-6
DEAR_SECONDS_PER_BYTE = 1e-9
"""A write that takes more processor time than this had to wait for pages: four microseconds for one. Copying into
pages that are there takes a quarter of it."""

DEAR_WRITES = 16
"""So many more of those than of others, and pages are dear."""


class Written(Protocol):
    """A file that is written from its beginning to its end."""

    def let_go(self, start: int, end: int) -> None:
        """Drop what the cache has of `[start, end)`; it is on disk."""
        ...


class PageCache:
    """Of one disk. `wrote` is called by its thread, the rest on the event loop."""

    def __init__(self) -> None:
        self.dear = False
        self._balance = 0
        self._ranges: deque[tuple[Written, int, int]] = deque()
        """Oldest first. One that is forgotten before pages turn out to be dear is left to the kernel."""
        self._bytes = 0

    def wrote(self, size: int, seconds: float) -> None:
        """Writing so many bytes took so much of the processor."""
        if seconds > FIXED_SECONDS + size * DEAR_SECONDS_PER_BYTE:
            self._balance += 1
            self.dear = self.dear or self._balance >= DEAR_WRITES
        elif self._balance:
            self._balance -= 1

    def passed(self, file: Written, start: int, end: int) -> None:
        """This part of a file was written, and writing goes on behind it."""
        self._ranges.append((file, start, end))
        self._bytes += end - start
        while self._bytes > KEEP_BYTES:
            oldest, start, end = self._ranges.popleft()
            self._bytes -= end - start
            if self.dear:
                oldest.let_go(start, end)

    def closes(self, file: Written) -> None:
        """A file is about to be closed: nothing of it could be let go later."""
        ours = [each for each in self._ranges if each[0] is file]
        if not ours:
            return
        self._ranges = deque(each for each in self._ranges if each[0] is not file)
        self._bytes -= sum(end - start for _, start, end in ours)
        if self.dear:
            file.let_go(ours[0][1], ours[-1][2])
