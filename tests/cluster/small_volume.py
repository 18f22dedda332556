"""Volumes that can be filled up: a small tmpfs where mounting is allowed, and a pretended one everywhere.

    python -m tests.cluster.small_volume FOLDER varlog-arguments ...

runs `varlog` in a process whose system calls find no more room in FOLDER than the file `FOLDER.limit` says.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.cluster.cluster import Server

VOLUME_BYTES = 16 << 20
ROOM = 1 << 40
"""More than anything needs."""


class SmallVolume(Protocol):
    """A data folder and how much more fits into it."""

    def use(self, node: Server) -> None:
        """Have a node, whose data folder this is, notice."""
        ...

    def leave(self, free: int) -> None:
        """So many bytes are free from now on."""
        ...


class Mounted:
    """A tmpfs; a file that fills it up plays everybody else who uses the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filler = folder / "lost+found"  # a volume may have that beside what is ours

    def use(self, node: Server) -> None:
        pass  # it is what it is

    def leave(self, free: int) -> None:
        self._filler.unlink(missing_ok=True)
        there = os.statvfs(self._folder)
        size = there.f_bavail * there.f_frsize - free
        if size > 0:
            with self._filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)


class Pretended:
    """The node's own system calls refuse."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def use(self, node: Server) -> None:
        self.leave(VOLUME_BYTES)
        node.command = [sys.executable, "-m", "tests.cluster.small_volume", str(self._folder), *node.command[1:]]

    def leave(self, free: int) -> None:
        Quota(self._folder).limit = Quota(self._folder).used() + free


@contextmanager
def mounted(folder: Path) -> Iterator[SmallVolume]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield Mounted(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def pretended(folder: Path) -> Iterator[SmallVolume]:
    folder.mkdir()
    yield Pretended(folder)


def may_mount() -> bool:
    """In a mount namespace of its own, which is gone with the command that tries."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0 and os.geteuid() == 0
    except OSError:
        return False


# ---------------------------------------------------------------- in the node's process


class Quota:
    """How much may lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limit = Path(f"{folder}.limit")

    @property
    def limit(self) -> int:
        return int(self._limit.read_text()) if self._limit.exists() else ROOM

    @limit.setter
    def limit(self, limit: int) -> None:
        new = self._limit.with_suffix(".new")
        new.write_text(str(limit))
        new.replace(self._limit)

    def used(self) -> int:
        total = 0
        for folder, _, names in os.walk(self._folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except FileNotFoundError:
                    continue  # removed since
        return total

    def free(self) -> int:
        return max(0, self.limit - self.used())

    def check(self, file: int, end: int) -> None:
        """A file of the folder is about to reach `end`."""
        if os.readlink(f"/proc/self/fd/{file}").startswith(f"{self._folder}/"):
            needed = end - os.fstat(file).st_blocks * 512
            if needed > 0 and needed > self.free():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def patch(quota: Quota) -> None:
    """Put the quota before the system calls that take room."""
    fallocate, pwrite, pwritev, statvfs = os.posix_fallocate, os.pwrite, os.pwritev, os.statvfs

    def checked_fallocate(file: int, offset: int, length: int) -> None:
        quota.check(file, offset + length)
        fallocate(file, offset, length)

    def checked_pwrite(file: int, data: Any, offset: int) -> int:
        quota.check(file, offset + len(data))
        return pwrite(file, data, offset)

    def checked_pwritev(file: int, buffers: Any, offset: int, flags: int = 0) -> int:
        quota.check(file, offset + sum(map(len, buffers)))
        return pwritev(file, buffers, offset, flags)

    def limited_statvfs(path: Any) -> os.statvfs_result:
        found = list(statvfs(path))
        found[4] = min(found[4], quota.free() // found[1])  # f_bavail, in units of f_frsize
        return os.statvfs_result(found)

    os.posix_fallocate = checked_fallocate
    os.pwrite = checked_pwrite
    os.pwritev = checked_pwritev
    os.statvfs = limited_statvfs


def main() -> int:
    from varlog.cli.main import main as varlog

    patch(Quota(Path(sys.argv[1])))
    return varlog(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
