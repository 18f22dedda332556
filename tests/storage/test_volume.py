"""Volumes: whose they are, and what lies on them."""

import asyncio
from dataclasses import replace
from random import Random

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, REPLICA, append, batch, create, reopen, run

from varlog.base.errors import Corrupt, InvalidArgument, NotFound, Unsupported, VarlogError, WrongCluster
from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.ports.disk import DiskFailed
from varlog.storage import layout
from varlog.storage.folders import drop_folder
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import IDENTITY, Volume, newest


def test_an_empty_folder_is_formatted_once() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        volume = await Volume.open(disk, Random(1))
        first = volume.identity
        assert (first.cluster_id, first.node_id, first.boot, len(first.incarnation)) == ("", 0, 0, 32)
        await volume.begin_boot()
        await volume.join("c1", 4)
        disk.crash()
        volume = await Volume.open(disk, Random(2))
        assert volume.identity == replace(first, cluster_id="c1", node_id=4, boot=1)
        assert (await Volume.open(CrashDisk(), Random(2))).identity.incarnation != first.incarnation

    run(scenario())


def test_a_volume_never_changes_hands() -> None:
    async def scenario() -> None:
        volume = await Volume.open(CrashDisk(), Random(1))
        await volume.join("c1", 4)
        await volume.join("c1", 4)
        for cluster_id, node_id in (("c2", 4), ("c1", 5)):
            with pytest.raises(WrongCluster):
                await volume.join(cluster_id, node_id)

    run(scenario())


def test_a_folder_with_something_else_in_it_is_left_alone() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await disk.open("holiday.jpg", create=True)
        with pytest.raises(InvalidArgument, match=r"holiday\.jpg"):
            await Volume.open(disk, Random(1))
        disk = CrashDisk()
        await create(disk)
        with pytest.raises(Corrupt, match="no identity"):
            await Volume.open(disk, Random(1))

    run(scenario())


def test_every_flipped_bit_of_the_identity_is_found() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        volume = await Volume.open(disk, Random(1))
        await volume.join("cluster", 3)
        for offset in range(len(disk.content(IDENTITY).bytes)):
            disk.flip(IDENTITY, offset, 1 << offset % 8)
            try:
                found = await Volume.open(disk, Random(1))
            except (Corrupt, Unsupported):
                pass
            else:
                assert found.identity == volume.identity, "white space"
            disk.flip(IDENTITY, offset, 1 << offset % 8)

    run(scenario())


def test_replicas_are_listed_in_order_when_they_are_whole() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        volume = await Volume.open(disk, Random(1))
        ids = [ReplicaId(LogId(log), Epoch(1), StreamId(stream)) for log, stream in ((10, 2), (2, 1), (10, 1))]
        for replica in ids:
            log = await ReplicaLog.create(disk, volume.folder(replica), replica, b"", random=Random(1))
            await log.close()
        await disk.make_folder("replicas/99.1.1")
        await disk.open("replicas/stray", create=True)
        assert await volume.replicas() == sorted(ids)
        assert await volume.folders(ids[0]) == [volume.folder(ids[0])]
        for _ in range(2):
            await drop_folder(disk, volume.folder(ids[0]))
        assert await volume.folders(ids[0]) == []
        assert await volume.replicas() == sorted(ids[1:])
        with pytest.raises(NotFound):
            await ReplicaLog.open(disk, volume.folder(ids[0]), random=Random(1))

    run(scenario())


def test_a_replica_that_lost_its_spec_is_not_overwritten() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        await log.close()
        await disk.remove(f"{FOLDER}/spec")
        with pytest.raises(Corrupt, match="not overwritten"):
            await create(disk)
        volume = await Volume.open(CrashDisk(), Random(1))
        assert volume.folder(REPLICA) == FOLDER

    run(scenario())


@pytest.mark.parametrize("offset", [3, 9, 20, 41])
def test_a_damaged_spec_is_told(offset: int) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await (await create(disk)).close()
        disk.flip(f"{FOLDER}/spec", offset)
        with pytest.raises(VarlogError, match="spec"):
            await reopen(disk)

    run(scenario())


def test_a_folder_under_the_name_of_another_is_not_opened() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        for path in (FOLDER, f"{FOLDER}.2", f"{FOLDER}2", "replicas/9.9.9"):
            await (await ReplicaLog.create(disk, path, REPLICA, b"", random=Random(1))).close()
        for path in (FOLDER, f"{FOLDER}.2"):
            await (await ReplicaLog.open(disk, path, random=Random(1))).close()
        for path in (f"{FOLDER}2", "replicas/9.9.9"):
            with pytest.raises(Corrupt, match=f"holds replica {REPLICA}"):
                await ReplicaLog.open(disk, path, random=Random(1))

    run(scenario())


def test_of_two_folders_from_the_same_copy_none_is_dropped() -> None:
    async def scenario() -> None:
        disks = [CrashDisk(), CrashDisk()]
        volumes = [await Volume.open(disk, Random(number)) for number, disk in enumerate(disks)]
        for disk in disks:
            await (await create(disk)).close()
        with pytest.raises(Corrupt, match="lies on two volumes"):
            await newest(volumes)
        await (await ReplicaLog.create(disks[0], f"{FOLDER}.1", REPLICA, b"", random=Random(1))).close()
        with pytest.raises(Corrupt, match="lies on two volumes"):
            await newest(volumes)
        await volumes[0].drop_copy(REPLICA, 0)
        counting, replaced = await newest(volumes)
        assert ([each.copy for each in counting], [each.copy for each in replaced]) == ([1], [0])

    run(scenario())


@pytest.mark.parametrize("end", ["an error", "cancelled"])
def test_a_creation_that_is_broken_off_leaves_nothing(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its very last step, behind the spec."""

    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(1))
        sync_folder = disk.sync_folder
        stopped: list[str] = []

        async def stop(path: str) -> None:
            if path != "replicas" or stopped:
                await sync_folder(path)
                return
            stopped.append(path)
            if end == "an error":
                raise DiskFailed("input/output error")
            await asyncio.Event().wait()

        monkeypatch.setattr(disk, "sync_folder", stop)
        creating = asyncio.ensure_future(create(disk))
        while not stopped:
            await asyncio.sleep(0)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        assert not await disk.list("replicas")
        await append(await create(disk), batch(0))

    run(scenario())


@pytest.mark.parametrize("mark", [layout.DROPPED, layout.COPYING])
def test_what_was_half_dropped_or_copied_does_not_count_any_more_whatever_happens(mark: str) -> None:
    """Its mark may have been in the page cache alone: nobody has to remove it at once, and it never comes back."""

    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(1))
        await (await create(disk)).close()
        await disk.open(f"{FOLDER}/{mark}", create=True)
        volume = await Volume.open(disk, Random(1))
        assert volume.garbage == [(REPLICA, FOLDER)]
        assert await volume.replicas() == []
        disk.crash()
        volume = await Volume.open(disk, Random(1))
        assert volume.garbage == [(REPLICA, FOLDER)]
        assert await volume.replicas() == []

    run(scenario())


def test_what_an_interrupted_creation_left_goes_at_the_next_start_and_nothing_else() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        await Volume.open(disk, Random(1))
        log = await create(disk)
        await disk.open(f"{FOLDER}/free-7.data", create=True)
        await disk.remove(f"{FOLDER}/spec")
        await disk.open("replicas/stray", create=True)
        await Volume.open(disk, Random(1))
        assert await disk.list("replicas") == ["stray"]
        log = await create(disk)
        await append(log, batch(0))
        await disk.remove(f"{FOLDER}/spec")
        await Volume.open(disk, Random(1))
        assert f"{REPLICA}" in await disk.list("replicas"), "it has data"

    run(scenario())
