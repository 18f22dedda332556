"""A node whose disk fails: the program itself, its files real, but its next sync returns EIO when a signal says so.

python -m tests.cluster.failing_disk node start ...

SIGUSR1: the next sync of a file fails with EIO, as one does whose blocks the disk cannot write.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from varlog.cli.main import main as varlog
from varlog.wire.frame import Buffer

_wanted = 0
_sync = os.fdatasync
_write = os.pwritev


def _arm(number: int, frame: FrameType | None) -> None:
    global _wanted
    _wanted += 1


def _fail_if_wanted() -> None:
    global _wanted
    if _wanted:
        _wanted -= 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def _failing_sync(descriptor: int) -> None:
    _fail_if_wanted()
    _sync(descriptor)


def _failing_write(descriptor: int, buffers: Sequence[Buffer], offset: int, flags: int = 0) -> int:
    """With RWF_DSYNC it is a sync, too."""
    if flags & os.RWF_DSYNC:
        _fail_if_wanted()
    return _write(descriptor, buffers, offset, flags)


def main() -> int:
    signal.signal(signal.SIGUSR1, _arm)
    os.fdatasync = _failing_sync  # type: ignore[assignment]
    os.pwritev = _failing_write  # type: ignore[assignment]
    return varlog(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
