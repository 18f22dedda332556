"""The scrub of one replica: what has rotted is found by its slots, beside whatever else is going on."""

import asyncio

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, append, batch, bind, create, data_paths, fill, read_all, reopen, run

from varlog.base.errors import Corrupt, NotFound
from varlog.base.ids import Glsn, Slot
from varlog.ports.disk import DiskFailed
from varlog.storage.damage import Damage, decode, describe
from varlog.storage.inspect import dump
from varlog.storage.layout import FILE_HEADER_BYTES
from varlog.storage.pool import GROWTH
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.verify import WINDOW_BYTES, Verification

FILE_BYTES = GROWTH**2 * 4 * WINDOW_BYTES
"""Of which the first file is four windows long."""


async def no_pause(size: int) -> None:
    assert size > 0


async def verify(log: ReplicaLog) -> Verification:
    verification = log.verification(no_pause)
    await verification.run()
    return verification


async def offset_of(disk: CrashDisk, path: str, slot: int, kind: str = "BATCH") -> int:
    (offset,) = [row.offset async for row in dump(disk, path) if (row.kind, row.slot) == (kind, slot)]
    return offset


def test_a_healthy_replica_has_no_damage_at_any_stage_of_its_life() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        assert not (await verify(log)).damage
        await fill(log, 4)
        assert not (await verify(log)).damage
        await log.collect()
        log.stage_trim(Glsn(40))
        log.stage_batches(log.appended, [batch(1)])
        assert not (await verify(log)).damage, "what is staged is not looked at"
        await log.sync()
        await log.collect()
        log.stage_seal()
        log.stage_finish(log.committed)
        await log.sync()
        assert not (await verify(log)).damage
        assert not (await verify(await reopen(disk))).damage

    run(scenario())


@pytest.mark.parametrize("where", [1, 10, 30, 41, 60, 90, 130, 400])
def test_a_flipped_bit_anywhere_in_a_record_is_found_with_its_slot_and_position(where: int) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        count = await fill(log, 3)
        path = data_paths(disk)[1]
        slot = int(path.rpartition("/")[2][:20]) + 5
        disk.flip(path, await offset_of(disk, path, slot) + where)
        verification = await verify(log)
        assert [(each.slot, each.end) for each in verification.damage] == [(slot, slot + 1)]
        found = await log.located(verification.damage[0])
        assert (found.glsn, found.glsn_end) == (slot + 1, slot + 2)
        assert str(found) == f"slot {slot} (positions {slot + 1} to {slot + 1})"
        assert count > slot + 2

    run(scenario())


def test_damage_in_several_places_is_told_apart() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        first, second = data_paths(disk)[:2]
        hurt = [await offset_of(disk, first, slot) + 100 for slot in (3, 4, 9)]
        for offset in (*hurt, await offset_of(disk, first, 12, "BIND") + 45):
            disk.flip(first, offset)
        disk.flip(second, 100)
        begins = int(second.rpartition("/")[2][:20])
        found = [(each.slot, each.end) for each in (await verify(log)).damage]
        assert found == [(3, 5), (9, 10), (13, 13), (begins, begins)], "a binding and a header take no slots"

    run(scenario())


def test_the_end_of_what_is_synced_may_be_damaged_too() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0), batch(1, count=3))
        disk.flip(data_paths(disk)[0], await offset_of(disk, data_paths(disk)[0], 1) + 60)
        assert [(each.slot, each.end) for each in (await verify(log)).damage] == [(1, 4)]
        assert (await log.located((await verify(log)).damage[0])).glsn_end == 0, "it has no position yet"

    run(scenario())


@pytest.mark.parametrize("name", ["spec", "base"])
def test_small_files_are_looked_at(name: str) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        log.stage_trim(Glsn(40))
        await log.sync()
        await log.collect()
        disk.flip(f"{FOLDER}/{name}", 20)
        (found,) = (await verify(log)).damage
        assert found.what.startswith(f"{name}: ")

    run(scenario())


def test_a_damaged_sidecar_is_made_anew() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        await log.collect()
        sidecar = next(path for path in disk.paths() if path.endswith(".index"))
        disk.flip(sidecar, 120)
        assert not (await verify(log)).damage
        await log.collect()
        again = await reopen(disk)
        assert not again.notes
        assert len(await read_all(again)) == again.durable

    run(scenario())


@pytest.mark.parametrize("rotten", [False, True])
def test_what_is_trimmed_while_it_is_checked_is_not_damaged(rotten: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, FILE_BYTES)
        await fill(log, 3, size=9000)
        if rotten:
            path = data_paths(disk)[0]
            disk.flip(path, await offset_of(disk, path, 2) + 100)
        log.stage_trim(Glsn(log._files[1].end_slot))
        await log.sync()
        rename = disk.rename
        named, pinned = asyncio.Event(), asyncio.Event()

        async def rename_late(old: str, new: str) -> None:
            if new.endswith("/base"):
                named.set()
                await pinned.wait()
            await rename(old, new)

        monkeypatch.setattr(disk, "rename", rename_late)
        collecting = asyncio.ensure_future(log.collect())
        await named.wait()

        async def pause(size: int) -> None:
            pinned.set()
            await collecting
            if log._files[0].pins == 0:
                await log.collect()

        verification = log.verification(pause)
        await verification.run()
        assert verification.damage == []
        await log.collect()
        assert log._files[0].first_slot == log.trimmed
        assert not (await reopen(disk, FILE_BYTES)).notes

    run(scenario())


async def settled(disk: CrashDisk) -> ReplicaLog:
    """Four files, three of them with their columns in sidecars only."""
    log = await create(disk)
    await fill(log, 4)
    await log.collect()
    await log.close()
    return await reopen(disk)


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_does_not_open_is_damaged_in_full(gone: bool) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await settled(disk)
        path, file = data_paths(disk)[1], log._files[1]
        if gone:
            await disk.remove(path)
        else:
            disk.unreadable[path] = DiskFailed("input/output error")
        met: list[int] = []
        log.on_damage = lambda: met.append(1)
        with pytest.raises((NotFound, DiskFailed)):
            await log.read(Slot(file.first_slot), log.committed, 100)
        assert met == [1]
        (found,) = (await verify(log)).damage
        assert (found.slot, found.end) == (file.first_slot, file.end_slot)
        assert (await log.located(found)).glsn == file.first_slot + 1

    run(scenario())


def test_damage_whose_positions_nobody_knows_any_more_is_found_all_the_same() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await settled(disk)
        path = data_paths(disk)[1]
        disk.flip(path, 6000)
        disk.flip(path.replace(".data", ".index"), 130)
        (found,) = (await verify(log)).damage
        located = await log.located(found)
        assert (located.slot, located.end, located.glsn, located.glsn_end) == (found.slot, found.end, 0, 0)

    run(scenario())


def test_a_rotten_sidecar_does_not_hide_rotten_data_behind_it() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await settled(disk)
        first, second = data_paths(disk)[1:3]
        disk.flip(first.replace(".data", ".index"), 130)
        disk.flip(second, await offset_of(disk, second, log._files[2].first_slot) + 60)
        (found,) = (await verify(log)).damage
        assert found.slot == log._files[2].first_slot

    run(scenario())


def test_damage_is_remembered_and_does_not_keep_the_rest_from_being_read() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        path = data_paths(disk)[0]
        disk.flip(path, await offset_of(disk, path, 2) + 100)
        met: list[int] = []
        log.on_damage = lambda: met.append(1)
        with pytest.raises(Exception, match="checksum"):
            await log.read(Slot(2), log.committed, 100)
        assert met == [1], "who reads finds it for all"
        await log.mark_damaged([await log.located(each) for each in (await verify(log)).damage])
        await log.collect()
        again = await reopen(disk)
        assert [(each.slot, each.end, each.glsn) for each in again.damage] == [(2, 3, 3)]
        assert (await again.read(Slot(3), again.committed, 100)).slot == 3
        with pytest.raises(Corrupt) as raised:
            await again.read(Slot(2), again.committed, 100)
        assert "; damaged: slot 2 (positions 3 to 3)" in raised.value.message

    run(scenario())


def test_damage_for_people() -> None:
    many = [Damage(slot, slot + 1) for slot in range(6)]
    assert describe([Damage(3, 9, 13, 19, "why")]) == "slots 3 to 8 (positions 13 to 18): why"
    assert describe(many) == "slot 0, slot 1, slot 2, slot 3 and 2 more"
    assert decode(b"\x00 no list")[0].end == 0


def test_equal_replicas_have_equal_fingerprints_however_they_came_to_be() -> None:
    async def scenario() -> None:
        async def make(*, groups: int, last: int = 0, gap: int = 0) -> tuple[int, list[int]]:
            log = await create(CrashDisk())
            for number in range(0, 30, groups):
                await append(log, *(batch(number + each) for each in range(groups)))
            await append(log, batch(last, count=2), batch(99))
            for count in (30 // groups,) * groups:
                bind(log, count)
            bind(log, 2, gap=gap)
            log.stage_seal()
            log.stage_finish(Slot(32))  # what lies beyond is no part of it
            await log.sync()
            return await log.fingerprint((await verify(log)).stretches)

        first = await make(groups=3)
        assert len(first[1]) == 1
        assert await make(groups=5) == first
        assert await make(groups=3, last=1) != first
        assert await make(groups=3, gap=1) != first

    run(scenario())


def test_the_header_of_a_file_is_part_of_it() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 1)
        disk.flip(data_paths(disk)[0], FILE_HEADER_BYTES // 2)
        assert [(each.slot, each.end) for each in (await verify(log)).damage] == [(0, 0)]

    run(scenario())
