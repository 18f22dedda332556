"""Disks that fail, fill up and lose what was not synced, under the files of the embedded store."""

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from varlog.base.errors import Corrupt
from varlog.metadata.database import Database
from varlog.metadata.notes import PLACE_BYTES, Notes, make_notes
from varlog.metadata.opening import FILE_NAME, LOG_BYTES, LOG_NAME, NOTES_NAME, PAGE_BYTES
from varlog.metadata.sqlite import SqliteStore
from varlog.ports.disk import DiskFailed
from varlog.ports.metadata import Transaction


def killed(folder: Path, *transactions: Transaction, noted: int = 0) -> Path:
    """A store after these transactions and so many notes, as a process that dies leaves it."""
    database = Database(folder.with_name("running"))
    for transaction in transactions:
        database.apply(transaction)
        database.commit()
    for number in range(noted):
        database.note(Transaction(put={f"k{number}": b"1"}))
    shutil.copytree(folder.with_name("running"), folder)
    database.close()
    return folder


class Syncs:
    """Which bytes of which file were written and then synced, by Python's own calls."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: dict[str, bytes] = {}
        self.failing = ""
        """A sync of the file of this name fails."""
        self._written: dict[str, bytearray] = {}
        self._wrap(patch, "pwrite", self._pwrite)
        self._wrap(patch, "pwritev", self._pwritev)
        self._wrap(patch, "fsync", self._sync)
        self._wrap(patch, "fdatasync", self._sync)

    @staticmethod
    def _wrap(patch: pytest.MonkeyPatch, name: str, call: Callable[..., Any]) -> None:
        patch.setattr(os, name, partial(call, getattr(os, name)))

    def _pwrite(self, original: Any, fd: int, data: bytes, offset: int) -> int:
        self._note(fd, bytes(data), offset)
        return int(original(fd, data, offset))

    def _pwritev(self, original: Any, fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        self._note(fd, b"".join(buffers), offset)
        written = int(original(fd, buffers, offset, flags))
        if flags & os.RWF_DSYNC:
            self._sync(lambda _: None, fd)
        return written

    def _note(self, fd: int, data: bytes, offset: int) -> None:
        file = self._written.setdefault(name_of(fd), bytearray())
        file.extend(bytes(max(0, offset + len(data) - len(file))))
        file[offset : offset + len(data)] = data

    def _sync(self, original: Any, fd: int) -> None:
        name = name_of(fd)
        if name == self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(fd)
        self.synced[name] = bytes(self._written.get(name, b""))


def name_of(fd: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{fd}")).name


def test_what_is_believed_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = killed(tmp_path / "a", Transaction(put={"a": b"1"}), Transaction(put={"b": b"2"}), noted=3)
    log, notes = ((folder / name).read_bytes() for name in (LOG_NAME, NOTES_NAME))
    syncs = Syncs(monkeypatch)
    database = Database(folder)
    assert [key for key, _ in database.scan("")] == ["a", "b", "k0", "k1", "k2"]
    assert syncs.synced[LOG_NAME][: len(log)] == log
    assert syncs.synced[NOTES_NAME][: 3 * PLACE_BYTES].rstrip(b"\0") == notes.rstrip(b"\0")
    assert "a" in syncs.synced  # the folder itself
    database.close()


@pytest.mark.parametrize("name", [LOG_NAME, NOTES_NAME, "a"])
def test_what_cannot_be_brought_to_disk_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = killed(tmp_path / "a", Transaction(put={"a": b"1"}), noted=1)
    with monkeypatch.context() as patch:
        Syncs(patch).failing = name
        with pytest.raises(DiskFailed, match=r"metadata\.db.*Input/output error"):
            Database(folder)
    database = Database(folder)  # unlocked, and all of it there
    assert [key for key, _ in database.scan("")] == ["a", "k0"]
    database.close()


class Failing(sqlite3.Connection):
    """Of a disk that fails when the log is written back."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA wal_checkpoint"):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, *parameters)


def test_a_log_that_cannot_be_written_back_is_not_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = killed(tmp_path / "a", Transaction(put={"a": b"1"}))
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    with pytest.raises(DiskFailed, match="disk I/O error"):
        Database(folder)


def test_the_log_does_not_grow_with_every_crash(tmp_path: Path) -> None:
    large = Transaction(put={"a": bytes(LOG_BYTES // 3)})
    folder = killed(tmp_path / "0", large)
    size = (folder / LOG_NAME).stat().st_size
    for number in range(1, 4):
        database = Database(folder)
        database.apply(large)
        database.commit()
        folder = Path(shutil.copytree(folder, tmp_path / str(number)))
        database.close()
    assert (folder / LOG_NAME).stat().st_size == size


def test_what_once_filled_the_log_is_removed(tmp_path: Path) -> None:
    """An earlier release put a table there, and may have died before it was gone."""
    database = Database(tmp_path)
    database._connection.execute("CREATE TABLE ballast (bytes BLOB)")
    database._connection.execute("INSERT INTO ballast VALUES (zeroblob(100000))")
    database.close()
    for _ in range(2):
        database = Database(tmp_path)
        assert not database._connection.execute("SELECT name FROM sqlite_master WHERE name = 'ballast'").fetchall()
        database.close()


def test_a_volume_without_room_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets as much as there is, tells it by counts, and then nothing: all of that is given back."""
    room = 1 << 20
    pwrite = os.pwrite

    def write(fd: int, data: bytes, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data[: room - offset], offset)

    monkeypatch.setattr(os, "pwrite", write)
    database = Database(tmp_path)
    assert (tmp_path / LOG_NAME).stat().st_size < room // 2
    database.note(Transaction(put={"a": b"1"}))
    database.settle()
    assert [key for key, _ in database.scan("")] == ["a"]
    database.close()


@pytest.mark.parametrize(("blocks", "free", "laid_out"), [(1000, 100, False), (2000, 1500, True), (0, 0, True)])
def test_nothing_is_laid_out_that_would_fill_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, laid_out: bool
) -> None:
    """No blocks at all: the volume has no limit."""
    volume = SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: volume)
    database = Database(tmp_path)
    assert ((tmp_path / LOG_NAME).stat().st_size >= LOG_BYTES) == laid_out
    database.close()


class Full(sqlite3.Connection):
    """Of a volume that has no room for the log to be written back."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA wal_checkpoint"):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *parameters)


def test_a_volume_without_room_for_what_the_log_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = killed(tmp_path / "a", Transaction(put={"a": b"1"}), noted=1)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Full))
    database = Database(folder)
    assert [key for key, _ in database.scan("")] == ["a", "k0"]
    database.close()


@pytest.mark.parametrize("bad", [0, 8 * PLACE_BYTES])
def test_a_bad_place_in_the_notes_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    """A read across it gives what is before it, without an error."""
    folder = killed(tmp_path / "a", noted=20)
    pread = os.pread

    def read(fd: int, size: int, offset: int) -> bytes:
        if name_of(fd) == NOTES_NAME and offset <= bad < offset + size:
            if offset == bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            size = bad - offset
        return pread(fd, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", read)
        with pytest.raises(DiskFailed, match="Input/output error"):
            Database(folder)
        patch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 1000), offset))
        database = Database(folder)
        assert len(database.scan("")) == 20
        database.close()


def test_a_store_whose_end_fails_gives_its_folder_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Database) -> None:
        raise DiskFailed("sync failed")

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "settle", fail)
            with pytest.raises(DiskFailed, match="sync failed"):
                await store.close()
        await (await SqliteStore.open(tmp_path)).close()

    asyncio.run(story())


def test_a_store_whose_opening_is_given_up_gives_its_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[SqliteStore] = []

    async def story() -> None:
        original = SqliteStore._run

        def run(self: SqliteStore) -> None:
            original(self)
            ended.append(self)

        monkeypatch.setattr(SqliteStore, "_run", run)
        opening = asyncio.ensure_future(SqliteStore.open(tmp_path))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        while not ended:
            await asyncio.sleep(0.01)
        await (await SqliteStore.open(tmp_path)).close()

    asyncio.run(story())


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_volume_that_cannot_write_and_sync_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tried: list[int] = []

    def refuse(*_: object) -> int:
        tried.append(number)
        raise OSError(number, os.strerror(number))

    path = tmp_path / "notes"
    make_notes(path)
    notes = Notes(path)
    monkeypatch.setattr(os, "pwritev", refuse)
    syncs = Syncs(monkeypatch)
    for revision in (1, 2):
        assert notes.add(revision, {"a": b"1"})
        assert syncs.synced["notes"] == path.read_bytes()[: len(syncs.synced["notes"])]
    assert len(syncs.synced["notes"]) > PLACE_BYTES
    assert len(tried) == 1  # that is remembered
    assert [note.revision for note in notes.read(0)] == [1, 2]
    notes.close()


ALTERED = [
    "key = CAST(x'ff61' AS TEXT)",
    "key = x'6161'",
    "value = 5",
    "value = 'text'",
    "value = x'32'",
    "version = -1",
    "version = 'text'",
    "version = version + (1 << 40)",
    "crc = 'text'",
]


@pytest.mark.parametrize("altered", ALTERED)
def test_a_row_with_flipped_bits_is_told_as_damage(tmp_path: Path, altered: str) -> None:
    database = Database(tmp_path)
    database.apply(Transaction(put={"a": b"1"}))
    database.commit()
    database._connection.execute(f"UPDATE kv SET {altered}")
    with pytest.raises(Corrupt, match=r"metadata\.db"):
        database.scan("")
    database.close()
    with pytest.raises(Corrupt, match=r"metadata\.db"):
        Database(tmp_path)


def test_files_that_cannot_be_read_are_errors_of_ours(tmp_path: Path) -> None:
    for name in (FILE_NAME, LOG_NAME, NOTES_NAME):
        folder = killed(tmp_path / name, noted=1)
        shutil.rmtree(folder.with_name("running"))
        (folder / name).unlink()
        (folder / name).mkdir()
        with pytest.raises(DiskFailed, match=f"{FILE_NAME}.*Is a directory"):
            Database(folder)


class Broken(sqlite3.Connection):
    """Of a disk that cannot be read any more."""

    broken = False

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.broken:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, *parameters)


def test_an_expectation_that_cannot_be_judged_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Broken))
    database = Database(tmp_path)
    monkeypatch.setattr(Broken, "broken", True)
    with pytest.raises(DiskFailed, match="disk I/O error"):
        database.note(Transaction(expect={"a": 0}, put={"a": b"1"}))
    monkeypatch.setattr(Broken, "broken", False)
    database.close()


def test_a_flipped_bit_in_a_value(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        await store.commit(Transaction(put={"a": b"precious value"}))
        await store.close()
        path = tmp_path / "metadata.db"
        path.write_bytes(path.read_bytes().replace(b"precious value", b"precious valug"))
        with pytest.raises(Corrupt, match="'a' does not match its checksum"):
            await SqliteStore.open(tmp_path)

    asyncio.run(story())


def test_a_damaged_page(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        await store.commit(Transaction(put={f"key{n:04}": b"v" * 200 for n in range(200)}))
        await store.close()
        path = tmp_path / "metadata.db"
        data = path.read_bytes()
        page = data.index(b"key0100") // 4096 * 4096
        path.write_bytes(data[:page] + b"\xff" * 4096 + data[page + 4096 :])
        with pytest.raises(Corrupt):
            await SqliteStore.open(tmp_path)

    asyncio.run(story())


def revisions(database: Database) -> list[int]:
    return [revision for (revision,) in database._connection.execute("SELECT revision FROM counter ORDER BY rowid")]


@pytest.mark.parametrize("bit", [1, 20, 40, 62])
def test_a_flipped_bit_in_the_revision_makes_no_note_older(tmp_path: Path, bit: int) -> None:
    database = Database(tmp_path / "running")
    database.note(Transaction(put={"a": b"1"}, delete=["b"]))
    database.settle()
    database._connection.execute("UPDATE counter SET revision = revision | ? WHERE rowid = 1", (1 << bit,))
    database.note(Transaction(put={"a": b"2"}))
    folder = shutil.copytree(tmp_path / "running", tmp_path / "a")
    database.close()
    with pytest.raises(Corrupt, match="revision does not match its checksum"):
        Database(folder)


def test_a_revision_from_before_it_had_a_checksum_gets_one(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.note(Transaction(put={"a": b"1"}))
    database.settle()
    kept = revisions(database)
    database._connection.execute("DELETE FROM counter WHERE rowid = 2")
    database.close()
    database = Database(tmp_path)
    assert (database.revision, revisions(database)) == (1, kept)
    database.close()


FRAME_BYTES = 24 + PAGE_BYTES


def ends_in_log(data: bytes) -> list[int]:
    """Where frames that end a transaction begin."""
    places = range(32, len(data) - FRAME_BYTES + 1, FRAME_BYTES)
    return [at for at in places if data[at + 8 : at + 16] == data[16:24] and any(data[at + 4 : at + 8])]


def test_a_damaged_transaction_before_others_is_no_end_of_the_log(tmp_path: Path) -> None:
    """SQLite forgets it and all behind it without a word."""
    folder = killed(tmp_path / "a", *(Transaction(put={f"k{number}": b"1"}) for number in range(6)))
    log = folder / LOG_NAME
    whole = log.read_bytes()
    ends = ends_in_log(whole)
    assert len(ends) >= 6
    for flipped in [
        20,
        *(at + 100 for at in ends[:-1]),
        *(at + 4 for at in ends[1:-2]),
        *(at + 20 for at in ends[:-2]),
    ]:
        log.write_bytes(whole[:flipped] + bytes([whole[flipped] ^ 4]) + whole[flipped + 1 :])
        with pytest.raises(Corrupt, match=r"is damaged in frame|has a damaged header"):
            Database(folder)
    log.write_bytes(whole)
    database = Database(folder)
    assert len(database.scan("")) == 6
    database.close()


def test_a_torn_transaction_is_the_end_of_the_log(tmp_path: Path) -> None:
    large = Transaction(put={"large": bytes(5 * PAGE_BYTES)})
    folder = killed(tmp_path / "a", Transaction(put={"a": b"1"}), large)
    data = (folder / LOG_NAME).read_bytes()
    *_, before, last = ends_in_log(data)
    assert last - before > 5 * FRAME_BYTES
    for number, lost in enumerate(range(before + FRAME_BYTES, last + 1, FRAME_BYTES)):
        copied = Path(shutil.copytree(folder, tmp_path / str(number)))
        (copied / LOG_NAME).write_bytes(data[:lost] + bytes(512) + data[lost + 512 :])
        database = Database(copied)
        assert [key for key, _ in database.scan("")] == ["a"]
        database.close()
