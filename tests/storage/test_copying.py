"""The files of a copy: synced late, and yet all there once it is complete."""

from collections.abc import Sequence
from random import Random

import pytest
from tests.storage.crash_disk import CrashDisk, CrashFile
from tests.storage.harness import FOLDER, REPLICA, SMALL, append, batch, bind, data_files, read_all, reopen, run

from varlog.base.errors import NoSpace, NotFound, ReplicaFailed
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import InvariantBroken
from varlog.ports.disk import DiskFailed
from varlog.storage.producers import ProducerTable
from varlog.storage.replica_log import Beginning, ReplicaLog
from varlog.storage.volume import Volume
from varlog.wire.frame import Buffer

BATCHES = 60


async def copied(disk: CrashDisk) -> ReplicaLog:
    """All but complete."""
    beginning = Beginning(Slot(0), Glsn(0), await ProducerTable().snapshot(Slot(0)))
    log = await ReplicaLog.create_copy(
        disk, FOLDER, REPLICA, b"the spec", beginning, random=Random(1), file_bytes=SMALL
    )
    log.be_lazy(True)
    for number in range(BATCHES):
        await append(log, batch(number, size=500))
        bind(log, 1)
    log.stage_seal()
    log.stage_finish(Slot(BATCHES))
    assert data_files(log) > 2
    return log


def test_what_is_complete_survives_though_it_was_synced_file_by_file() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(5))
        syncs = disk.syncs
        log = await copied(disk)
        assert disk.syncs - syncs < BATCHES // 2
        log.be_lazy(False)
        await log.sync()
        await log.complete()
        disk.crash(lambda *_: False)
        again = await reopen(disk)
        assert (again.end, again.bound) == (BATCHES, BATCHES)
        assert [slot for slot, _ in await read_all(again)] == list(range(BATCHES))

    run(scenario())


@pytest.mark.parametrize("when", ["a file is full", "it is whole"])
def test_what_found_no_room_when_it_was_synced_late_is_not_there(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where space is promised and not kept. A later sync would succeed, and the group is not written again."""

    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(5))
        plain = CrashFile.write
        lost: list[str] = []

        async def write(self: CrashFile, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
            if not sync or lost or f"{FOLDER}/0" not in self.path:
                await plain(self, offset, buffers, sync=sync)
                return
            await plain(self, offset, buffers, sync=False)
            lost.append(self.path)
            self._content.fail_sync()
            raise NoSpace("the pool behind the volume is full")

        if when == "a file is full":
            monkeypatch.setattr(CrashFile, "write", write)
            with pytest.raises(DiskFailed):
                await copied(disk)
        else:
            log = await copied(disk)
            monkeypatch.setattr(CrashFile, "write", write)
            log.be_lazy(False)
            with pytest.raises(DiskFailed):
                await log.sync()
            with pytest.raises(ReplicaFailed):
                await log.sync()
        assert lost

    run(scenario())


def test_nothing_is_complete_before_it_is_synced() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(5))
        log = await copied(disk)
        await log.sync()
        with pytest.raises(InvariantBroken, match="synced"):
            await log.complete()
        disk.crash(lambda *_: False)
        with pytest.raises(NotFound):
            await reopen(disk)

    run(scenario())
