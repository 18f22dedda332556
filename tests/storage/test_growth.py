"""Files grow with the replica, so that one with little in it takes up little."""

import asyncio
from itertools import pairwise

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, SMALL, append, batch, bind, create, data_files, fill, read_all, reopen, run

from varlog.base.errors import NoSpace
from varlog.base.ids import Glsn
from varlog.storage.layout import is_free_name
from varlog.storage.pool import GROWTH, first_bytes, margin_bytes
from varlog.storage.replica_log import ReplicaLog

WANTED = SMALL * GROWTH**2


def sizes(log: ReplicaLog) -> list[int]:
    return [log._files[number].size for number in range(data_files(log))]


async def free_sizes(disk: CrashDisk) -> list[int]:
    found = []
    for name in await disk.list(FOLDER):
        if is_free_name(name):
            file = await disk.open(f"{FOLDER}/{name}")
            found.append(await file.size())
            file.close()
    return found


async def until_prepared(disk: CrashDisk, log: ReplicaLog) -> int:
    """Append until the next file was made ahead; how many batches that took."""
    number = 0
    while not await free_sizes(disk):
        await append(log, batch(number, size=500))
        await asyncio.sleep(0)
        number += 1
    return number


@pytest.mark.parametrize(
    ("wanted", "first"), [(64 << 20, 4 << 20), (1 << 20, 64 << 10), (64 << 10, SMALL), (SMALL, SMALL)]
)
def test_the_first_file_has_a_part_of_the_size_wanted(wanted: int, first: int) -> None:
    assert first_bytes(wanted) == first

    async def scenario() -> None:
        log = await create(CrashDisk(), file_bytes=wanted)
        assert sizes(log) == [first]

    run(scenario())


def test_each_file_is_larger_than_the_one_before_until_it_is_as_large_as_wanted() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        count = await fill(log, 5)
        assert sizes(log) == [SMALL, SMALL * GROWTH, WANTED, WANTED, WANTED]
        assert len(await read_all(log)) == count
        await log.close()
        log = await reopen(disk, file_bytes=WANTED)
        assert sizes(log) == [SMALL, SMALL * GROWTH, WANTED, WANTED, WANTED]
        assert len(await read_all(log)) == count

    run(scenario())


def test_one_that_is_opened_again_goes_on_growing() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        count = await fill(log, 2)
        await log.close()
        log = await reopen(disk, file_bytes=WANTED)
        number = count
        while data_files(log) < 4:
            await append(log, batch(number, size=500))
            number += 1
        assert sizes(log) == [SMALL, SMALL * GROWTH, WANTED, WANTED]

    run(scenario())


def test_files_that_are_too_small_by_now_are_not_kept_for_later() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        await fill(log, 6)
        log.stage_trim(Glsn(log.next_glsn - 2))
        await log.sync()
        await log.collect()
        assert sizes(log) == [WANTED]
        assert await free_sizes(disk) in ([WANTED], [WANTED, WANTED])

    run(scenario())


def test_a_batch_that_is_larger_than_the_next_file_gets_one_of_its_own() -> None:
    """And the next one is no smaller for it, nor larger than wanted."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        await append(log, batch(0))
        await append(log, batch(1, size=SMALL * GROWTH))
        assert sizes(log)[0] == SMALL
        assert SMALL * GROWTH < sizes(log)[1] < WANTED
        bind(log, 2)
        await fill(log, 4)
        assert sizes(log)[2:] == [WANTED, WANTED]

    run(scenario())


def test_what_is_too_small_for_a_batch_gives_its_room_to_the_file_that_is_not() -> None:
    """The replica's own free file must not be what fills the volume."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        number = await until_prepared(disk, log)
        assert await free_sizes(disk) == [SMALL * GROWTH]
        large = batch(number, size=SMALL * GROWTH)
        disk.capacity = disk.used + len(large[0]) + margin_bytes(WANTED) + 4096
        await append(log, large)
        assert log.durable == number + 1
        disk.capacity = disk.used
        with pytest.raises(NoSpace):
            await append(log, batch(number + 1, size=SMALL * GROWTH))
        with pytest.raises(NoSpace):  # nothing is taken behind what cannot be written
            log.stage_batches(log.appended, [batch(number + 2, size=SMALL * GROWTH)])

    run(scenario())


def test_no_free_file_is_smaller_than_what_is_taken_next() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        number = await until_prepared(disk, log)
        await append(log, batch(number, size=SMALL * GROWTH))
        assert all(size >= WANTED for size in await free_sizes(disk))
        await fill(log, 4)
        assert all(after >= before for before, after in pairwise(sizes(log)))
        assert all(log._files[number].end <= size for number, size in enumerate(sizes(log)))

    run(scenario())


def test_one_that_has_ended_keeps_no_free_file() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=WANTED)
        bind(log, await until_prepared(disk, log))
        await log.sync()
        log.stage_seal()
        log.stage_finish(log.durable)
        await log.sync()
        await log.collect()
        assert await free_sizes(disk) == []
        log.stage_trim(Glsn(3))
        await log.sync()
        await log.collect()
        await asyncio.sleep(0.01)
        assert (await free_sizes(disk), sizes(log)) == ([], [SMALL])

    run(scenario())
