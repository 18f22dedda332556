"""Sidecars: what they save, and that nothing depends on them."""

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, SMALL, Model, append, batch, bind, create, data_files, fill, reopen, run
from tests.turns import others

from varlog.base.errors import Corrupt, NotFound, Unsupported, VarlogError
from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.ports.disk import DiskFailed
from varlog.storage.files import DataFile
from varlog.storage.index import BindingColumn, Columns, SparseIndex
from varlog.storage.pool import GROWTH
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.sidecar import SUMMARY_BYTES, decode_body, decode_summary, encode_sidecar
from varlog.storage.walk import WINDOW_BYTES


def sidecars(disk: CrashDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".index")]


def in_memory(log: ReplicaLog) -> list[DataFile]:
    return [file for file in log._files.full if file.columns is not None]


async def model_of(log: ReplicaLog, count: int) -> Model:
    """What `fill` put there."""
    model = Model()
    for number in range(count):
        model.batches.append((number, batch(number, size=500, time_us=number)))
    model.glsns = list(range(1, count + 1))
    model.synced()
    return model


async def filled(disk: CrashDisk, files: int = 5) -> tuple[ReplicaLog, Model]:
    log = await create(disk)
    count = await fill(log, files)
    return log, await model_of(log, count)


def test_full_bound_files_get_one_and_leave_memory() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log, model = await filled(disk)
        assert len(in_memory(log)) == 4
        await log.collect()
        assert len(sidecars(disk)) == 4
        assert in_memory(log) == []
        await model.check(log)
        await log.close()
        log = await reopen(disk)
        assert in_memory(log) == []
        assert not log.notes
        await model.check(log)

    run(scenario())


def test_a_file_that_is_not_bound_in_full_has_none_yet() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        while data_files(log) < 3:
            await append(log, batch(log.appended, size=500))
        bind(log, log.durable - 5)
        await log.sync()
        bound = len([file for file in log._files.full if file.end_slot <= log.committed])
        await log.collect()
        assert len(sidecars(disk)) == bound < data_files(log)
        bind(log, 5)
        await log.sync()
        await log.collect()
        assert len(sidecars(disk)) == 2

    run(scenario())


def test_a_binding_that_is_not_on_disk_is_in_no_sidecar() -> None:
    """It may be lost, and the slots bound again."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        while data_files(log) < 3:
            await append(log, batch(log.appended, size=500))
        count = log.durable
        bind(log, count, gap=7)
        await log.collect()
        disk.crash()
        log = await reopen(disk)
        assert log.committed == 0
        bind(log, count)
        await log.sync()
        await log.close()
        log = await reopen(disk)
        assert await log.bindings(Slot(0), log.committed) == [Binding(Slot(0), Glsn(1), count)]

    run(scenario())


def test_opening_reads_only_what_has_no_sidecar() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log, _ = await filled(disk, 12)
        await log.close()
        disk.bytes_read = 0
        log = await reopen(disk)
        assert disk.bytes_read > 11 * 12_000
        await log.collect()
        await log.close()
        disk.bytes_read = 0
        log = await reopen(disk)
        assert disk.bytes_read < 11 * (4096 + 400) + 2 * SMALL + 2000
        assert len(log._files) == 12

    run(scenario())


def test_bindings_that_lie_in_later_files_are_found() -> None:
    """Everything is bound only at the very end, by records of the last file."""

    async def scenario(collected: bool, lost: int | None) -> None:
        disk = CrashDisk()
        log = await create(disk)
        while data_files(log) < 4:
            await append(log, batch(log.appended, size=500))
        model = Model([(slot, batch(slot, size=500)) for slot in range(log.durable)])
        while log.committed < log.durable:
            count = min(3, log.durable - log.committed)
            first = max(log.next_glsn, 1) + 1
            model.glsns += range(first, first + count)
            bind(log, count, gap=1)
            await log.sync()
        model.synced()
        if collected:
            await log.collect()
        if lost is not None:
            await disk.remove(sidecars(disk)[lost])
        await log.close()
        log = await reopen(disk)
        await model.check(log)

    run(scenario(False, None))
    run(scenario(True, None))
    for lost in range(3):
        run(scenario(True, lost))


@pytest.mark.parametrize("error", [DiskFailed, NotFound, Unsupported])
def test_an_opening_does_without_sidecars_that_cannot_be_read(error: type[VarlogError]) -> None:
    async def scenario(which: int) -> None:
        disk = CrashDisk()
        log, model = await filled(disk)
        await log.collect()
        await log.close()
        path = sidecars(disk)[which]
        disk.unreadable[path] = error(path)
        log = await reopen(disk)
        assert "made anew" in log.notes[0]
        await model.check(log)
        await log.collect()
        disk.unreadable.clear()
        assert not (await reopen(disk)).notes

    for which in range(4):
        run(scenario(which))


@pytest.mark.parametrize("damage", ["removed", "summary", "body", "cut", "empty", "another file's"])
def test_a_damaged_sidecar_is_made_anew(damage: str) -> None:
    async def scenario(which: int) -> None:
        disk = CrashDisk()
        log, model = await filled(disk)
        await log.collect()
        await log.close()
        path = sidecars(disk)[which]
        content = disk.content(path)
        match damage:
            case "removed":
                await disk.remove(path)
            case "summary":
                disk.flip(path, 40)
            case "body":
                disk.flip(path, SUMMARY_BYTES + 17)
            case "cut":
                del content.bytes[-9:]
            case "empty":
                content.bytes.clear()
            case _:
                other = sidecars(disk)[(which + 1) % 4]
                content.bytes = bytearray(disk.content(other).bytes)
        log = await reopen(disk)
        await model.check(log)
        assert len(in_memory(log)) == 1
        await log.collect()
        await log.close()
        log = await reopen(disk)
        assert (in_memory(log), log.notes) == ([], [])
        await model.check(log)

    for which in range(4):
        run(scenario(which))


def test_a_sidecar_that_rots_while_the_replica_is_open() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log, model = await filled(disk)
        await log.collect()
        await log.close()
        log = await reopen(disk)
        for path in sidecars(disk)[:3]:
            disk.flip(path, SUMMARY_BYTES + 1)
        await disk.remove(sidecars(disk)[0])
        await model.check(log)

    run(scenario())


def test_others_have_their_turn_while_a_sidecar_is_made_anew() -> None:
    """It takes all of a data file, most of which lies in the page cache."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=GROWTH**2 * 4 * WINDOW_BYTES)
        await fill(log, 2, size=100_000)
        await log.collect()
        disk.flip(sidecars(disk)[0], 20)
        async with others() as turns:
            assert (await log.bindings(Slot(0), Slot(1)))[0].glsn == 1
        assert turns.count >= 3

    run(scenario())


def test_damage_in_a_data_file_is_not_hidden_by_its_sidecar() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log, _ = await filled(disk)
        await log.collect()
        await log.close()
        disk.flip(f"{FOLDER}/{0:020d}.data", 4096 + 1000)
        log = await reopen(disk)
        assert (await log.read(Slot(0), log.committed, 9000)).end == 1, "what lies before the damage is served"
        with pytest.raises(Corrupt) as error:
            await log.read(Slot(1), log.committed, 9000)
        assert error.value.slot == 1
        assert (await log.read(Slot(2), log.committed, 9000)).slot == 2, "and what lies behind it"

    run(scenario())


def test_columns_in_the_cache_are_bounded() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log, model = await filled(disk, 10)
        await log.collect()
        await model.check(log)
        assert 1 < len(log._files._cache) <= 9
        log._files._cached_bytes += 1 << 40
        await log.find_glsn(Glsn(1))
        await log.bindings(Slot(0), Slot(1))
        number = len(log._files._cache)
        log._files._uncache(log._files[0])
        await log.bindings(Slot(0), Slot(1))
        assert len(log._files._cache) == 1 < number

    run(scenario())


def test_the_format_round_trips() -> None:
    index, bindings = SparseIndex(), BindingColumn(100)
    for slot, offset, time_us in [(100, 4096, 5), (110, 4096 + 70_000, 9), (120, 4096 + 80_000, 3)]:
        index.add(slot, offset, time_us)
    bindings.add(Binding(Slot(100), Glsn(7), 10))
    bindings.add(Binding(Slot(110), Glsn(40), 15))
    data = encode_sidecar(12345, 99_999, Columns(index, bindings), b"producers")
    summary = decode_summary(data[:SUMMARY_BYTES])
    assert (summary.generation, summary.first_slot, summary.end_slot, summary.end) == (12345, 100, 125, 99_999)
    assert (summary.batches, summary.max_time, summary.glsn_end) == (3, 9, 55)
    columns, producers = decode_body(summary, data[SUMMARY_BYTES:])
    assert list(columns.index.slots) == [100, 110]
    assert list(columns.index.max_times) == [5, 9]
    assert columns.bindings.ranges(105, 120) == [Binding(Slot(105), Glsn(12), 5), Binding(Slot(110), Glsn(40), 10)]
    assert producers == b"producers"
