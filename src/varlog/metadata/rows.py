"""A row of the embedded store with its checksum, and what errors of SQLite's mean."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from varlog.base.errors import Corrupt, NoSpace, Unavailable, VarlogError
from varlog.ports.disk import DiskFailed
from varlog.ports.metadata import Versioned

NO_ROW = (AttributeError, OverflowError, TypeError, ValueError)
"""What reading damaged rows may raise: SQLite keeps the type of each value in the row, and a flipped bit changes it."""


def translate(error: sqlite3.Error, path: Path) -> VarlogError:
    """What an error of SQLite's means here."""
    if "Could not decode" in str(error):  # Python's word, not SQLite's: a text that is not UTF-8
        return Corrupt(f"{path} is damaged: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return NoSpace(f"no space left for {path}")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return Corrupt(f"{path} is damaged or not a metadata store: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(f"{path} is in use by another program")
    return DiskFailed(f"{path}: {error}")


def checksum(key: str, value: bytes, version: int) -> int:
    """What the `crc` column of a row must be."""
    return int(crc32c(value, crc32c(version.to_bytes(8, "little"), crc32c(key.encode()))))


def checked(
    connection: sqlite3.Connection, path: Path, condition: str, *values: str
) -> Iterator[tuple[str, Versioned]]:
    """The rows for which the condition holds, each as it was written."""
    try:
        for key, value, version, crc in connection.execute(
            f"SELECT key, value, version, crc FROM kv {condition}", values
        ):
            if checksum(key, value, version) != crc:
                raise Corrupt(f"{path}: the value of {key!r} does not match its checksum")
            yield key, Versioned(value, version)
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except NO_ROW as error:
        raise Corrupt(f"{path} holds a row of another kind: {error}") from error


def set_counter(connection: sqlite3.Connection, revision: int) -> None:
    """Remember the revision, with its checksum in the row behind it."""
    connection.execute(
        "INSERT OR REPLACE INTO counter (rowid, revision) VALUES (1, ?), (2, ?)",
        (revision, _counter_checksum(revision)),
    )


def counter(connection: sqlite3.Connection, path: Path) -> tuple[int, bool]:
    """The revision that is remembered, and whether it has a checksum: earlier releases gave it none."""
    rows = dict(connection.execute("SELECT rowid, revision FROM counter").fetchall())
    if 1 not in rows or (2 in rows and rows[2] != _counter_checksum(rows[1])):
        raise Corrupt(f"{path}: the revision does not match its checksum")
    return rows[1], 2 in rows


def _counter_checksum(revision: int) -> int:
    return int(crc32c(revision.to_bytes(8, "little")))
