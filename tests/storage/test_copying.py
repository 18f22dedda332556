"""The files of a copy: synced late, and yet all there once it is complete."""

from random import Random

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, REPLICA, SMALL, append, batch, bind, data_files, read_all, reopen, run

from varlog.base.errors import NotFound
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import InvariantBroken
from varlog.storage.producers import ProducerTable
from varlog.storage.replica_log import Beginning, ReplicaLog
from varlog.storage.volume import Volume

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
