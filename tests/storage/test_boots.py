"""The count of starts: it only grows, whatever a crash tears, and needs no room."""

from random import Random

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import run

from varlog.base.errors import Corrupt, VarlogError
from varlog.storage.boots import BOOTS
from varlog.storage.volume import Volume

PLACES = (0, 4096)


async def started(disk: CrashDisk) -> int:
    volume = await Volume.open(disk, Random(1))
    before = volume.identity.boot
    await volume.begin_boot()
    assert volume.identity.boot > before
    return volume.identity.boot


def test_every_start_counts_and_a_crash_forgets_none() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        for number in range(1, 8):
            assert await started(disk) == number
            disk.crash()
            assert (await Volume.open(disk, Random(1))).identity.boot == number

    run(scenario())


@pytest.mark.parametrize("starts", [0, 1, 2, 3])
def test_power_is_lost_at_any_step_of_a_start(starts: int) -> None:
    async def scenario(steps: int, keep: int) -> bool:
        disk = CrashDisk()
        await Volume.open(disk, Random(1))
        for _ in range(starts):
            await started(disk)
        disk.steps_left = steps
        done = True
        try:
            await started(disk)
        except VarlogError:
            done = False
        disk.steps_left = None
        disk.crash(lambda number: bool(keep >> number % 4 & 1))
        assert await started(disk) > starts + done
        return done

    for keep in range(16):
        steps = 0
        while not run(scenario(steps, keep)):
            steps += 1


def test_a_full_volume_needs_no_room_for_the_next_start() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        assert await started(disk) == 1
        disk.capacity = 0
        assert [await started(disk) for _ in range(3)] == [2, 3, 4]

    run(scenario())


def test_a_count_that_rotted_is_never_used_again() -> None:
    async def scenario() -> None:
        for place in PLACES:
            for starts in (1, 2, 3):
                disk = CrashDisk()
                for _ in range(starts):
                    await started(disk)
                disk.flip(BOOTS, place + 1, 4)
                assert await started(disk) > starts
                disk.flip(BOOTS, place + 8, 1)
                disk.flip(BOOTS, 4096 - place + 8, 1)
                with pytest.raises(Corrupt, match="how often"):
                    await started(disk)

    run(scenario())


def test_what_the_identity_remembers_counts_too() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await started(disk)
        volume = await Volume.open(disk, Random(1))
        await volume.begin_boot()
        await volume.join("c1", 4)
        await disk.remove(BOOTS)
        assert await started(disk) == 3

    run(scenario())
