"""After a failed write or sync nothing of the replica is trusted again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.storage.crash_disk import CrashDisk, CrashFile
from tests.storage.harness import FOLDER, append, batch, bind, create, data_paths, fill, reopen, run

from varlog.base.errors import Corrupt, InvalidArgument, NoSpace, ReplicaFailed, Sealed, Unavailable
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import InvariantBroken
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk import RealDisk
from varlog.storage import layout
from varlog.wire.frame import Buffer


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_failed_write_or_sync_stops_the_replica(what: str) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        bind(log, 1)
        setattr(disk, f"fail_{what}s", 1)
        log.stage_batches(log.appended, [batch(1)])
        with pytest.raises(DiskFailed):
            await log.sync()
        assert log.failure is not None
        assert log.durable == 1
        with pytest.raises(ReplicaFailed):
            log.stage_batches(log.appended, [batch(2)])
        with pytest.raises(ReplicaFailed):
            log.stage_seal()
        with pytest.raises(ReplicaFailed):
            log.stage_trim(Glsn(1))
        for call in (
            log.sync(),
            log.read(Slot(0), Slot(1), 100),
            log.find_glsn(Glsn(1)),
            log.find_time(0),
            log.bindings(Slot(0), Slot(1)),
            log.batch_at(Slot(0)),
            log.digest(Slot(0), Slot(1)),
            log.collect(),
        ):
            with pytest.raises(ReplicaFailed):
                await call
        await log.close()
        with pytest.raises(ReplicaFailed, match="not trusted again"):
            await reopen(disk)

    run(scenario())


def test_a_disk_that_takes_no_marker_either() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        disk.fail_syncs = 2
        log.stage_batches(log.appended, [batch(1)])
        with pytest.raises(DiskFailed):
            await log.sync()
        with pytest.raises(ReplicaFailed, match="could not be marked"):
            await log.sync()

    run(scenario())


def test_a_sync_that_fails_while_rolling() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        count = await fill(log, 2)
        while log.failure is None:
            disk.fail_syncs = 1 if log.stored_bytes > 28_000 else 0
            log.stage_batches(log.appended, [batch(1, size=2000)])
            try:
                await log.sync()
            except DiskFailed:
                break
        assert log.failure is not None
        disk.crash()
        await disk.remove(f"{FOLDER}/failed")
        assert (await reopen(disk)).durable >= count

    run(scenario())


def test_a_folder_that_somebody_removed() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, size=9000))
        await asyncio.sleep(0)
        await disk.remove_folder(FOLDER)
        log.stage_batches(log.appended, [batch(1, size=9000)])
        with pytest.raises(DiskFailed):
            await log.sync()
        assert log.failure is not None

    run(scenario())


def test_a_sidecar_that_cannot_be_read_is_no_failed_write() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 4)
        await log.collect()
        await log.close()
        log = await reopen(disk)
        disk.unreadable[".index"] = DiskFailed("input/output error")
        log.stage_trim(Glsn(3))
        await log.sync()
        assert (log.durable_trimmed_glsn, log.trimmed) == (3, 3)

    run(scenario())


def test_a_trim_that_cannot_be_located_holds_nothing_else_up_and_is_tried_again_when_asked_for() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 4)
        await log.collect()
        await log.close()
        log = await reopen(disk)
        met: list[int] = []
        log.on_damage = lambda: met.append(1)
        disk.unreadable |= {".index": DiskFailed("rotten"), data_paths(disk)[0]: DiskFailed("rotten")}
        log.stage_trim(Glsn(3))
        count = log.durable
        await append(log, batch(0))
        assert (log.durable, log.durable_trimmed_glsn, log.failure) == (count + 1, 0, None)
        assert met, "it is looked at"
        disk.unreadable.clear()
        await append(log, batch(1))
        assert not log.durable_trimmed_glsn
        log.stage_trim(Glsn(3))
        await log.sync()
        assert (log.durable_trimmed_glsn, log.trimmed) == (3, 3)

    run(scenario())


def test_a_lack_of_descriptors_passes() -> None:
    """At a roll, and when a file that was closed is written to: nothing was written yet."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, size=9000))
        log.stage_batches(log.appended, [batch(1, size=9000)])
        disk.unreadable[".data"] = Unavailable("too many open files")
        for _ in range(2):
            with pytest.raises(Unavailable):
                await log.sync()
        disk.unreadable.clear()
        await log.sync()
        assert (log.durable, log.failure) == (2, None)
        assert (await reopen(disk)).durable == 2

    run(scenario())


def test_a_lack_of_descriptors_passes_also_when_the_next_file_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, size=9000))
        log.stage_batches(log.appended, [batch(1, size=9000)])

        async def short(_: str) -> None:
            raise Unavailable("too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(disk, "sync_folder", short)
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await log.sync()
        assert (log.durable, log.failure) == (1, None)
        await log.sync()
        assert (log.durable, log.failure) == (2, None)
        disk.crash()
        assert (await reopen(disk)).durable == 2

    run(scenario())


def test_a_roll_that_is_tried_again_leaves_no_files_behind() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, size=9000))
        log.stage_batches(log.appended, [batch(1, size=9000)])
        await log._pool.ensure()
        before = disk.paths()
        disk.unreadable[".data"] = Unavailable("too many open files")
        for _ in range(5):
            with pytest.raises(Unavailable):
                await log.sync()
        assert disk.paths() == before
        disk.unreadable.clear()
        await log.sync()
        assert len(disk.paths()) == len(before), "the file that was ready is the next one"

    run(scenario())


def test_a_free_file_into_which_nothing_fits_does_not_count_as_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thin volume blocks that are reserved may still have no room behind them."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, size=9000))
        log.stage_batches(log.appended, [batch(1, size=9000)])
        await log._pool.ensure()
        write = CrashFile.write

        async def write_unless_free(self: CrashFile, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
            if "/free-" in self.path:
                raise NoSpace("the volume is full")
            await write(self, offset, buffers, sync=sync)

        with monkeypatch.context() as patched:
            patched.setattr(CrashFile, "write", write_unless_free)
            with pytest.raises(NoSpace):
                await log.sync()
            with pytest.raises(NoSpace):
                log.stage_batches(log.appended, [batch(2, size=9000)])
        await log.sync()
        assert (log.durable, log.failure) == (2, None)

    run(scenario())


def test_no_file_of_a_replica_is_opened_once_that_is_closed(tmp_path: Path) -> None:
    """Nobody would close it: a scrub goes on for a moment when its replica is dropped."""

    async def scenario() -> None:
        disk = RealDisk(tmp_path)
        log = await create(disk)
        await append(log, batch(0, size=9000))
        await append(log, batch(1, size=9000))
        files = log._files
        first = files[0]
        files._close(first)
        opening = asyncio.ensure_future(files.open(first))
        await asyncio.sleep(0)
        await log.close()
        for attempt in (opening, files.open(first)):
            with pytest.raises(InvalidArgument, match="closed"):
                await attempt
        assert not disk._files
        disk.close()

    run(scenario())


def test_calls_that_make_no_sense() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        await append(log, batch(0, count=4))
        with pytest.raises(InvariantBroken):
            log.stage_batches(Slot(3), [batch(1)])
        with pytest.raises(InvalidArgument):
            bind(log, 5)
        bind(log, 2)
        with pytest.raises(InvalidArgument):
            log.stage_finish(Slot(1))
        with pytest.raises(InvalidArgument):
            log.stage_finish(Slot(5))
        log.stage_finish(Slot(4))
        log.stage_finish(Slot(4))
        with pytest.raises(InvalidArgument):
            log.stage_finish(Slot(2))
        with pytest.raises(Sealed):
            log.stage_batches(log.appended, [batch(1)])
        await log.close()
        with pytest.raises(InvalidArgument, match="closed"):
            await log.sync()

    run(scenario())


def test_a_replica_that_cannot_be_opened_keeps_no_file_open(tmp_path: Path) -> None:
    """What is removed of it later would keep its space."""

    async def scenario() -> None:
        disk = RealDisk(tmp_path)
        log = await create(disk)
        await fill(log, 3)
        for number in range(1000, 1010):
            await append(log, batch(number))
        await log.close()
        [_, *_, last] = sorted(path for path in (tmp_path / FOLDER).iterdir() if path.suffix == ".data")
        with last.open("r+b") as file:  # in the middle of what was synced
            file.seek(layout.FILE_HEADER_BYTES + 20)
            file.write(bytes(64))
        with pytest.raises(Corrupt):
            await reopen(disk)
        assert not disk._files
        disk.close()

    run(scenario())
