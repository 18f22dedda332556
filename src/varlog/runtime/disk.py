"""The real disk: one data folder, locked for one process.

Writes go to the volume's worker (`disk_worker`). Reads are made on the spot when the page cache
has the bytes (`RWF_NOWAIT`), else in a small pool of threads. Everything else (names, space,
allocation) goes to a helper thread, in the order given.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from varlog.base.errors import InvalidArgument, Unavailable, VarlogError
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk_worker import DiskWorker, Write, call_loop, settle, translate
from varlog.runtime.lock import LOCK_FILE, FolderLock, make_data_folder, sync_folder
from varlog.runtime.pages import STEP_BYTES, PageCache
from varlog.wire.buffers import unfilled
from varlog.wire.frame import Buffer

INLINE_READ_BYTES = 1 << 20
"""Larger reads go to a thread even if they are cached: copying them would hold up the loop."""

READ_THREADS = 2
"""Reads of one volume that wait for the disk at the same time; the others wait in line."""

Result = TypeVar("Result")


class RealFile:
    """An open file. Closed for good only when nothing under way uses it any more."""

    def __init__(self, disk: "RealDisk", path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.unsynced = True
        self.failed: VarlogError | None = None
        self._disk = disk
        self._closed = False
        self._users = 0
        self._passed = 0
        """Up to here it was written, and the disk's `pages` were told."""

    async def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        self._check_open()
        if self._disk.read_only:
            raise DiskFailed(f"{self.path} was opened for reading only")
        if offset >= self._passed + STEP_BYTES:
            passed, self._passed = self._passed, offset - offset % STEP_BYTES
            self._disk.pages.passed(self, passed, self._passed)
        worker = self._disk.worker
        if sync and worker.perform(self, offset, buffers):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._users += 1
        worker.submit(Write(self, offset, buffers, sync, future))
        await future

    async def read(self, offset: int, length: int) -> memoryview:
        self._check_open()
        if length <= INLINE_READ_BYTES and self._disk.try_inline:
            data = self._read_cached(offset, length)
            if data is not None:
                return data
        self._users += 1
        return await self._disk.in_reader(self._read, offset, length, done=self.released)

    async def allocate(self, size: int) -> None:
        self._check_open()
        self._users += 1
        await self._disk.in_helper(self._allocate, size, done=self.released)

    async def size(self) -> int:
        self._check_open()
        self._users += 1
        return await self._disk.in_helper(self._size, done=self.released)

    def close(self) -> None:
        if self._passed and not self._closed:
            self._disk.pages.closes(self)
        self._closed = True
        self._close_if_unused()

    def let_go(self, start: int, end: int) -> None:
        """Have the kernel forget what it keeps of this part in memory."""
        if self.fd >= 0 and not self._disk.closed and hasattr(os, "posix_fadvise"):
            self._users += 1
            self._disk.in_helper(self._let_go, start, end, done=self.released)

    # ------------------------------------------------------------ who uses the descriptor

    def _check_open(self) -> None:
        if self._closed:
            raise DiskFailed(f"{self.path} was closed")

    def released(self) -> None:
        """A thread has done with it, whether or not somebody still waited for that."""
        self._users -= 1
        if self._closed:
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """The number of a closed descriptor is soon another file's: not while a thread may still use it."""
        if not self._users:
            self.close_now()

    def close_now(self) -> None:
        """Only when no thread can be using it."""
        self._closed = True
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._disk.forget(self)

    # ------------------------------------------------------------ system calls

    def _read_cached(self, offset: int, length: int) -> memoryview | None:
        """None: not all of it is in the page cache, or the kernel cannot tell."""
        buffer = unfilled(length)
        try:
            count = os.preadv(self.fd, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise translate(error, self.path) from error
            self._disk.try_inline = False
            return None
        return memoryview(buffer) if count == length else None

    def _read(self, offset: int, length: int) -> memoryview:
        buffer = memoryview(unfilled(length))
        count = 0
        while count < length:
            got = os.preadv(self.fd, [buffer[count:]], offset + count)
            if not got:
                break
            count += got
        return buffer[:count]

    def _allocate(self, size: int) -> None:
        before = os.fstat(self.fd).st_size
        try:
            if size > 0:
                os.posix_fallocate(self.fd, 0, size)
        except OSError:
            # Give back what a full volume had left.
            os.ftruncate(self.fd, before)
            raise
        self.unsynced = True
        if before > size:
            os.ftruncate(self.fd, size)

    def _size(self) -> int:
        return os.fstat(self.fd).st_size

    def _let_go(self, start: int, end: int) -> None:
        try:
            os.posix_fadvise(self.fd, start, end - start, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # it was advice


class RealDisk:
    """One volume. `read_only` takes no lock and changes nothing: for tools that look at files."""

    def __init__(self, folder: str | Path, *, read_only: bool = False) -> None:
        self.name = str(folder)
        self.read_only = read_only
        self.try_inline = hasattr(os, "RWF_NOWAIT")
        self._root = os.path.abspath(folder)
        self._lock: FolderLock | None = None
        if read_only:
            _check_folder(self._root)
        else:
            make_data_folder(Path(self._root))
            self._lock = _take_lock(self._root)
        self.pages = PageCache()
        self.worker = DiskWorker(self.name, self.pages)
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="disk helper")
        self._readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="disk reader")
        self._files: dict[RealFile, None] = {}
        self._closed = False

    # ------------------------------------------------------------ threads

    def in_helper(
        self, work: Callable[..., Result], *arguments: object, done: Callable[[], None] | None = None
    ) -> "asyncio.Future[Result]":
        """`done` is called on the loop when the work has ended, also when nobody waits for it any more."""
        return self._in(self._helper, work, arguments, done)

    def in_reader(
        self, work: Callable[..., Result], *arguments: object, done: Callable[[], None] | None = None
    ) -> "asyncio.Future[Result]":
        return self._in(self._readers, work, arguments, done)

    def _in(
        self,
        pool: ThreadPoolExecutor,
        work: Callable[..., Result],
        arguments: tuple[object, ...],
        done: Callable[[], None] | None,
        unwanted: Callable[[Result], None] | None = None,
    ) -> "asyncio.Future[Result]":
        """`unwanted` gets the result if nobody waits for it any more."""
        if self._closed:
            raise DiskFailed(f"the disk {self.name} was closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        pool.submit(_work, future, work, arguments, done, unwanted)
        return future

    @property
    def closed(self) -> bool:
        return self._closed

    def forget(self, file: RealFile) -> None:
        self._files.pop(file, None)

    def close(self) -> None:
        """End the threads, with all they were given, close every file, and give the lock back."""
        if self._closed:
            return
        self._closed = True
        self.worker.close()
        self._helper.shutdown()
        self._readers.shutdown()
        for file in list(self._files):
            file.close_now()
        if self._lock is not None:
            self._lock.release()

    # ------------------------------------------------------------ the port

    async def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if self.read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        if create:
            self._check_writable(path)
        work = partial(_open, self._full(path), flags)
        file = RealFile(self, path, await self._in(self._helper, work, (), None, unwanted=os.close))
        self._files[file] = None
        return file

    async def list(self, folder: str) -> list[str]:
        names = sorted(await self._look(os.listdir, folder))
        return [name for name in names if folder or name != LOCK_FILE]

    async def exists(self, path: str) -> bool:
        return await self._look(os.path.lexists, path)

    async def make_folder(self, path: str) -> None:
        await self._change(_make_folders, path)

    async def rename(self, old: str, new: str) -> None:
        await self._change(os.replace, old, self._full(new))

    async def remove(self, path: str) -> None:
        await self._change(os.unlink, path)

    async def remove_folder(self, path: str) -> None:
        await self._change(shutil.rmtree, path)

    async def sync_folder(self, path: str) -> None:
        await self._change(sync_folder, path)

    async def space(self) -> tuple[int, int]:
        found = await self._look(os.statvfs, "")
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    async def _look(self, work: Callable[..., Result], path: str, *arguments: object) -> Result:
        return await self.in_helper(work, self._full(path), *arguments)

    async def _change(self, work: Callable[..., Result], path: str, *arguments: object) -> Result:
        self._check_writable(path)
        return await self._look(work, path, *arguments)

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            raise DiskFailed(f"{path}: {self.name} was opened for reading only")

    def _full(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidArgument(f"{path!r} leads out of the data folder")
        return os.path.join(self._root, path) if path else self._root


def _work(
    future: "asyncio.Future[Result]",
    work: Callable[..., Result],
    arguments: tuple[object, ...],
    done: Callable[[], None] | None,
    unwanted: Callable[[Result], None] | None,
) -> None:
    """In a thread: do it, and tell the loop."""
    result: Result | None = None
    failure: Exception | None = None
    try:
        result = work(*arguments)
    except OSError as error:
        failure = translate(error, str(error.filename or ""))
        failure.__cause__ = error
    except Exception as error:  # noqa: BLE001 - a defect is for whoever waits, not for this thread
        failure = error
    call_loop(future.get_loop(), _worked, future, result, failure, done, unwanted)


def _worked(
    future: "asyncio.Future[Result]",
    result: Result | None,
    failure: VarlogError | None,
    done: Callable[[], None] | None,
    unwanted: Callable[[Result], None] | None,
) -> None:
    if done is not None:
        done()
    if unwanted is not None and result is not None and future.done():
        unwanted(result)
    settle(future, result, failure)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _make_folders(path: str) -> None:
    os.makedirs(path, exist_ok=True)


# ---------------------------------------------------------------- the folder itself


def _check_folder(root: str) -> None:
    if not os.path.isdir(root):
        raise InvalidArgument(f"{root} is not a folder" if os.path.lexists(root) else f"there is no folder {root}")


def _take_lock(root: str) -> FolderLock:
    try:
        return FolderLock(Path(root))
    except DiskFailed as error:
        raise Unavailable(error.message) from error
