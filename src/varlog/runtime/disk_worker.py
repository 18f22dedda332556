"""Who writes and syncs for one volume: a thread, so that the event loop does not wait for a slow disk.

Handing a write to a thread and back costs more than a quick disk takes for a small one, and far more
where the loop is busy. So a small write that nothing is before goes to the disk on the spot (`perform`), as
long as the disk is quick (`quick`).

The thread takes all writes that have gathered, performs them, syncs every file once, and tells the loop about
all of them in one call. While it syncs, the next round gathers: the slower the disk, the larger the
groups. A round whose only write to a file wants a sync is one system call (`RWF_DSYNC`), because every
call costs this thread a wait for the interpreter lock, and a busy loop makes such waits long.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, thread_time
from typing import Any, NamedTuple, Protocol

from varlog.base.errors import AlreadyExists, NoSpace, NotFound, Unavailable, VarlogError
from varlog.ports.disk import DiskFailed
from varlog.runtime.pages import PageCache
from varlog.runtime.quick import Quickness
from varlog.wire.buffers import gather
from varlog.wire.frame import Buffer

ONE_CALL_BYTES = 256 << 10
"""Larger writes are written and synced in two calls: the kernel then begins to write earlier."""

ON_THE_SPOT_BYTES = 64 << 10
"""Larger writes go to the thread whatever the disk: the loop receives the next ones meanwhile."""

MOST_BUFFERS = 1024
"""What the kernel takes in one call (IOV_MAX)."""


NO_SUCH_CALL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""How a file system says that it cannot write and sync in one call."""


class Target(Protocol):
    """What the worker needs of an open file."""

    path: str
    fd: int
    unsynced: bool
    """Written since the last sync. Only the worker touches this."""
    failed: VarlogError | None
    """Set by the worker when a write or sync failed: nothing is written to it again."""

    def released(self) -> None:
        """The worker no longer uses it. Called on the loop, once for each write."""
        ...


class Write(NamedTuple):
    """One write on its way. How many there are is bounded by the callers: each waits for its own."""

    target: Target
    offset: int
    buffers: Sequence[Buffer]
    sync: bool
    future: "asyncio.Future[None]"


Completion = tuple[Write, VarlogError | None]


def translate(error: OSError, path: str) -> VarlogError:
    """Foreign errors end here."""
    what = f"{path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"the volume is full: {what}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(what)
    if error.errno == errno.EEXIST:
        return AlreadyExists(what)
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return Unavailable(f"the process or the machine is short of something: {what}")
    return DiskFailed(what)


class DiskWorker:
    """A thread with a queue. Started by the first write, ended by `close`."""

    def __init__(self, name: str, pages: PageCache) -> None:
        self._name = name
        self._pages = pages
        self._queue: SimpleQueue[Write | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._one_call = hasattr(os, "RWF_DSYNC")
        self._submitted = 0
        """By the loop."""
        self._performed = 0
        """By the thread."""
        self._quick = Quickness()

    def perform(self, target: Target, offset: int, buffers: Sequence[Buffer]) -> bool:
        """Write and sync on the spot, if that is sensible just now; False: it is to be submitted."""
        if self._submitted != self._performed or target.unsynced or target.failed is not None or not self._one_call:
            return False
        size = sum(map(len, buffers))
        start = monotonic()
        if size > ON_THE_SPOT_BYTES or start < self._quick.slow_until:
            return False
        try:
            written = os.pwritev(target.fd, (b"".join(buffers),), offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno in NO_SUCH_CALL:
                self._one_call = False
                return False
            raise _failed(target, error) from error
        self._quick.tried(start, monotonic())
        return written == size  # else the thread begins anew

    def submit(self, write: Write) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=f"disk {self._name}", daemon=True)
            self._thread.start()
        self._submitted += 1
        self._queue.put(write)

    def close(self) -> None:
        """Finish what was submitted, and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        queue = self._queue
        going_on = True
        while going_on:
            gathered = [queue.get()]
            try:
                while True:
                    gathered.append(queue.get_nowait())
            except Empty:
                pass
            going_on = gathered[-1] is not None
            writes = [write for write in gathered if write is not None]
            if writes:
                begun = thread_time()
                done = self._perform_or_fail(writes)
                self._performed += len(writes)
                _tell(done)
                if not self._pages.settled:
                    size = sum(len(buffer) for write in writes for buffer in write.buffers)
                    self._pages.wrote(size, thread_time() - begun)

    # ------------------------------------------------------------ one round

    def _perform_or_fail(self, writes: list[Write]) -> list[Completion]:
        """What nobody foresaw is the end of the files it happened to, not of those who wait for them, nor of others."""
        try:
            return self._perform(writes)
        except Exception as error:  # noqa: BLE001 - each who waits is told
            for write in writes:
                write.target.failed = write.target.failed or DiskFailed(f"{write.target.path}: {error!r}")
            return [(write, write.target.failed) for write in writes]

    def _perform(self, writes: list[Write]) -> list[Completion]:
        """Write all in the order given, then sync each file that somebody wants synced."""
        done: list[Completion] = []
        to_sync: dict[int, list[Write]] = {}
        for write in writes:
            target = write.target
            alone = write.sync and not target.unsynced and sum(each.target is target for each in writes) == 1
            try:
                _refuse_failed(target)
                if alone and self._write_in_one_call(write):
                    done.append((write, None))
                    continue
                _write(target, write.offset, gather(write.buffers))
            except VarlogError as error:
                done.append((write, error))
                continue
            target.unsynced = True
            if write.sync:
                to_sync.setdefault(target.fd, []).append(write)
            else:
                done.append((write, None))
        for waiting in to_sync.values():
            failure = _sync(waiting[0].target)
            done += [(write, failure) for write in waiting]
        return done

    def _write_in_one_call(self, write: Write) -> bool:
        """False: nothing was done, it has to go the usual way."""
        if not self._one_call or sum(map(len, write.buffers)) > ONE_CALL_BYTES:  # so few are few buffers, too
            return False
        data, target = gather(write.buffers), write.target
        try:
            written = os.pwritev(target.fd, data, write.offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno in NO_SUCH_CALL:
                self._one_call = False
                return False
            raise _failed(target, error) from error
        if written < sum(map(len, data)):
            _write(target, write.offset + written, [memoryview(b"".join(data))[written:]])
            failure = _sync(target)
            if failure is not None:
                raise failure
        return True


def _refuse_failed(target: Target) -> None:
    if target.failed is not None:
        raise DiskFailed(f"{target.path} failed earlier and is not written again: {target.failed.message}")


def _write(target: Target, offset: int, buffers: list[Buffer]) -> None:
    if len(buffers) > MOST_BUFFERS:
        buffers = [b"".join(buffers)]
    try:
        if len(buffers) > 1:
            written = os.pwritev(target.fd, buffers, offset)
            if written == sum(map(len, buffers)):
                return
            offset += written
            buffers = [memoryview(b"".join(buffers))[written:]]
        view = memoryview(buffers[0]) if buffers else memoryview(b"")
        while view:
            written = os.pwrite(target.fd, view, offset)
            offset += written
            view = view[written:]
    except OSError as error:
        raise _failed(target, error) from error


def _sync(target: Target) -> VarlogError | None:
    """Make everything written so far durable."""
    try:
        os.fdatasync(target.fd)
    except OSError as error:
        return _failed(target, error)
    target.unsynced = False
    return None


def _failed(target: Target, error: OSError) -> VarlogError:
    """A full volume may have room later; after anything else the file is not to be trusted."""
    failure = translate(error, target.path)
    if not isinstance(failure, NoSpace):
        failure = target.failed = DiskFailed(f"{target.path}: {error.strerror or error}")
    return failure


# ---------------------------------------------------------------- back to the loop


def _tell(done: list[Completion]) -> None:
    """One wake-up of the loop for the whole round."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Completion]] = {}
    for completion in done:
        by_loop.setdefault(completion[0].future.get_loop(), []).append(completion)
    for loop, completions in by_loop.items():
        call_loop(loop, _complete, completions)


def _complete(completions: list[Completion]) -> None:
    for write, error in completions:
        write.target.released()
        settle(write.future, None, error)


def settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    """Tell who waits, if he still does."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def call_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """From a thread."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more
