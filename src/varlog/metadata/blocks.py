"""Bytes of a file, all of them or an error: a call of the system may do less than asked, and tells only by a count."""

import errno
import os

STEP_BYTES = 1 << 20
"""Most bytes in memory at once."""


def read_fully(fd: int, size: int, offset: int) -> bytes:
    """So many bytes, which must be there: after fewer comes the file's end, or a bad place the next call tells of."""
    parts: list[bytes] = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError(errno.EIO, f"it ends at {offset}, {size} bytes too early")
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


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
    start = os.fstat(fd).st_size
    volume = os.fstatvfs(fd)
    # Others need not run out of space meanwhile. A volume without a limit says that it has no blocks at all.
    if volume.f_blocks and start + volume.f_bavail * volume.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for at in range(start, size, STEP_BYTES):
        write_fully(fd, bytes(min(STEP_BYTES, size - at)), at)


def write_again(fd: int) -> None:
    """Write a file's bytes over themselves, and sync them.

    What a process that died, or whose sync failed, has left in the page cache can be read, and may yet be
    nowhere else, though it looks clean. After this it is on disk, or there is an error.
    """
    size = os.fstat(fd).st_size
    for at in range(0, size, STEP_BYTES):
        write_fully(fd, read_fully(fd, min(STEP_BYTES, size - at), at), at)
    os.fsync(fd)
