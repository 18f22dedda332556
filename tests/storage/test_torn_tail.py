"""What a crash or rot leaves of a file: a torn tail is cut off, damage in what was synced is reported."""

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import (
    FOLDER,
    REPLICA,
    Encoded,
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

from varlog.base.errors import Corrupt, VarlogError
from varlog.base.ids import Glsn, Slot
from varlog.storage.layout import FILE_HEADER_BYTES, data_name
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.scan import BIND
from varlog.wire.record import RecordKind, encode_record_header

FIRST = f"{FOLDER}/{data_name(0)}"


async def three_groups(disk: CrashDisk) -> tuple[list[Encoded], list[int]]:
    """A replica with three synced groups and no more; where each group ends."""
    log = await create(disk)
    batches = [batch(number, count=1 + number % 3, size=40) for number in range(6)]
    ends = []
    for first in range(0, 6, 2):
        log.stage_batches(log.appended, batches[first : first + 2])
        if first:
            bind(log, log.durable - log.committed)
        await log.sync()
        ends.append(log.stored_bytes)
    await log.close()
    return batches, ends


async def contents(log: ReplicaLog) -> list[bytes]:
    return [data for _, data in await read_all(log)]


@pytest.mark.parametrize("recycled", [False, True])
def test_every_cut_off_length_of_the_last_group(recycled: bool) -> None:
    """Behind the cut lies what was there before: zeros, or records of an earlier use of the blocks."""

    async def scenario() -> None:
        disk = CrashDisk()
        batches, ends = await three_groups(disk)
        whole = bytes(disk.content(FIRST).bytes)
        stale = bytes(len(whole))
        if recycled:
            other = CrashDisk()
            await (await create(other, seed=99)).close()
            other_log = await reopen(other, seed=99)
            await append(other_log, *[batch(900 + number, size=100) for number in range(9)])
            stale = bytes(other.content(FIRST).bytes)
            assert stale[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 4] == b"VREC"
        for cut in range(ends[1], ends[2] + 1):
            torn = bytearray(whole[:cut] + stale[cut:])
            disk.content(FIRST).bytes, disk.content(FIRST).durable = torn, bytearray(torn)
            log = await reopen(disk)
            found = await contents(log)
            assert found == [data for data, _ in batches[: len(found)]]
            assert 4 <= len(found) <= 6
            batches_end = ends[2] - 64  # then comes a binding
            assert (len(found) == 6) == (torn[:batches_end] == whole[:batches_end])
            assert log.committed == (7 if torn[: ends[2]] == whole[: ends[2]] else 3)
            await log.close()

    run(scenario())


def test_what_was_cut_off_never_comes_back() -> None:
    """The second record of a lost group is whole; a new first record of the same length must not revive it."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        start = log.stored_bytes
        disk.lose_power_in_sync = True
        lost = [batch(1, size=600), batch(2, size=600), batch(3, size=600)]
        with pytest.raises(VarlogError):
            await append(log, *lost)
        await log.close()
        disk.crash(lambda number: number != 1, moves=0)
        assert disk.content(FIRST).bytes.count(b"VREC", start) >= 2, "whole records lie behind the torn one"
        log = await reopen(disk)
        assert len(await contents(log)) == 1
        assert any("torn tail" in note for note in log.notes)
        again = batch(4, size=600)
        await append(log, again)
        await log.close()
        log = await reopen(disk)
        assert await contents(log) == [batch(0)[0], again[0]]
        assert not log.notes

    run(scenario())


def test_a_tail_that_only_the_page_cache_has_is_written_again() -> None:
    """The process died alone, after a failed sync: what looks clean may not be on disk."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        disk.fail_syncs = 2  # the group's, and that of the marker
        with pytest.raises(VarlogError):
            await append(log, batch(1, size=5000))
        await log.close()
        log = await reopen(disk)
        assert log.durable == 2
        disk.crash()
        assert (await reopen(disk)).durable == 2

    run(scenario())


def test_every_flipped_byte_is_found_or_harmless() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        batches, ends = await three_groups(disk)
        expected = [data for data, _ in batches]
        outcomes = {"cut": 0, "harmless": 0}
        damage: list[tuple[Corrupt, int]] = []
        for offset in [*range(120), *range(FILE_HEADER_BYTES - 8, ends[2] + 64)]:
            before = bytes(disk.content(FIRST).bytes)
            disk.flip(FIRST, offset, 1 << offset % 8)
            try:
                log = await reopen(disk)
            except Corrupt as error:
                damage.append((error, offset))
            else:
                found = await contents(log)
                assert found == expected[: len(found)]
                assert len(found) == 6 or offset >= ends[1], "only the last group has no witness"
                outcomes["harmless" if len(found) == 6 and log.committed == 7 else "cut"] += 1
                await log.close()
            disk.content(FIRST).bytes, disk.content(FIRST).durable = bytearray(before), bytearray(before)
        assert all(error.replica == str(REPLICA) and offset < ends[1] for error, offset in damage)
        assert len(damage) > ends[1] - FILE_HEADER_BYTES
        assert outcomes["cut"] > 100
        assert outcomes["harmless"] >= 64, "behind the end nothing is looked at"

    run(scenario())


def test_rot_after_opening_is_found_by_the_read() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        for number in range(5):
            await append(log, batch(number, count=2, size=100))
        offset = FILE_HEADER_BYTES + (log.stored_bytes - FILE_HEADER_BYTES) * 2 // 5 + 150
        disk.flip(FIRST, offset)
        assert (await log.read(Slot(0), Slot(4), 10_000)).end == 4
        with pytest.raises(Corrupt) as error:
            await log.read(Slot(4), log.durable, 10_000)
        assert (error.value.replica, error.value.slot) == (str(REPLICA), 4)
        assert "rebuild" in error.value.message
        assert (await log.read(Slot(6), log.durable, 10_000)).end == 10

    run(scenario())


def test_a_torn_record_in_a_file_that_is_not_the_last_is_damage() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        await log.close()
        path = data_paths(disk)[1]
        last = bytes(disk.content(path).bytes).rindex(b"VREC")
        disk.flip(path, last + 20)
        with pytest.raises(Corrupt, match="slot"):
            await reopen(disk)

    run(scenario())


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_file_is_damage(which: int) -> None:
    """Of the last file, only its own header would know; the one before it then ends with witnesses missing."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 4)
        await log.close()
        await disk.remove(data_paths(disk)[which])
        with pytest.raises(Corrupt):
            await reopen(disk)

    run(scenario())


def test_files_of_another_replica_or_in_the_wrong_order_are_damage() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        await log.close()
        _, second, third = data_paths(disk)
        await disk.rename(second, "elsewhere")
        await disk.rename(third, second)
        with pytest.raises(Corrupt, match="it is"):
            await reopen(disk)
        await disk.rename("elsewhere", third)
        with pytest.raises(Corrupt):
            await reopen(disk)

    run(scenario())


def test_records_of_another_generation_are_never_taken_for_ours() -> None:
    """A seal that an earlier use of the blocks left exactly where the records end."""

    async def scenario(generation_change: int) -> bool:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        header = log._files.last.header
        stale = encode_record_header(RecordKind.SEAL, 1, header.generation ^ generation_change, 4096, b"")
        disk.content(FIRST).write(log.stored_bytes, stale)
        disk.content(FIRST).sync()
        await log.close()
        return (await reopen(disk)).sealed

    assert run(scenario(0)), "it is a seal"
    assert not run(scenario(1 << 40))


async def sealed_twice(disk: CrashDisk) -> list[int]:
    """Where the seal, its witness and the file's records end."""
    log = await create(disk)
    await append(log, batch(0))
    ends = [log.stored_bytes]
    for holds in (False, True):
        log.stage_seal()
        assert not log.seal_holds
        await log.sync()
        assert log.seal_holds is holds
        ends.append(log.stored_bytes)
    log.stage_seal()
    assert not log.staged, "one witness is enough"
    await log.close()
    return ends


def test_a_seal_with_a_witness_is_missed_when_it_rots() -> None:
    """Without one it would be taken for a torn tail, and the replica be open again."""

    async def scenario() -> None:
        disk = CrashDisk()
        start, seal_end, end = await sealed_twice(disk)
        whole = bytes(disk.content(FIRST).bytes)
        for offset in range(start, end):
            disk.flip(FIRST, offset, 1 << offset % 8)
            if offset < seal_end:
                with pytest.raises(Corrupt):
                    await reopen(disk)
            else:
                log = await reopen(disk)
                assert (log.sealed, log.seal_holds) == (True, False)
                log.stage_seal()
                await log.sync()
                assert log.seal_holds
                await log.close()
            disk.content(FIRST).bytes, disk.content(FIRST).durable = bytearray(whole), bytearray(whole)
        log = await reopen(disk)
        assert (log.sealed, log.seal_holds) == (True, True)

    run(scenario())


@pytest.mark.parametrize("files", [1, 2])
def test_whatever_is_synced_behind_a_seal_is_its_witness(files: int) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        log.stage_seal()
        await log.sync()
        await log.close()
        log = await reopen(disk)
        assert (log.sealed, log.seal_holds) == (True, False), "as a replica of an earlier release has it"
        number = 0
        while not number or data_files(log) < files:
            await append(log, batch(number, size=500))
            number += 1
            assert log.seal_holds
        await log.close()
        assert (await reopen(disk)).seal_holds

    run(scenario())


def test_a_record_that_cannot_follow_is_not_believed() -> None:
    """Whole, of the right generation, and yet for another slot, or bound before it was stored."""

    async def scenario(kind: RecordKind, slot: int, body: bytes, expected: tuple[int, int]) -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        planted = encode_record_header(kind, slot, log._files.last.header.generation, 4096, body) + body
        disk.content(FIRST).write(log.stored_bytes, planted)
        disk.content(FIRST).sync()
        await log.close()
        log = await reopen(disk)
        assert (log.durable, log.committed) == expected

    data = batch(1)[0]
    run(scenario(RecordKind.BATCH, 1, data, (2, 0)))
    run(scenario(RecordKind.BATCH, 0, data, (1, 0)))
    run(scenario(RecordKind.BATCH, 2, data, (1, 0)))
    run(scenario(RecordKind.BIND, 0, BIND.pack(1, 1, 1), (1, 1)))
    run(scenario(RecordKind.BIND, 0, BIND.pack(1, 2, 2), (1, 0)))
    run(scenario(RecordKind.BIND, 1, BIND.pack(1, 1, 1), (1, 0)))
    run(scenario(RecordKind.BIND, 0, BIND.pack(0, 1, 1), (1, 0)))


def test_a_file_of_another_history_is_damage() -> None:
    """Its records are right, and even the same; but it is not the file that the next one was written after."""

    async def scenario() -> None:
        disk, other = CrashDisk(), CrashDisk()
        for each, seed in ((disk, 1), (other, 2)):
            log = await create(each, seed=seed)
            await fill(log, 2)
            await log.close()
        disk.content(FIRST).bytes = bytearray(other.content(FIRST).bytes)
        with pytest.raises(Corrupt, match="does not follow"):
            await reopen(disk)

    run(scenario())


def test_a_file_that_was_made_shorter_is_damage() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0), batch(1))
        await log.close()
        del disk.content(FIRST).bytes[FILE_HEADER_BYTES + 100 :]
        with pytest.raises(Corrupt, match="was made with"):
            await reopen(disk)

    run(scenario())


def test_trims_come_back_only_as_far_as_they_were_synced() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number) for number in range(10)])
        bind(log, 10)
        log.stage_trim(Glsn(4))
        await log.sync()
        log.stage_trim(Glsn(7))
        assert (log.trimmed_glsn, log.durable_trimmed_glsn) == (7, 4)
        await log.close()
        disk.crash()
        log = await reopen(disk)
        assert (log.trimmed, log.trimmed_glsn) == (4, 4)

    run(scenario())
