"""`segment dump` and `segment verify`, on files at rest and at work."""

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, append, batch, bind, create, data_paths, fill, run

from varlog.base.errors import NotFound
from varlog.base.ids import Glsn
from varlog.storage.inspect import Row, dump, verify
from varlog.storage.layout import FILE_HEADER_BYTES


async def rows(disk: CrashDisk, path: str) -> list[Row]:
    return [row async for row in dump(disk, path)]


def test_a_healthy_replica_has_no_findings() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 5)
        log.stage_trim(Glsn(20))
        await log.sync()
        await log.collect()
        for path in ("", "replicas", FOLDER, *disk.paths()):
            assert await verify(disk, path) == []
        with pytest.raises(NotFound):
            await verify(disk, "nowhere")

    run(scenario())


def test_every_kind_of_record_is_dumped() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0, count=3, time_us=77, producer=b"\x01" * 16, sequence=9))
        bind(log, 3, gap=4)
        log.stage_trim(Glsn(5))
        log.stage_seal()
        log.stage_finish(log.durable)
        await log.sync()
        found = await rows(disk, FOLDER)
        assert [row.kind for row in found] == ["FILE", "BATCH", "BIND", "SEAL", "FINISH", "TRIM", "END", "SPEC"]
        by_kind = {row.kind: row for row in found}
        assert by_kind["BATCH"].offset == FILE_HEADER_BYTES
        details = by_kind["BATCH"].details
        assert (details["count"], details["time_us"], details["sequence"]) == (3, 77, 9)
        assert details["producer"] == "01" * 16
        assert by_kind["BIND"].details["glsn"] == 5
        assert (by_kind["TRIM"].slot, by_kind["TRIM"].details["glsn"]) == (1, 5)
        assert by_kind["END"].offset == log.stored_bytes
        assert by_kind["SPEC"].details["replica"] == "7.1.3"

    run(scenario())


def test_all_damage_of_a_file_is_listed() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 3)
        path = data_paths(disk)[0]
        batches = [row for row in await rows(disk, path) if row.kind == "BATCH"]
        for number in (2, 3, 9):
            disk.flip(path, batches[number].offset + 90)
        findings = await verify(disk, FOLDER)
        assert [(each.file, each.offset, each.slot) for each in findings] == [
            (path, batches[number].offset, batches[number].slot) for number in (2, 3, 9)
        ]
        assert all(each.damage for each in findings)

    run(scenario())


def test_a_group_being_written_is_a_note() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        end = log.stored_bytes
        await append(log, batch(1, size=300), batch(2))
        disk.flip(data_paths(disk)[0], end + 100)
        findings = await verify(disk, FOLDER)
        assert [(each.damage, each.offset, each.slot) for each in findings] == [(False, end, 1)]
        await append(log, batch(3))
        findings = await verify(disk, FOLDER)
        assert [(each.damage, each.offset, each.slot) for each in findings] == [(True, end, 1)]

    run(scenario())


@pytest.mark.parametrize("name", ["spec", "base", "00000000000000000030.index", "00000000000000000030.data"])
def test_damage_of_any_file_is_found(name: str) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 5)
        log.stage_trim(Glsn(31))
        await log.sync()
        await log.collect()
        disk.flip(f"{FOLDER}/{name}", 20)
        findings = await verify(disk, FOLDER)
        assert [each.file.rpartition("/")[2] for each in findings] == [name]
        assert findings[0].damage == (not name.endswith(".index")), "an index heals by itself"
        assert any(row.kind == "DAMAGE" for row in await rows(disk, FOLDER))

    run(scenario())


def test_missing_files_and_markers_are_found() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await fill(log, 4)
        first, second, third, _ = data_paths(disk)
        await disk.remove(second)
        found = await verify(disk, FOLDER)
        assert [(each.file, each.damage) for each in found] == [(first, True), (third, True)]
        await disk.remove(first)
        assert [each.what for each in await verify(disk, FOLDER)] == [
            "the files before it are missing, and nothing says they were trimmed"
        ]
        disk.fail_syncs = 1
        with pytest.raises(Exception, match="failed"):
            await append(log, batch(1))
        assert any("stopped" in each.what for each in await verify(disk, FOLDER))

    run(scenario())
