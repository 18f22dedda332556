"""Folders for a bench, on a disk that is at rest.

A file system that tells its disk of space it does not need any more does so some time after files were removed, and
syncs of others wait for that, up to some hundred milliseconds, for a minute. So what a bench has written is removed
when all of it has ended, not between its rounds; and before it begins it waits until what was removed before, by
whomever, is done with. A bench of several parts removes what each has written when that has ended: the next one waits.
"""

import atexit
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

STALL_S = 0.02
"""A sync of so long is one that waited for something else,"""
REST_S = 4.0
"""and without one for so long the disk is at rest."""
MOST_S = 120.0
"""After so long the bench begins nevertheless."""

_made: list[Path] = []


def scratch(folder: Path | None = None) -> Path:
    """A new one, below `folder` or where temporary files lie."""
    made = Path(tempfile.mkdtemp(dir=folder, prefix="bench-"))
    _made.append(made)
    return made


@atexit.register
def clear() -> None:
    """Remove all there is: nobody measures for some time."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


def need(folder: Path, gigabytes: int) -> None:
    """End the bench now if the disk has not so much room, rather than in the middle of it."""
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        sys.exit(f"up to {gigabytes} GB are written to {folder}, and {free:.0f} GB are free there: another --folder?")


def wait_for_rest(folder: Path) -> None:
    """Until the disk is at rest; says so if that takes long, or does not come."""
    begin = calm = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while (now := time.perf_counter()) - calm < REST_S:
            if now - begin > MOST_S:
                print(f"the disk is not at rest after {MOST_S:.0f} s: syncs stall", file=sys.stderr)
                return
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            if time.perf_counter() - now > STALL_S:
                calm = time.perf_counter()
            time.sleep(0.01)
    if calm > begin:
        print(f"waited {time.perf_counter() - begin:.0f} s for the disk to come to rest", file=sys.stderr)
