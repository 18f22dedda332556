"""A lock on a data folder, so that two processes never work on one. It ends with the process, however that ends."""

import fcntl
import os
from pathlib import Path

from varlog.base.errors import Unavailable
from varlog.ports.disk import DiskFailed

LOCK_FILE = "lock"


class FolderLock:
    """Held from construction to `release`. Who holds it stands in the file, for people."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK_FILE
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DiskFailed(f"the folder {folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            owner = os.read(self._file, 32).decode(errors="replace").strip()
            os.close(self._file)
            raise Unavailable(f"the folder {folder} is in use by another process (pid {owner or 'unknown'})") from taken
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._file)
