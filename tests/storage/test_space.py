"""Full volumes, large batches, recycled files."""

import asyncio

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import (
    FOLDER,
    SMALL,
    append,
    batch,
    bind,
    create,
    data_files,
    data_paths,
    fill,
    read_all,
    reopen,
    run,
)

from varlog.base.errors import InvalidArgument, NoSpace, Trimmed
from varlog.base.ids import Glsn, Slot
from varlog.ports.disk import DiskFailed
from varlog.storage.layout import FILE_HEADER_BYTES, last_reserve_bytes, reserve_bytes
from varlog.storage.pool import FREE_FILES, margin_bytes
from varlog.storage.replica_log import ReplicaLog


async def until_full(log: ReplicaLog, size: int = 400) -> int:
    """Append until the volume refuses; gives how many went in."""
    number = 0
    while True:
        await asyncio.sleep(0)  # for the making of the next file
        try:
            log.stage_batches(log.appended, [batch(number, size=size)])
        except NoSpace:
            return number
        await log.sync()
        number += 1
        assert number < 10_000


def room_for(files: int) -> int:
    return files * SMALL + margin_bytes(SMALL) + 3000


def test_a_full_volume_refuses_batches_and_serves_the_rest() -> None:
    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(3))
        log = await create(disk)
        count = await until_full(log)
        assert data_files(log) == 3
        assert log.appended == log.durable == count
        with pytest.raises(NoSpace):
            log.stage_batches(log.appended, [batch(0, size=400)])
        assert not log.staged, "a refused batch is not staged"
        assert len(await read_all(log)) == count
        bind(log, count)
        log.stage_trim(Glsn(3))
        log.stage_seal()
        await log.sync()
        assert (log.bound, log.durable_trimmed_glsn, log.sealed) == (count, 3, True)
        await log.close()
        log = await reopen(disk)
        assert (log.bound, log.trimmed, log.sealed) == (count, 3, True)

    run(scenario())


def test_stores_work_again_when_space_comes_back() -> None:
    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(2))
        log = await create(disk)
        count = await until_full(log)
        disk.capacity = room_for(3)
        await append_soon(log)
        assert log.durable == count + 1

    run(scenario())


async def append_soon(log: ReplicaLog) -> None:
    """A refusal makes it look for space again, off the write path."""
    try:
        await append(log, batch(0, size=400))
    except NoSpace:
        await asyncio.sleep(0)
        await append(log, batch(0, size=400))


def test_trimming_frees_a_full_volume() -> None:
    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(4))
        log = await create(disk)
        written = 0
        for _ in range(6):
            written += await until_full(log)
            bind(log, log.durable - log.committed)
            log.stage_trim(Glsn(log.next_glsn - 2))
            await log.sync()
            await log.collect()
            assert data_files(log) < 4
            assert len(await read_all(log)) >= 1
        assert written > 100
        assert log.durable == written

    run(scenario())


def test_trimming_frees_a_full_volume_whatever_is_known_of_producers() -> None:
    """The table of producers is written before a file can go, and may be larger than what is left for small things."""

    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(8))
        log = await create(disk)
        number = 0
        for _ in range(3):
            while True:
                await asyncio.sleep(0)
                producer = b"%016d" % number
                try:
                    log.stage_batches(log.appended, [batch(number, size=100, producer=producer)])
                except NoSpace:
                    break
                await log.sync()
                number += 1
                if number % 20 == 0:
                    bind(log, log.durable - log.committed)
                    await log.sync()
                    await log.collect()  # sidecars, each with the table
            bind(log, log.durable - log.committed)
            log.stage_trim(Glsn(log.next_glsn - 2))
            await log.sync()
            await log.collect()
            assert data_files(log) < 3
        assert number > 300

    run(scenario())


def test_bindings_wait_when_even_the_reserve_is_full() -> None:
    """Bindings with gaps, one a slot, more than the reserve takes: none is lost, and trims still find room."""

    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(3))
        log = await create(disk)
        count = await until_full(log, size=0)
        reserve = reserve_bytes(SMALL)
        assert count > reserve // 64
        while log.committed < count:
            bind(log, 1, gap=1)
            await log.sync()
        assert log.bound < log.committed == count
        assert log.staged
        assert len(await log.bindings(Slot(0), log.committed)) == count
        bound = log.bound
        log.stage_trim(Glsn(5))
        await log.sync()
        assert log.durable_trimmed_glsn == 5
        await log.close()
        log = await reopen(disk)
        assert log.bound == log.committed == bound
        while log.committed < count:
            bind(log, 1, gap=1)
        disk.capacity = room_for(6)
        await log.sync()
        assert log.bound == count, "the next file takes what had waited"
        assert not log.staged
        await log.close()
        log = await reopen(disk)
        assert (log.bound, log.trimmed) == (count, 2)

    run(scenario())


def test_trims_that_free_nothing_leave_room_for_one_that_does() -> None:
    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(2))
        log = await create(disk)
        count = await until_full(log)
        bind(log, count)
        await log.sync()
        refused = 0
        first_file = log._files[0].end_slot
        for glsn in range(1, first_file):
            log.stage_trim(Glsn(glsn))
            try:
                await log.sync()
            except NoSpace:
                refused += 1
        log.stage_trim(Glsn(first_file))
        await log.sync()
        await log.collect()
        assert data_files(log) == 1
        assert log._files.last.size - log._files.last.end <= last_reserve_bytes(SMALL) or not refused
        await append_soon(log)

    run(scenario())


def test_a_seal_waits_behind_batches_that_found_no_room() -> None:
    """The one case in which accepted batches meet a full volume: they outran the making of the next file."""

    async def scenario() -> None:
        disk = CrashDisk(capacity=room_for(1))
        log = await create(disk)
        await append(log, batch(0))
        bind(log, 1)
        log.stage_batches(log.appended, [batch(1, size=11000), batch(2, size=9000)])
        log.stage_seal()
        with pytest.raises(NoSpace):
            await log.sync()
        assert (log.durable, log.bound, log.appended) == (1, 1, 3)
        assert log.staged
        with pytest.raises(NoSpace):
            await log.sync()
        disk.capacity = room_for(5)
        await log.sync()
        assert log.durable == 3
        await log.close()
        log = await reopen(disk)
        assert (log.durable, log.sealed) == (3, True)
        assert len(await read_all(log)) == 3

    run(scenario())


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_larger_than_a_file_gets_a_file_large_enough(first: bool) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        if not first:
            await append(log, batch(0))
        large = [batch(number, size=5 * SMALL) for number in (1, 2)]
        await append(log, *large)
        await append(log, batch(3))
        await log.close()
        log = await reopen(disk)
        found = [data for _, data in await read_all(log)]
        assert found[-3:] == [large[0][0], large[1][0], batch(3)[0]]
        assert {len(disk.content(path).bytes) > 5 * SMALL for path in data_paths(disk)[1:-1]} <= {True}

    run(scenario())


def test_a_group_larger_than_a_file_is_split() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number, size=1000) for number in range(100)])
        assert {len(disk.content(path).bytes) for path in data_paths(disk)} == {SMALL}
        assert len(data_paths(disk)) > 6
        assert log.durable == 100
        assert len(await read_all(log)) == 100

    run(scenario())


def test_a_file_without_batches_grows_instead_of_being_followed() -> None:
    """A second file for the same first slot would have the same name."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        while data_files(log) < 2:
            await append(log, batch(log.appended, size=0))
        bindings_left = log.durable
        for _ in range(bindings_left):
            bind(log, 1, gap=1)
        log.stage_batches(log.appended, [batch(1, size=2 * SMALL)])
        await log.sync()
        await log.close()
        log = await reopen(disk)
        assert log.bound == bindings_left

    run(scenario())


def test_trimmed_files_are_recycled_and_nothing_of_them_comes_back() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 8)
        log.stage_trim(Glsn(log.next_glsn - 3))
        await log.sync()
        await log.collect()
        free = [path for path in disk.paths() if "free-" in path]
        assert len(free) == FREE_FILES
        assert all(b"VREC" in disk.content(path).bytes for path in free)
        used = disk.used
        marks = [batch(1000 + number, size=700) for number in range(30)]
        for mark in marks:
            await append(log, mark)
        await log.close()
        log = await reopen(disk)
        assert [data for _, data in await read_all(log)][-30:] == [data for data, _ in marks]
        assert disk.used <= used + 3 * SMALL
        with pytest.raises(Trimmed) as error:
            await log.read(Slot(0), log.durable, 100)
        assert error.value.first == log.trimmed

    run(scenario())


def test_a_file_that_is_being_read_is_not_recycled() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 4)
        with log._files.pinned(log._files[1]):
            log.stage_trim(Glsn(log.next_glsn - 1))
            await log.sync()
            await log.collect()
            assert data_files(log) == 3
        await log.collect()
        assert data_files(log) == 1

    run(scenario())


@pytest.mark.parametrize("end", ["an error", "cancelled", "cancelled, but done"])
@pytest.mark.parametrize(("call", "suffix"), [("remove", ".index"), ("remove", ".data"), ("rename", ".data")])
def test_files_whose_removal_was_interrupted_go_with_the_next_collection(
    end: str, call: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 8)
        await log.collect()
        log.stage_trim(Glsn(log._files[5].end_slot))
        await log.sync()
        perform = getattr(disk, call)
        interrupted: list[str] = []

        async def interrupt(*paths: str) -> None:
            if not paths[0].endswith(suffix) or interrupted:
                await perform(*paths)
                return
            interrupted.append(paths[0])
            if end == "an error":
                raise DiskFailed("input/output error")
            if end == "cancelled, but done":
                await perform(*paths)
            await asyncio.Event().wait()

        monkeypatch.setattr(disk, call, interrupt)
        collecting = asyncio.ensure_future(log.collect())
        while not interrupted:
            await asyncio.sleep(0)
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        await log.collect()
        assert data_files(log) == len(data_paths(disk)) == 2
        assert len([path for path in disk.paths() if path.endswith(".index")]) == 1
        assert len([path for path in disk.paths() if "free-" in path]) == len(log._pool) == FREE_FILES
        assert len(await read_all(log)) == log.durable - log.trimmed

    run(scenario())


def test_a_roll_finds_its_file_ready() -> None:
    """The next file is made when half of this one is used, while nobody waits for it."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        while log.stored_bytes < SMALL * 3 // 4:
            await append(log, batch(log.appended, size=300))
            await asyncio.sleep(0)
        assert len(log._pool) == 1
        before = len(disk.paths())
        while data_files(log) == 1:
            await append(log, batch(log.appended, size=300))
        assert len(disk.paths()) == before, "the free file became the data file"

    run(scenario())


def test_usable_sizes_only() -> None:
    with pytest.raises(InvalidArgument):
        run(create(CrashDisk(), file_bytes=1000))
    assert reserve_bytes(SMALL) + FILE_HEADER_BYTES < SMALL // 2
    assert FOLDER.startswith("replicas/")


def test_a_large_group_fills_a_file_before_it_goes_on_in_the_next() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        await append(log, *(batch(number, size=2000) for number in range(1, 12)))
        assert log.durable == 12
        first = log._files[0]
        assert first.size - reserve_bytes(first.size) - first.end < 2500, "no room is left for another batch"
        assert [slot for slot, _ in await read_all(await reopen(disk))] == list(range(12))

    run(scenario())
