"""Opening the embedded store: the files of its folder are told from others, brought to disk, laid out, and checked.

    metadata.db         SQLite's file
    metadata.db-wal     its write-ahead log
    metadata.db-notes   see `metadata.notes`

They belong together. Where one of them tells that another is not what it was, the store is not opened.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from varlog.base.errors import Corrupt, InvalidArgument, NoSpace, Unsupported
from varlog.metadata.blocks import fill, write_again
from varlog.metadata.notes import Note, Notes, make_notes
from varlog.metadata.rows import NO_ROW, checked, counter, set_counter, translate
from varlog.metadata.write_ahead import check_log
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk_worker import translate as translate_system
from varlog.runtime.lock import LOCK_FILE, sync_folder

FILE_NAME = "metadata.db"
LOG_NAME = FILE_NAME + "-wal"
NOTES_NAME = FILE_NAME + "-notes"
APPLICATION_ID = 0x56524C47
"""'VRLG' in the file's header tells ours from another program's."""
SQLITE_MAGIC = b"SQLite format 3\x00"
WITHOUT_NOTES = 1
"""Schema of a new store, and of one that had no room for notes."""
SCHEMA = 2
"""There is a file of notes beside it, and it counts."""
PAGE_BYTES = 4096
LOG_PAGES = 1000
"""Size of the write-ahead log beyond which it is written back and begun anew."""
LOG_BYTES = 32 + LOG_PAGES * (24 + PAGE_BYTES)
"""With a header of its own, and one for each page."""

_FINE = (LOCK_FILE, "lost+found")
"""What may lie in a folder in which a store is made."""


class Opened(NamedTuple):
    """A store as it was found or made."""

    connection: sqlite3.Connection
    revision: int
    """SQLite's."""
    notes: Notes | None
    """None: there was no room for them."""
    found: list[Note]
    """Those that continue the revision."""


def open_store(folder: Path) -> Opened:
    """Open the store in a folder that is locked for this process, made if missing. Raises only errors of ours."""
    path = folder / FILE_NAME
    try:
        _check_files(path)
        _bring_log_to_disk(folder / LOG_NAME)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            return _open_database(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except OSError as error:
        raise translate_system(error, str(path)) from error
    except NO_ROW as error:
        raise Corrupt(f"{path} is damaged: {error}") from error


def _open_database(connection: sqlite3.Connection, path: Path) -> Opened:
    _configure(connection, path)
    _check(connection, path)
    _lay_out_log(path.with_name(LOG_NAME))
    _write_log_back(connection)
    revision = _read_revision(connection, path)
    notes, found = _open_notes(connection, path.with_name(NOTES_NAME), revision)
    return Opened(connection, revision, notes, found)


def _check_files(path: Path) -> None:
    """Stop before SQLite would take a file too short to judge, or none beside others, for an empty database."""
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
                raise Corrupt(f"{path} is not a metadata store")
        return
    for beside in (path.with_name(LOG_NAME), path.with_name(NOTES_NAME)):
        if beside.exists() and beside.stat().st_size:
            raise Corrupt(f"{path} is missing or empty, but {beside.name} is there: restore the folder from a copy")
    _check_folder(path.parent)


def _check_folder(folder: Path) -> None:
    """A new store is made in an empty folder only: not, by mistake, among the data of a node."""
    foreign = sorted(name for name in os.listdir(folder) if name not in _FINE and not name.startswith(FILE_NAME))
    if foreign:
        raise InvalidArgument(f"{folder} is neither empty nor the folder of a repository: it holds {foreign[0]!r}")


def _bring_log_to_disk(log: Path) -> None:
    """SQLite believes whatever it can read of the log, also where a sync failed or was never made, and nothing else."""
    if log.exists():
        with log.open("r+b", buffering=0) as file:
            write_again(file.fileno())
        check_log(log)
    sync_folder(log.parent)


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    # Foreign files are told apart before anything is written to them.
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        if found != APPLICATION_ID:
            raise Corrupt(f"{path} is a database of another program")
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise DiskFailed(f"{path} is on a file system without write-ahead logging")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        _make(connection)


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        """CREATE TABLE kv (
            key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL
        ) WITHOUT ROWID"""
    )
    connection.execute("CREATE TABLE counter (revision INTEGER NOT NULL)")
    set_counter(connection, 0)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {WITHOUT_NOTES}")
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if schema not in (WITHOUT_NOTES, SCHEMA):
        raise Unsupported(f"{path} has version {schema}, this release knows {SCHEMA}")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise Corrupt(f"{path} is damaged: {verdict}")


def _read_revision(connection: sqlite3.Connection, path: Path) -> int:
    """From rows that match their checksums, all of them: one flipped bit more, and every note would seem older."""
    revision, has_checksum = counter(connection, path)
    for _, record in checked(connection, path, ""):
        revision = max(revision, record.version)
    if not has_checksum:
        with _if_there_is_room():
            set_counter(connection, revision)
    return revision


def _open_notes(connection: sqlite3.Connection, path: Path, revision: int) -> tuple[Notes | None, list[Note]]:
    """What notes say. What may have some is told apart without a write: a full volume is no reason to overlook them."""
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if schema == WITHOUT_NOTES and not _begin_notes(connection, path):
        return None, []
    notes = Notes(path)
    try:
        return notes, notes.read(revision)
    except BaseException:
        notes.close()
        raise


def _begin_notes(connection: sqlite3.Connection, path: Path) -> bool:
    """Make the file anew, and only then have the database say that it belongs to it. False: there is no room."""
    try:
        make_notes(path)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    except NoSpace:
        return False
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        return False
    return True


def _lay_out_log(log: Path) -> None:
    """Make the write-ahead log as long as it will get, for a write into blocks that exist syncs faster.

    Zeros are no frames to SQLite. On a full volume: do without.
    """
    with log.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            fill(file.fileno(), LOG_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            file.truncate(size)
        os.fsync(file.fileno())


def _write_log_back(connection: sqlite3.Connection) -> None:
    """The log that was found is begun anew, else it would grow with every crash. A full volume puts it off."""
    with _if_there_is_room():
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        # Earlier releases filled the log with this table, and could die before it was gone.
        connection.execute("DROP TABLE IF EXISTS ballast")


@contextmanager
def _if_there_is_room() -> Iterator[None]:
    """What SQLite has no room for can wait."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
