"""What an opening believes is on disk when it returns, names included; and if that fails, nothing is believed again."""

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, append, batch, create, fill, reopen, run

from varlog.base.errors import NoSpace, ReplicaFailed
from varlog.ports.disk import DiskFailed


class Killed(BaseException):
    """The process is gone; what the cache has stays."""


class ForgetfulDisk(CrashDisk):
    """The next sync of the replica's folder ends otherwise."""

    next_folder_sync: BaseException | None = None

    async def sync_folder(self, path: str) -> None:
        if self.next_folder_sync is not None and path == FOLDER:
            error, self.next_folder_sync = self.next_folder_sync, None
            raise error
        await super().sync_folder(path)


def test_a_file_whose_name_only_the_cache_knew() -> None:
    """Killed between the name and its sync; opened again, and written to; then power is lost."""

    async def scenario() -> None:
        disk = ForgetfulDisk()
        log = await create(disk)
        disk.next_folder_sync = Killed()
        with pytest.raises(Killed):
            await fill(log, 2)
        assert disk.pending_moves
        again = await reopen(disk)
        for number in range(3):
            await append(again, batch(number, size=500))
        acknowledged = again.durable
        disk.crash()
        assert (await reopen(disk)).durable == acknowledged

    run(scenario())


def test_a_volume_that_is_full_just_when_a_file_has_its_name() -> None:
    """What goes to the file before it is beyond the end that the new one names: no opening would look there."""

    async def scenario() -> None:
        disk = ForgetfulDisk()
        log = await create(disk)
        disk.next_folder_sync = NoSpace("no room for the name")
        with pytest.raises((DiskFailed, ReplicaFailed)):
            await fill(log, 2)
        assert log.failure is not None
        with pytest.raises(ReplicaFailed):
            await reopen(disk)

    run(scenario())


@pytest.mark.parametrize("opened_with_more", [False, True])
def test_a_sync_that_fails_while_opening(opened_with_more: bool) -> None:
    """The zeros behind a torn group look like clean zeros ever after, and what they hide is still on disk."""

    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        if opened_with_more:
            await append(log, batch(0, size=600))
        disk.lose_power_in_sync = True
        log.stage_batches(log.appended, [batch(1, size=600), batch(2, size=600)])
        with pytest.raises(DiskFailed):
            await log.sync()
        disk.crash(lambda number: number % 3 != 1)
        disk.fail_syncs = 1
        with pytest.raises(ReplicaFailed, match="sync"):
            await reopen(disk)
        with pytest.raises(ReplicaFailed, match="not trusted again"):
            await reopen(disk)

    run(scenario())


def test_an_opening_that_finds_nothing_syncs_all_the_same() -> None:
    """Zeros of an earlier opening, which was killed before it synced them, may be in the cache only."""

    async def scenario() -> None:
        disk = CrashDisk()
        await (await create(disk)).close()
        before = disk.syncs
        await (await reopen(disk)).close()
        assert disk.syncs > before

    run(scenario())
