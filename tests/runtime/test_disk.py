"""What only the real disk has: a folder, a lock, threads, and system calls that fail."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from math import inf
from pathlib import Path
from typing import Any

import pytest

from varlog.base.errors import InvalidArgument, NoSpace, Unavailable
from varlog.ports.disk import DiskFailed
from varlog.runtime import disk_worker, quick
from varlog.runtime.disk import RealDisk, RealFile
from varlog.wire.buffers import JOIN_BYTES

Body = Callable[[RealDisk], Coroutine[Any, Any, None]]


def on_disk(folder: Path, body: Body, *, read_only: bool = False) -> None:
    async def main() -> None:
        disk = RealDisk(folder, read_only=read_only)
        try:
            await body(disk)
        finally:
            disk.close()

    asyncio.run(main())


def failing(call: Callable[..., Any], number: int, *, after: int = 0) -> Callable[..., Any]:
    """`call`, but with this error from some time on."""
    left = [after]

    def failing_call(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            return call(*arguments)
        raise OSError(number, os.strerror(number))

    return failing_call


# ---------------------------------------------------------------- the folder


def test_the_folder_is_made_but_not_what_lies_above(tmp_path: Path) -> None:
    RealDisk(tmp_path / "new").close()
    assert (tmp_path / "new").is_dir()
    with pytest.raises(InvalidArgument, match="there is no folder"):
        RealDisk(tmp_path / "no" / "such")
    with pytest.raises(InvalidArgument, match="there is no folder"):
        RealDisk(tmp_path / "nothing", read_only=True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for read_only in (False, True):
        with pytest.raises(InvalidArgument, match="is not a folder"):
            RealDisk(tmp_path / "file", read_only=read_only)
    with pytest.raises(InvalidArgument):
        RealDisk(tmp_path / "file" / "below")


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", failing(os.open, errno.EACCES))
    with pytest.raises(Unavailable, match=r"cannot be written.*Permission denied"):
        RealDisk(tmp_path)
    monkeypatch.setattr(os, "mkdir", failing(os.mkdir, errno.EROFS))
    with pytest.raises(Unavailable, match="Read-only file system"):
        RealDisk(tmp_path / "new")


def test_two_on_one_folder(tmp_path: Path) -> None:
    """In this process or another; the holder's process id is in the error."""
    disk = RealDisk(tmp_path)
    with pytest.raises(Unavailable, match=str(os.getpid())):
        RealDisk(tmp_path)
    script = f"from varlog.runtime.disk import RealDisk; RealDisk({str(tmp_path)!r})"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert str(os.getpid()) in other.stderr
    RealDisk(tmp_path, read_only=True).close()
    disk.close()
    RealDisk(tmp_path).close()


def test_the_lock_is_not_a_file_of_the_volume(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        assert await disk.list("") == []
        assert disk.name == str(tmp_path)

    on_disk(tmp_path, body)
    assert (tmp_path / "lock").exists()


def test_paths_stay_inside(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        for path in ("../x", "/etc/passwd", "a/../../b"):
            with pytest.raises(InvalidArgument, match="leads out"):
                await disk.open(path)
        with pytest.raises(ValueError, match="null"):
            await disk.open("a\0b")

    on_disk(tmp_path, body)


def test_read_only_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")

    async def body(disk: RealDisk) -> None:
        file = await disk.open("a")
        assert bytes(await file.read(0, 99)) == b"content"
        for call in (
            lambda: file.write(0, [b"x"], sync=True),
            lambda: disk.open("b", create=True),
            lambda: disk.remove("a"),
            lambda: disk.rename("a", "b"),
            lambda: disk.make_folder("c"),
            lambda: disk.remove_folder("c"),
        ):
            with pytest.raises(DiskFailed, match="reading only"):
                await call()

    on_disk(tmp_path, body, read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# ---------------------------------------------------------------- threads


def test_closing_ends_all_threads(tmp_path: Path) -> None:
    before = threading.enumerate()

    def added() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each not in before]

    async def body(disk: RealDisk) -> None:
        disk.try_inline = False
        file = await disk.open("a", create=True)
        await file.write(0, [b"x"], sync=True)
        await file.read(0, 1)
        assert added()
        disk.close()
        disk.close()
        with pytest.raises(DiskFailed, match="closed"):
            await file.read(0, 1)
        with pytest.raises(DiskFailed, match="closed"):
            await disk.list("")

    on_disk(tmp_path, body)
    assert not added()


def test_what_was_given_before_closing_is_written(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        tasks = [
            asyncio.get_running_loop().create_task(file.write(4 * number, [b"%04d" % number], sync=True))
            for number in range(50)
        ]
        await asyncio.sleep(0)
        disk.close()
        await asyncio.gather(*tasks)

    on_disk(tmp_path, body)
    assert (tmp_path / "a").read_bytes() == b"".join(b"%04d" % number for number in range(50))


def test_writes_that_gather_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait while a sync is under way are written and synced together."""
    syncs: list[int] = []
    first_sync_began, first_sync_may_end = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(fd: int) -> None:
        first_sync_began.set()
        first_sync_may_end.wait(10)
        real(fd)
        syncs.append(fd)

    monkeypatch.setattr(os, "fdatasync", slow)

    async def body(disk: RealDisk) -> None:
        one, two = await disk.open("a", create=True), await disk.open("b", create=True)
        tasks = [asyncio.get_running_loop().create_task(one.write(0, [b"x"], sync=True))]
        while not first_sync_began.is_set():
            await asyncio.sleep(0.001)
        for number in range(30):
            file = (one, two)[number % 2]
            tasks.append(asyncio.get_running_loop().create_task(file.write(number, [b"y"], sync=True)))
        await asyncio.sleep(0)
        first_sync_may_end.set()
        await asyncio.gather(*tasks)
        assert len(syncs) == 3

    on_disk(tmp_path, body)


def test_a_lone_write_and_sync_is_one_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("pwrite", "pwritev", "fdatasync"):
        monkeypatch.setattr(os, name, _counted(getattr(os, name), name, calls))

    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        calls.clear()
        await file.write(0, [b"first"], sync=True)
        assert calls == ["pwrite", "fdatasync"], "what others wrote to the file before must be synced too"
        calls.clear()
        await file.write(5, [b"x", b"y"], sync=True)
        assert calls == ["pwritev"]
        calls.clear()
        await file.write(7, [b"z"], sync=False)
        await file.write(8, [b"z"], sync=True)
        assert calls == ["pwrite", "pwrite", "fdatasync"], "the write before it was not synced"
        calls.clear()
        await file.write(9, [bytes(1 << 20)], sync=True)
        assert calls == ["pwrite", "fdatasync"]

    on_disk(tmp_path, body)
    assert (tmp_path / "a").read_bytes().startswith(b"firstxyzz\0")


def _counted(call: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        calls.append(name)
        return call(*arguments)

    return counted


def test_a_small_sync_is_made_on_the_spot_as_long_as_the_disk_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "SLOW_SECONDS", inf)  # whatever the disk of this machine is
    monkeypatch.setattr(quick, "FIRST_REST_SECONDS", inf)
    threads: list[threading.Thread] = []
    pwritev = os.pwritev

    def noted(*arguments: Any) -> int:
        threads.append(threading.current_thread())
        return pwritev(*arguments)

    async def body(disk: RealDisk) -> None:
        file = await disk.open("file", create=True)
        await file.write(0, [b"x"], sync=True)  # what was done to a file before is not known: by the thread
        monkeypatch.setattr(os, "pwritev", noted)
        await file.write(0, [b"one", b"two"], sync=True)
        assert threads.pop() is threading.main_thread()
        await file.write(6, [bytes(disk_worker.ON_THE_SPOT_BYTES), b"three"], sync=True)
        assert threads.pop() is not threading.main_thread()
        monkeypatch.setattr(quick, "SLOW_SECONDS", 0.0)
        await file.write(6, [b"four"], sync=True)
        assert threads.pop() is threading.main_thread()
        await file.write(6, [b"five"], sync=True)
        assert threads.pop() is not threading.main_thread(), "the one before was slow"
        assert bytes(await file.read(0, 10)) == b"onetwofive"
        assert not threads

    on_disk(tmp_path, body)


def test_writes_that_the_kernel_cuts_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    monkeypatch.setattr(
        os, "pwritev", lambda fd, data, offset, flags=0: pwritev(fd, [bytes(data[0])[:3]], offset, flags)
    )
    large = os.urandom(JOIN_BYTES)

    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"0123456789"], sync=True)
        await file.write(10, [b"abcdefghij"], sync=True)
        assert bytes(await file.read(0, 99)) == b"0123456789abcdefghij"
        await file.write(20, [b"12", b"34", large, b"5"], sync=False)
        await file.write(25 + len(large), [large, b"6", large], sync=True)
        assert bytes(await file.read(20, 1 << 20)) == b"1234" + large + b"5" + large + b"6" + large

    on_disk(tmp_path, body)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "pwritev"])
def test_a_file_whose_write_or_sync_failed_is_not_written_again(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(disk: RealDisk) -> None:
        file, other = await disk.open("a", create=True), await disk.open("b", create=True)
        await file.write(0, [b"good"], sync=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(getattr(os, call), errno.EIO))
            if call != "pwritev":
                patch.setattr(disk.worker, "_one_call", False)
            with pytest.raises(DiskFailed, match=r"a: Input/output error"):
                await file.write(4, [b"bad"], sync=True)
        with pytest.raises(DiskFailed, match="failed earlier"):
            await file.write(4, [b"again"], sync=True)
        await other.write(0, [b"fine"], sync=True)

    on_disk(tmp_path, body)


def test_an_error_nobody_foresaw_ends_a_file_and_not_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all who wait for the volume would wait for ever."""

    async def body(disk: RealDisk) -> None:
        file, other = await disk.open("a", create=True), await disk.open("b", create=True)
        with monkeypatch.context() as patch:
            patch.setattr(disk_worker, "_write", lambda *_: next(iter(())))
            with pytest.raises(DiskFailed, match="StopIteration"):
                await asyncio.wait_for(file.write(0, [b"bad"], sync=False), 10)
        with pytest.raises(DiskFailed, match="failed earlier"):
            await file.write(0, [b"again"], sync=False)
        await other.write(0, [b"fine"], sync=False)

    on_disk(tmp_path, body)


def test_a_full_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"here"], sync=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", failing(os.posix_fallocate, errno.ENOSPC))
            with pytest.raises(NoSpace):
                await file.allocate(1 << 20)
        assert await file.size() == 4
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", failing(os.pwritev, errno.ENOSPC))
            with pytest.raises(NoSpace):
                await file.write(0, [b"x"], sync=True)
        await file.write(0, [b"good"], sync=True)
        assert bytes(await file.read(0, 4)) == b"good", "space may come back"

    on_disk(tmp_path, body)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_process_lacks_is_not_the_fault_of_the_disk(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"good"], sync=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", failing(os.open, number))
            with pytest.raises(Unavailable, match="short of"):
                await disk.open("a")
        assert await (await disk.open("a")).size() == 4
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", failing(os.pwritev, number))
            with pytest.raises(DiskFailed):
                await file.write(0, [b"x"], sync=True)

    on_disk(tmp_path, body)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_kernels_that_know_no_such_flags(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"one"], sync=True)
        real = os.preadv

        def preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
            if flags:
                raise OSError(number, os.strerror(number))
            return real(fd, buffers, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", failing(os.pwritev, number))
            patch.setattr(os, "preadv", preadv)
            await file.write(3, [b"two"], sync=True)
            assert bytes(await file.read(0, 9)) == b"onetwo"
        assert not disk.try_inline

    on_disk(tmp_path, body)


def test_bytes_that_are_not_cached_are_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[str] = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        readers.append(threading.current_thread().name)
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)

    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"content"], sync=True)
        assert bytes(await file.read(2, 3)) == b"nte"
        assert disk.try_inline

    on_disk(tmp_path, body)
    assert readers
    assert all(name.startswith("disk reader") for name in readers)


def test_errors_of_reads_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open("a", create=True)
        await file.write(0, [b"content"], sync=True)
        monkeypatch.setattr(os, "preadv", failing(os.preadv, errno.EIO))
        for disk.try_inline in (True, False):
            with pytest.raises(DiskFailed, match="Input/output error"):
                await file.read(0, 4)

    on_disk(tmp_path, body)


def test_an_opening_that_nobody_waits_for_any_more_leaves_nothing_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = RealDisk(tmp_path)
        (tmp_path / "file").write_bytes(b"x")
        await disk.list("")  # its thread is there
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            opening = asyncio.ensure_future(disk.open("file"))
            await asyncio.sleep(0)
            opening.cancel()
        await disk.list("")  # behind them all
        assert len(os.listdir("/proc/self/fd")) == before
        disk.close()

    asyncio.run(scenario())


def test_a_loop_that_is_gone_is_no_reason_to_die(tmp_path: Path) -> None:
    """The process is ending: a write completes after its loop was closed."""
    disk = RealDisk(tmp_path)

    async def start() -> RealFile:
        file = await disk.open("a", create=True)
        future = asyncio.get_running_loop().create_future()
        disk.worker.submit(disk_worker.Write(file, 0, [b"late"], True, future))
        return file

    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())
    loop.close()
    disk.close()
    assert (tmp_path / "a").read_bytes() == b"late"
