"""A data folder of this process: made if missing, and locked so that two processes never work on one."""

import fcntl
import os
from pathlib import Path

from varlog.base.errors import InvalidArgument, Unavailable

LOCK_FILE = "lock"
PID_BYTES = 20
"""Always as long, and written in place: a full volume has no block for it to spare."""


def make_data_folder(folder: Path) -> None:
    """The last part of the path may be made; what lies above it must be there, or the path is likely a mistake."""
    above = folder.absolute().parent
    made = not folder.exists()
    if made and not above.is_dir():
        raise InvalidArgument(f"cannot make the data folder {folder}: there is no folder {above}")
    try:
        folder.mkdir(exist_ok=True)  # another process may be faster; the lock decides
        sync_folder(above)  # also when it was there: who made it may have been killed before this
    except FileExistsError:
        raise InvalidArgument(f"{folder} is not a folder") from None
    except OSError as error:
        if made:
            raise Unavailable(f"cannot make the data folder {folder}: {error.strerror}") from error


def sync_folder(folder: str | Path) -> None:
    """A new name is there after a crash only if the folder it stands in was synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderLock:
    """Held from construction to `release`, or to the end of the process. The file says who holds it, for people."""

    def __init__(self, folder: Path) -> None:
        try:
            self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable(f"the data folder {folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._file, f"{os.getpid():<{PID_BYTES}}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            self.release()
            raise Unavailable(f"the data folder {folder} is in use by process {holder}") from None
        except OSError as error:
            self.release()
            raise Unavailable(f"the data folder {folder} cannot be locked: {error.strerror}") from error

    def release(self) -> None:
        os.close(self._file)
