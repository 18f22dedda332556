"""Bytes of a file, all of them or an error: a call of the system may do less than asked, and tells only by a count."""

import errno
import os

STEP_BYTES = 1 << 20
"""Most bytes in memory at once."""


def write_fully(fd: int, data: bytes, offset: int) -> None:
    """Write all of it; not synced."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest, offset = rest[written:], offset + written


def fill(fd: int, size: int) -> None:
    """Make the file so long with zeros, each written, so that later writes find their blocks; not synced."""
    for at in range(os.fstat(fd).st_size, size, STEP_BYTES):
        write_fully(fd, bytes(min(STEP_BYTES, size - at)), at)
