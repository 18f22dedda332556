"""Power lost after every single disk operation of the longer acts: rolling, collecting, creating, dropping, opening."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, REPLICA, append, batch, bind, create, fill, read_all, reopen, run

from varlog.base.errors import NotFound, ReplicaFailed
from varlog.base.ids import Glsn, Slot
from varlog.ports.disk import DiskFailed
from varlog.storage.folders import drop_folder
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import Volume

SURVIVORS = [
    pytest.param(lambda _: False, id="nothing survives"),
    pytest.param(lambda _: True, id="everything survives"),
    pytest.param(lambda number: number % 2 == 0, id="every other block survives"),
]
Keep = Callable[[int], bool]
MOST_STEPS = 200


async def interrupted(disk: CrashDisk, steps: int, act: Awaitable[object]) -> bool:
    """Let power fail after so many operations of `act`; whether it was interrupted at all."""
    disk.steps_left = steps
    try:
        await act
    except (DiskFailed, ReplicaFailed):
        return True
    finally:
        disk.steps_left = None
    return False


def at_every_step(scenario: Callable[[int, int], Awaitable[bool]]) -> None:
    """Run with power lost after 0, 1, 2, ... operations, and any number of names kept, until it is not lost."""
    for steps in range(MOST_STEPS):
        results = [run(_call(scenario, steps, moves)) for moves in range(4)]
        if not any(results):
            assert steps > 3
            return
    raise AssertionError("it never came to an end")


async def _call(scenario: Callable[[int, int], Awaitable[bool]], steps: int, moves: int) -> bool:
    return await scenario(steps, moves)


@pytest.mark.parametrize("keep", SURVIVORS)
def test_a_roll(keep: Keep) -> None:
    async def scenario(steps: int, moves: int) -> bool:
        disk = CrashDisk()
        log = await create(disk)
        while log.stored_bytes < 12_000:
            await append(log, batch(log.appended, size=300))
            bind(log, 1)
        await log.sync()
        count = log.durable
        log.stage_batches(log.appended, [batch(log.appended, size=3000)])
        lost = await interrupted(disk, steps, log.sync())
        await log.close()
        disk.crash(keep, moves=moves)
        log = await reopen(disk)
        assert count + (not lost) <= log.durable <= count + 1
        assert log.committed == count
        found = await read_all(log)
        assert [slot for slot, _ in found] == list(range(log.durable))
        await append(log, batch(77, size=3000))
        assert (await read_all(await reopen(disk)))[-1][1] == batch(77, size=3000)[0]
        return lost

    at_every_step(scenario)


@pytest.mark.parametrize("keep", SURVIVORS)
def test_collecting(keep: Keep) -> None:
    """Sidecars, base, removing and recycling; also what is done with a recycled file right after."""

    async def act(log: ReplicaLog) -> None:
        log.stage_trim(Glsn(40))
        await log.sync()
        await log.collect()
        await append(log, *[batch(number, size=3000) for number in range(8)])

    async def scenario(steps: int, moves: int) -> bool:
        disk = CrashDisk()
        log = await create(disk)
        count = await fill(log, 4)
        assert count > 40
        lost = await interrupted(disk, steps, act(log))
        await log.close()
        disk.crash(keep, moves=moves)
        log = await reopen(disk)
        assert log.trimmed_glsn in (0, 40)
        assert lost or log.trimmed_glsn == 40
        assert log.committed == count
        assert [slot for slot, _ in await read_all(log)] == list(range(log.trimmed, log.durable))
        assert (await log.bindings(log.trimmed, log.committed))[0].glsn == log.trimmed + 1
        await log.collect()
        await log.close()
        assert (await reopen(disk)).committed == count
        return lost

    at_every_step(scenario)


@pytest.mark.parametrize("keep", SURVIVORS)
def test_creating(keep: Keep) -> None:
    async def scenario(steps: int, moves: int) -> bool:
        disk = CrashDisk()
        volume = await Volume.open(disk, Random(5))
        lost = await interrupted(disk, steps, create(disk))
        disk.crash(keep, moves=moves)
        volume = await Volume.open(disk, Random(6))
        found = await volume.replicas()
        if found:
            log = await reopen(disk)
        else:
            assert lost
            log = await create(disk)
        await append(log, batch(1))
        assert (await reopen(disk)).durable == 1
        return lost

    at_every_step(scenario)


@pytest.mark.parametrize("keep", SURVIVORS)
def test_dropping(keep: Keep) -> None:
    async def scenario(steps: int, moves: int) -> bool:
        disk = CrashDisk()
        volume = await Volume.open(disk, Random(5))
        log = await create(disk)
        count = await fill(log, 2)
        lost = await interrupted(disk, steps, log.drop())
        disk.crash(keep, moves=moves)
        volume = await Volume.open(disk, Random(6))
        if REPLICA in await volume.replicas():
            assert lost
            assert (await reopen(disk)).committed == count
            for folder in await volume.folders(REPLICA):
                await drop_folder(disk, folder)
        with pytest.raises(NotFound):
            await reopen(disk)
        assert (await create(disk)).durable == 0
        return lost

    at_every_step(scenario)


@pytest.mark.parametrize("keep", SURVIVORS)
def test_opening(keep: Keep) -> None:
    """A second crash in recovery, at every step of it, with a tail to cut off and a removal to finish."""

    async def scenario(steps: int, moves: int) -> bool:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        log.stage_trim(Glsn(25))
        await log.sync()
        await interrupted(disk, 9, log.collect())
        disk.steps_left = None
        durable = log.durable
        disk.lose_power_in_sync = True
        with pytest.raises(DiskFailed):
            await append(log, *[batch(100 + number, size=900) for number in range(4)])
        disk.crash(lambda number: number != 2, moves=moves)
        lost = await interrupted(disk, steps, reopen(disk))
        disk.crash(keep, moves=moves)
        log = await reopen(disk)
        assert durable <= log.durable <= durable + 4
        assert log.committed == durable
        assert [slot for slot, _ in await read_all(log)] == list(range(log.trimmed, log.durable))
        return lost

    at_every_step(scenario)


def test_a_stopped_roll_is_not_written_behind() -> None:
    """A caller that was cancelled between two files must open the replica again: the next file may exist."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        while log.stored_bytes < 13_000:
            await append(log, batch(log.appended, size=300))
        log._writer._rolling = True
        log.stage_seal()
        with pytest.raises(Exception, match="open it again"):
            await log.sync()
        log = await reopen(disk)
        assert not log.sealed
        await append(log, batch(1))
        assert (await log.read(Slot(0), log.durable, 100)).batches == 1
        assert await disk.exists(f"{FOLDER}/spec")

    run(scenario())
