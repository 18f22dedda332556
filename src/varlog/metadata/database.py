"""One SQLite file of keys, values and versions. Blocking; used by one thread at a time; knows no event loop.

    kv        key TEXT, value BLOB, version INTEGER, crc INTEGER
    counter   revision INTEGER; in a second row its crc

`version` is the store's revision when the key was last changed; `crc` is the crc32c of all three, for SQLite
itself would not notice a flipped bit. The revision grows with every transaction, so a key that is deleted and
made again never repeats a version. It is the highest version in `kv`, unless the key that had it is gone, or there
never was one: then `counter` remembers.

Settings, each measured: write-ahead log with a sync per commit; checkpoints are our own, because SQLite's
automatic one overlooks a failed sync, and because ours runs when nobody waits; exclusive locking, which
spares the shared-memory file; the log's blocks are laid out at the start and then used over and over, which
halves the time of a commit against a growing file.

A transaction that nobody is before may be noted instead (`note`): it is durable in the file of `metadata.notes`, and
what it changed is kept in memory, before what SQLite has, until the next transaction of SQLite's takes all of it in.
"""

import sqlite3
from pathlib import Path

from varlog.base.errors import NoSpace
from varlog.metadata.notes import Changes
from varlog.metadata.opening import FILE_NAME, LOG_PAGES, PAGE_BYTES, open_store
from varlog.metadata.rows import checked, checksum, set_counter, translate
from varlog.ports.metadata import Change, Transaction, Versioned
from varlog.runtime.lock import FolderLock, make_data_folder

KNOWN_VERSIONS = 1024
"""Versions kept in memory, most of all that of the leader's key, which every transaction expects something of."""

_UPSERT = (
    "INSERT INTO kv VALUES (?, ?, ?, ?) ON CONFLICT (key)"
    " DO UPDATE SET value = excluded.value, version = excluded.version, crc = excluded.crc"
)


def prefix_end(prefix: str) -> str | None:
    """The first text after all that begin with `prefix`; None if there is none."""
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if 0xD800 <= point < 0xE000:  # these are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: length - 1] + chr(point)
    return None


class Database:
    """The file, locked for this process. Every method raises only errors of ours."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._versions: dict[str, int] = {}
        """Of keys that transactions expected something of, since they were last changed."""
        self._unwritten_pages = 0
        """Pages, at most, in the write-ahead log that the file itself lacks."""
        self._noted: dict[str, Versioned | None] = {}
        """What notes say of keys, and SQLite does not know yet; None: deleted. Taken in by whatever begins a
        transaction of SQLite's, and empty again once that is durable."""
        make_data_folder(folder)
        self._lock = FolderLock(folder)
        try:
            self._connection, self._durable_revision, self._notes, found = open_store(folder)
        except BaseException:
            self._lock.release()
            raise
        self.revision = self._durable_revision
        """As of what was applied; that of what is durable is another while a transaction is under way."""
        for note in found:
            self._keep_noted(note.revision, note.changes)

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
        return list(checked(self._connection, self._path, condition, *values))

    # ------------------------------------------------------------ notes

    def note(self, transaction: Transaction) -> list[Change] | None:
        """Judge a transaction and make it durable by a note, if there is one for it; as `apply` and `commit` else.

        To be called between transactions of SQLite's.
        """
        if self._notes is None or transaction.delete_ranges or not self._expected(transaction):
            return self._apply_alone(transaction)
        changes: dict[str, bytes | None] = {**dict.fromkeys(transaction.delete), **transaction.put}
        # Whatever can fail without an effect comes before the note.
        made = [Change(key, None) for key in transaction.delete if self.get(key) is not None]
        if not self._notes.add(self.revision + 1, changes):
            return self._apply_alone(transaction)
        self._keep_noted(self.revision + 1, changes)
        return [*made, *[Change(key, value) for key, value in transaction.put.items()]]

    def _apply_alone(self, transaction: Transaction) -> list[Change] | None:
        changes = self.apply(transaction, alone=True)
        self.commit()
        return changes

    @property
    def _notes_wait(self) -> bool:
        """For SQLite to take them in; perhaps for their revision alone."""
        return self._notes is not None and self._notes.in_use

    def _keep_noted(self, revision: int, changes: Changes) -> None:
        self.revision = self._durable_revision = revision
        for key, value in changes.items():
            self._noted[key] = None if value is None else Versioned(value, revision)
            self._versions.pop(key, None)

    def settle(self) -> None:
        """Have the file itself hold everything, as far as there is room: it is about to be closed."""
        if not self._notes_wait:
            return
        try:
            self._begin()
            self.commit()
        except NoSpace:
            self.roll_back()  # the notes stay, and tell whoever opens it next

    def _begin(self) -> None:
        """Begin a transaction of SQLite's, with what is noted as its first part."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._notes_wait:
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
        set_counter(self._connection, self.revision)

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
                if not single or self._notes_wait:
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
        if known is None:
            if len(self._versions) >= KNOWN_VERSIONS:
                self._versions.clear()
            known = self._versions[key] = self._find_version(key)
        return known

    def _find_version(self, key: str) -> int:
        if key in self._noted and not self._connection.in_transaction:
            noted = self._noted[key]
            return 0 if noted is None else noted.version
        try:
            row = self._connection.execute("SELECT version FROM kv WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        version: int = 0 if row is None else row[0]
        return version

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
        if not transaction.put:  # no row tells of this revision
            set_counter(self._connection, self.revision)
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
        return deleted

    def commit(self) -> None:
        """Make everything applied since the last one durable, with one sync."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
                self._forget_noted()
            self._durable_revision = self.revision
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _forget_noted(self) -> None:
        """SQLite has them, on disk."""
        if self._notes is not None and self._notes_wait:
            self._noted = {}
            self._notes.begin_anew()

    def roll_back(self) -> None:
        """Undo everything applied since the last commit."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        self.revision = self._durable_revision
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
        finally:
            if self._notes is not None:
                self._notes.close()
            self._lock.release()
