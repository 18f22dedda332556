"""What every disk must do; run against each implementation."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest
from tests.sim.world import Small
from tests.storage.crash_disk import CrashDisk

from varlog.base.errors import AlreadyExists, NotFound
from varlog.base.ids import Epoch, Glsn, LogId, ReplicaId, Slot, StreamId
from varlog.base.ranges import Binding
from varlog.ports.disk import Disk, DiskFailed, replace_file
from varlog.runtime.disk import RealDisk
from varlog.runtime.loop import loop_factory
from varlog.sim.host import Process
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import Volume
from varlog.wire.batch import check_batch, encode_batch

Body = Callable[[Disk], Coroutine[Any, Any, None]]


class Implementation(Protocol):
    def run(self, body: Body, folder: Path) -> None:
        """Hand an empty disk to `body`; `folder` is an empty folder for those who need one."""
        ...


class Real:
    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] | None, *, inline: bool = True) -> None:
        self._make_loop = make_loop
        self._inline = inline

    def run(self, body: Body, folder: Path) -> None:
        async def main() -> None:
            disk = RealDisk(folder)
            disk.try_inline = disk.try_inline and self._inline
            try:
                await body(disk)
            finally:
                disk.close()

        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(main())


class Simulated:
    """In good weather."""

    def run(self, body: Body, folder: Path) -> None:
        small = Small()
        host = small.host("here")

        async def inside(process: Process) -> None:
            await body(process.disks[0])

        async def main() -> None:
            task = host.start(inside).main
            assert task is not None
            await task

        small.run(main())


class Twin:
    """The one with which storage is tested."""

    def run(self, body: Body, folder: Path) -> None:
        asyncio.run(body(CrashDisk()))


def _implementations() -> Iterator[Any]:
    yield pytest.param(Real(asyncio.new_event_loop), id="real")
    yield pytest.param(Real(asyncio.new_event_loop, inline=False), id="real, reads in threads")
    if loop_factory() is not asyncio.new_event_loop:
        yield pytest.param(Real(loop_factory()), id="real, uvloop")
    yield pytest.param(Simulated(), id="simulated")
    yield pytest.param(Twin(), id="crash disk")


implementations = pytest.mark.parametrize("disk", list(_implementations()))


@implementations
def test_what_is_written_is_read(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        file = await disk.open("a", create=True)
        assert await file.size() == 0
        await file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")], sync=True)
        await file.write(20, [b"far"], sync=False)
        await file.write(3, [b"TWO"], sync=True)
        assert await file.size() == 23
        assert bytes(await file.read(0, 100)) == b"oneTWOthree" + bytes(9) + b"far"
        assert bytes(await file.read(3, 3)) == b"TWO"
        assert bytes(await file.read(21, 3)) == b"ar", "fewer bytes only at the end"
        assert bytes(await file.read(23, 3)) == b""
        assert bytes(await file.read(0, 0)) == b""
        assert file.path == "a"
        file.close()
        again = await disk.open("a")
        assert bytes(await again.read(0, 3)) == b"one"
        again.close()

    disk.run(body, tmp_path)


@implementations
def test_writes_given_at_once_are_performed_in_order(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        file = await disk.open("a", create=True)
        await asyncio.gather(*(file.write(0, [b"%04d" % number], sync=number % 3 == 0) for number in range(50)))
        assert bytes(await file.read(0, 4)) == b"0049"
        file.close()

    disk.run(body, tmp_path)


@implementations
def test_writes_to_many_files_at_once(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        files = [await disk.open(f"f{number}", create=True) for number in range(8)]
        jobs = [
            file.write(step * 4, [b"%02d%02d" % (number, step)], sync=True)
            for step in range(10)
            for number, file in enumerate(files)
        ]
        await asyncio.gather(*jobs)
        for number, file in enumerate(files):
            assert bytes(await file.read(36, 4)) == b"%02d09" % number
            file.close()

    disk.run(body, tmp_path)


@implementations
def test_large_reads_and_writes(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        file = await disk.open("a", create=True)
        data = Random(3).randbytes(3 << 20)
        await file.write(100, [data[: 1 << 20], data[1 << 20 :]], sync=True)
        assert bytes(await file.read(100, 3 << 20)) == data
        assert bytes(await file.read(100 + (1 << 20), 70_000)) == data[1 << 20 : (1 << 20) + 70_000]
        file.close()

    disk.run(body, tmp_path)


@implementations
def test_allocated_space_reads_as_zeros_and_keeps_what_is_there(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        free, total = await disk.space()
        assert 0 < free <= total
        file = await disk.open("a", create=True)
        await file.write(0, [b"here"], sync=True)
        await file.allocate(100_000)
        assert await file.size() == 100_000
        assert bytes(await file.read(0, 6)) == b"here\0\0"
        assert not any(await file.read(4, 99_996))
        file.close()

    disk.run(body, tmp_path)


@implementations
def test_names(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        assert await disk.list("") == []
        await disk.make_folder("x/y")
        await disk.make_folder("x/y")
        for name in ("x/c", "x/a", "x/b"):
            (await disk.open(name, create=True)).close()
        assert await disk.list("x") == ["a", "b", "c", "y"]
        assert await disk.list("") == ["x"]
        assert await disk.exists("x/a")
        assert await disk.exists("x/y")
        assert not await disk.exists("x/q")
        await disk.rename("x/a", "x/y/a")
        await disk.remove("x/b")
        await disk.sync_folder("x")
        await disk.sync_folder("x/y")
        assert await disk.list("x") == ["c", "y"]
        assert await disk.list("x/y") == ["a"]
        await disk.remove_folder("x")
        assert await disk.list("") == []
        await disk.sync_folder("")

    disk.run(body, tmp_path)


@implementations
def test_renaming_replaces(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        for name in ("old", "new"):
            file = await disk.open(name, create=True)
            await file.write(0, [name.encode()], sync=True)
            file.close()
        await disk.rename("old", "new")
        file = await disk.open("new")
        assert bytes(await file.read(0, 9)) == b"old"
        file.close()
        assert await disk.list("") == ["new"]

    disk.run(body, tmp_path)


@implementations
def test_errors_are_ours(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        (await disk.open("there", create=True)).close()
        with pytest.raises(AlreadyExists):
            await disk.open("there", create=True)
        for call in (
            lambda: disk.open("nowhere"),
            lambda: disk.open("no/folder", create=True),
            lambda: disk.list("nowhere"),
            lambda: disk.remove("nowhere"),
            lambda: disk.rename("nowhere", "else"),
            lambda: disk.sync_folder("nowhere"),
            lambda: disk.remove_folder("nowhere"),
        ):
            with pytest.raises(NotFound):
                await call()

    disk.run(body, tmp_path)


@implementations
def test_a_closed_file_is_not_used_again(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        file = await disk.open("a", create=True)
        file.close()
        file.close()
        for call in (lambda: file.write(0, [b"x"], sync=True), lambda: file.read(0, 1), lambda: file.allocate(5)):
            with pytest.raises(DiskFailed):
                await call()

    disk.run(body, tmp_path)


@implementations
def test_replacing_a_small_file(disk: Implementation, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        for text in (b"first", b"second"):
            await replace_file(disk, "note", text)
            file = await disk.open("note")
            assert bytes(await file.read(0, 99)) == text
            file.close()
        assert await disk.list("") == ["note"]

    disk.run(body, tmp_path)


@implementations
def test_a_cancelled_write_does_no_harm_to_a_later_file(disk: Implementation, tmp_path: Path) -> None:
    """Its descriptor may not be given to another file while the write is still on its way."""

    async def body(disk: Disk) -> None:
        for number in range(20):
            file = await disk.open(f"a{number}", create=True)
            task = asyncio.get_running_loop().create_task(file.write(0, [b"x" * 200_000], sync=True))
            await file.size()
            task.cancel()
            file.close()
            other = await disk.open(f"b{number}", create=True)
            await other.write(0, [b"other"], sync=True)
            assert bytes(await other.read(0, 100)) == b"other"
            other.close()
            await asyncio.gather(task, return_exceptions=True)

    disk.run(body, tmp_path)


@implementations
def test_a_replica_lives_on_it(disk: Implementation, tmp_path: Path) -> None:
    """The whole of storage, in short: files are rolled, trimmed, recycled, and opened again."""

    async def body(disk: Disk) -> None:
        volume = await Volume.open(disk, Random(1))
        await volume.begin_boot()
        replica = ReplicaId(LogId(1), Epoch(1), StreamId(1))
        folder = volume.folder(replica)
        log = await ReplicaLog.create(disk, folder, replica, b"spec", random=Random(2), file_bytes=32 << 10)
        for number in range(120):
            data = encode_batch([b"%d" % number * 100] * 3, time_us=number)
            log.stage_batches(log.appended, [(data, check_batch(data))])
            await log.sync()
            log.stage_binding(Binding(log.committed, Glsn(log.committed + 1), 3), log.committed + 3)
        log.stage_trim(Glsn(100))
        await log.sync()
        await log.collect()
        await log.close()
        log = await ReplicaLog.open(disk, folder, random=Random(3), file_bytes=32 << 10)
        assert (log.durable, log.bound, log.trimmed) == (360, 360, 100)
        assert await log.find_time(60) == 180
        run = await log.read(Slot(330), log.committed, 1 << 20)
        assert (run.slot, run.end) == (330, 360)
        assert await volume.replicas() == [replica]
        await log.drop()
        assert await volume.replicas() == []

    disk.run(body, tmp_path)
