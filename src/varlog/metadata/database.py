"""One SQLite file of keys, values and versions. Blocking; used by one thread at a time; knows no event loop.

    kv        key TEXT, value BLOB, version INTEGER, crc INTEGER
    counter   revision INTEGER

`version` is the store's revision when the key was last changed; `crc` is the crc32c of all three, for SQLite
itself would not notice a flipped bit. The revision grows with every transaction, so a key that is deleted and
made again never repeats a version. It is the highest version in `kv`, unless the key that had it is gone: then
`counter` remembers.

Settings, each measured: write-ahead log with a sync per commit; checkpoints are our own, because SQLite's
automatic one overlooks a failed sync, and because ours runs when nobody waits; exclusive locking, which
spares the shared-memory file; the log's blocks are laid out at the start and then used over and over, which
halves the time of a commit against a growing file.

A transaction that nobody is before may be noted instead (`note`): it is durable in the file of `metadata.notes`, and
what it changed is kept in memory, before what SQLite has, until the next transaction of SQLite's takes all of it in.
"""

import os
import sqlite3
from pathlib import Path

from crc32c import crc32c

from varlog.base.errors import Corrupt, InvalidArgument, NoSpace, Unavailable, Unsupported, VarlogError
from varlog.metadata.notes import Changes, Notes
from varlog.ports.disk import DiskFailed
from varlog.ports.metadata import Change, Transaction, Versioned
from varlog.runtime.lock import LOCK_FILE, FolderLock, make_data_folder

FILE_NAME = "metadata.db"
NOTES_NAME = FILE_NAME + "-notes"
APPLICATION_ID = 0x56524C47
"""'VRLG' in the file's header tells ours from another program's."""
SQLITE_MAGIC = b"SQLite format 3\x00"
SCHEMA = 2
"""2: there may be notes beside the file."""
WITHOUT_NOTES = 1
PAGE_BYTES = 4096
LOG_PAGES = 1000
"""Size of the write-ahead log beyond which it is written back and begun anew."""

KNOWN_VERSIONS = 1024
"""Versions kept in memory, most of all that of the leader's key, which every transaction expects something of."""

_FINE = (LOCK_FILE, "lost+found")
"""What may lie in a folder in which a store is made."""

_UPSERT = (
    "INSERT INTO kv VALUES (?, ?, ?, ?) ON CONFLICT (key)"
    " DO UPDATE SET value = excluded.value, version = excluded.version, crc = excluded.crc"
)


def translate(error: sqlite3.Error, path: Path) -> VarlogError:
    """What an error of SQLite's means here."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return NoSpace(f"no space left for {path}")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return Corrupt(f"{path} is damaged or not a metadata store: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(f"{path} is in use by another program")
    return DiskFailed(f"{path}: {error}")


def prefix_end(prefix: str) -> str | None:
    """The first text after all that begin with `prefix`; None if there is none."""
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if 0xD800 <= point < 0xE000:  # these are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: length - 1] + chr(point)
    return None


def checksum(key: str, value: bytes, version: int) -> int:
    """What the `crc` column of a row must be."""
    return int(crc32c(value, crc32c(version.to_bytes(8, "little"), crc32c(key.encode()))))


class Database:
    """The file, locked for this process. Every method raises only errors of ours."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._log = folder / (FILE_NAME + "-wal")
        self.revision = 0
        self._revision_before = 0
        """When the transaction that is under way began."""
        self._versions: dict[str, int] = {}
        """Of keys that transactions expected something of, since they were last changed."""
        self._unwritten_pages = 0
        """Pages, at most, in the write-ahead log that the file itself lacks."""
        self._notes: Notes | None = None
        """None: there was no room for them."""
        self._noted: dict[str, Versioned | None] = {}
        """What notes say of keys, and SQLite does not know yet; None: deleted. Taken in by whatever begins a
        transaction of SQLite's, and empty again once that is durable."""
        make_data_folder(folder)
        self._lock = FolderLock(folder)
        try:
            self._connection = self._open()
        except BaseException:
            self._lock.release()
            raise

    # ------------------------------------------------------------ opening

    def _open(self) -> sqlite3.Connection:
        self._check_files()
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        try:
            self._configure(connection)
            self._check(connection)
            self._lay_out_log(connection)
            newest = "SELECT max(coalesce(max(version), 0), (SELECT revision FROM counter)) FROM kv"
            self.revision = connection.execute(newest).fetchone()[0]
            self._open_notes(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise translate(error, self._path) from error
            raise
        return connection

    def _check_files(self) -> None:
        """Stop before SQLite would take a file too short to judge, or none beside a log, for an empty database."""
        if self._path.exists() and self._path.stat().st_size:
            with self._path.open("rb") as file:
                if file.read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
                    raise Corrupt(f"{self._path} is not a metadata store")
        elif self._log.exists() and self._log.stat().st_size:
            raise Corrupt(f"{self._path} is missing or empty, but its log {self._log.name} is there")
        else:
            self._check_folder(self._path.parent)

    @staticmethod
    def _check_folder(folder: Path) -> None:
        """A new store is made in an empty folder only: not, by mistake, among the data of a node."""
        foreign = sorted(name for name in os.listdir(folder) if name not in _FINE and not name.startswith(FILE_NAME))
        if foreign:
            raise InvalidArgument(f"{folder} is neither empty nor the folder of a repository: it holds {foreign[0]!r}")

    def _configure(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # Foreign files are told apart before anything is written to them.
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            if found != APPLICATION_ID:
                raise Corrupt(f"{self._path} is a database of another program")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise DiskFailed(f"{self._path} is on a file system without write-ahead logging")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.executescript(
                f"""BEGIN IMMEDIATE;
                CREATE TABLE kv (
                    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL
                ) WITHOUT ROWID;
                CREATE TABLE counter (revision INTEGER NOT NULL);
                INSERT INTO counter VALUES (0);
                PRAGMA application_id = {APPLICATION_ID};
                PRAGMA user_version = {SCHEMA};
                COMMIT;"""
            )

    def _check(self, connection: sqlite3.Connection) -> None:
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema not in (WITHOUT_NOTES, SCHEMA):
            raise Unsupported(f"{self._path} has version {schema}, this release knows {SCHEMA}")
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise Corrupt(f"{self._path} is damaged: {verdict}")

    def _open_notes(self, connection: sqlite3.Connection) -> None:
        """Take back what notes say. Where there is no room to make them there are none yet: do without."""
        try:
            # What may have notes must be told apart without a write: a full volume is no reason to overlook them.
            if connection.execute("PRAGMA user_version").fetchone()[0] == WITHOUT_NOTES:
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            notes = Notes(self._path.parent / NOTES_NAME)
        except NoSpace:
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            return
        try:
            found = notes.read(self.revision)
        except BaseException:
            notes.close()
            raise
        for note in found:
            self._keep_noted(note.revision, note.changes)
        self._notes = notes

    def _lay_out_log(self, connection: sqlite3.Connection) -> None:
        """Make the write-ahead log as long as it will get, for a write into blocks that exist syncs faster."""
        if self._log.exists() and self._log.stat().st_size >= LOG_PAGES * PAGE_BYTES:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE ballast (bytes BLOB)")
            connection.execute("INSERT INTO ballast VALUES (zeroblob(?))", (LOG_PAGES * PAGE_BYTES,))
            connection.execute("COMMIT")
            connection.execute("DROP TABLE ballast")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            if connection.in_transaction:  # a full disk: do without
                connection.execute("ROLLBACK")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # ------------------------------------------------------------ reading

    def get(self, key: str) -> Versioned | None:
        if key in self._noted and not self._connection.in_transaction:
            return self._noted[key]
        rows = self._select("WHERE key = ?", key)
        return rows[0][1] if rows else None

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        end = prefix_end(prefix)
        if end is None:
            rows = self._select("WHERE key >= ? ORDER BY key", prefix)
        else:
            rows = self._select("WHERE key >= ? AND key < ? ORDER BY key", prefix, end)
        if not self._noted or self._connection.in_transaction:
            return rows
        found: dict[str, Versioned | None] = dict(rows)
        found |= {key: noted for key, noted in self._noted.items() if key.startswith(prefix)}
        return [(key, record) for key, record in sorted(found.items()) if record is not None]

    def _select(self, condition: str, *values: str) -> list[tuple[str, Versioned]]:
        try:
            rows = self._connection.execute(f"SELECT key, value, version, crc FROM kv {condition}", values).fetchall()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        for key, value, version, crc in rows:
            if checksum(key, value, version) != crc:
                raise Corrupt(f"{self._path}: the value of {key!r} does not match its checksum")
        return [(key, Versioned(value, version)) for key, value, version, _ in rows]

    # ------------------------------------------------------------ notes

    def note(self, transaction: Transaction) -> list[Change] | None:
        """Judge a transaction and make it durable by a note, if there is one for it; as `apply` and `commit` else.

        To be called between transactions of SQLite's.
        """
        if self._notes is None or transaction.delete_ranges or not self._expected(transaction):
            return self._apply_alone(transaction)
        changes: dict[str, bytes | None] = {**dict.fromkeys(transaction.delete), **transaction.put}
        if not self._notes.add(self.revision + 1, changes):
            return self._apply_alone(transaction)
        made = [Change(key, None) for key in transaction.delete if self.get(key) is not None]
        self._keep_noted(self.revision + 1, changes)
        return [*made, *[Change(key, value) for key, value in transaction.put.items()]]

    def _apply_alone(self, transaction: Transaction) -> list[Change] | None:
        changes = self.apply(transaction, alone=True)
        self.commit()
        return changes

    def _keep_noted(self, revision: int, changes: Changes) -> None:
        self.revision = revision
        for key, value in changes.items():
            self._noted[key] = None if value is None else Versioned(value, revision)
            self._versions.pop(key, None)

    def settle(self) -> None:
        """Have the file itself hold everything, as far as there is room: it is about to be closed."""
        if not self._noted:
            return
        try:
            self._begin()
            self.commit()
        except NoSpace:
            self.roll_back()  # the notes stay, and tell whoever opens it next

    def _begin(self) -> None:
        """Begin a transaction of SQLite's, with what is noted as its first part."""
        self._revision_before = self.revision
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._noted:
                self._take_in_notes()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _take_in_notes(self) -> None:
        execute = self._connection.execute
        for key, noted in self._noted.items():
            if noted is None:
                execute("DELETE FROM kv WHERE key = ?", (key,))
            else:
                execute(_UPSERT, (key, noted.value, noted.version, checksum(key, noted.value, noted.version)))
            self._unwritten_pages += 1
        execute("UPDATE counter SET revision = ?", (self.revision,))

    # ------------------------------------------------------------ writing

    def apply(self, transaction: Transaction, *, alone: bool = False) -> list[Change] | None:
        """Judge and apply one transaction, not yet durable; what it changed, or None if an expectation failed.

        The first one begins a transaction of SQLite's, which `commit` or `roll_back` ends. If it stays `alone`
        and changes one key, its one statement is a transaction by itself.
        """
        try:
            if not self._connection.in_transaction:
                single = (
                    alone and len(transaction.put) == 1 and not transaction.delete and not transaction.delete_ranges
                )
                if single and not self._noted:
                    self._revision_before = self.revision
                else:
                    self._begin()
            return self._change(transaction) if self._expected(transaction) else None
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _expected(self, transaction: Transaction) -> bool:
        known = self._versions
        for key, version in transaction.expect.items():
            if known.get(key) != version and self._version(key) != version:
                return False
        return True

    def _version(self, key: str) -> int:
        """0 if there is no such key."""
        known = self._versions.get(key)
        if known is None and key in self._noted and not self._connection.in_transaction:
            noted = self._noted[key]
            known = self._versions[key] = 0 if noted is None else noted.version
        if known is None:
            row = self._connection.execute("SELECT version FROM kv WHERE key = ?", (key,)).fetchone()
            known = self._versions[key] = 0 if row is None else row[0]
            if len(self._versions) > KNOWN_VERSIONS:
                self._versions.clear()
        return known

    def _forget_versions(self, transaction: Transaction) -> None:
        if transaction.delete_ranges:
            self._versions.clear()
        for key in (*transaction.put, *transaction.delete):
            self._versions.pop(key, None)

    def _change(self, transaction: Transaction) -> list[Change]:
        self.revision += 1
        self._forget_versions(transaction)
        execute = self._connection.execute
        deleted = self._delete(transaction) if transaction.delete or transaction.delete_ranges else []
        for key, value in transaction.put.items():
            execute(_UPSERT, (key, value, self.revision, checksum(key, value, self.revision)))
            self._unwritten_pages += 1 + len(value) // PAGE_BYTES
        self._unwritten_pages += 2 + len(deleted)
        return [
            *[Change(key, None) for key in deleted],
            *[Change(key, value) for key, value in transaction.put.items()],
        ]

    def _delete(self, transaction: Transaction) -> list[str]:
        execute = self._connection.execute
        deleted: list[str] = []
        for first, second in transaction.delete_ranges:
            rows = execute("DELETE FROM kv WHERE key >= ? AND key < ? RETURNING key", (first, second))
            deleted.extend(sorted(key for (key,) in rows))
        for key in transaction.delete:
            deleted.extend(key for (key,) in execute("DELETE FROM kv WHERE key = ? RETURNING key", (key,)).fetchall())
        if deleted:
            execute("UPDATE counter SET revision = ?", (self.revision,))
        return deleted

    def commit(self) -> None:
        """Make everything applied since the last one durable, with one sync."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
                self._forget_noted()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _forget_noted(self) -> None:
        """SQLite has them, on disk."""
        if self._noted and self._notes is not None:
            self._noted = {}
            self._notes.begin_anew()

    def roll_back(self) -> None:
        """Undo everything applied since the last commit."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        self.revision = self._revision_before
        self._versions.clear()

    @property
    def checkpoint_due(self) -> bool:
        """The log has become long."""
        return self._unwritten_pages >= LOG_PAGES

    def checkpoint_if_due(self) -> None:
        """Write the log back into the file once it is long. A full disk only puts it off."""
        if not self.checkpoint_due:
            return
        self._unwritten_pages = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            translated = translate(error, self._path)
            if not isinstance(translated, NoSpace):
                raise translated from error

    def close(self) -> None:
        try:
            self._connection.close()
            if self._notes is not None:
                self._notes.close()
        finally:
            self._lock.release()
