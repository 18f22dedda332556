"""Small transactions that are durable before SQLite has them: crashes, torn and flipped bytes, and what others see."""

import errno
import os
import random
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from varlog.base.errors import Corrupt
from varlog.metadata.database import Database
from varlog.metadata.notes import FILE_BYTES, PLACE_BYTES, Notes, make_notes
from varlog.metadata.opening import FILE_NAME, NOTES_NAME, SCHEMA, WITHOUT_NOTES
from varlog.ports.disk import DiskFailed
from varlog.ports.metadata import Change, Transaction, Versioned

NOTE_BYTES = 20 + 8 + 2 + 600
"""Of a note with one key of two letters and a value of 600 bytes."""


def crashed(folder: Path, to: Path) -> Path:
    """What a process that dies now leaves behind."""
    shutil.copytree(folder, to)
    return to


def contents(database: Database) -> dict[str, Versioned]:
    return dict(database.scan(""))


def in_sqlite(folder: Path) -> list[str]:
    """Keys that SQLite itself has."""
    connection = sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro", uri=True)
    try:
        return [key for (key,) in connection.execute("SELECT key FROM kv ORDER BY key")]
    finally:
        connection.close()


def set_schema(folder: Path, schema: int) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.close()


def test_a_note_is_seen_and_survives_before_sqlite_has_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "a")
    database.apply(Transaction(put={"old": b"1", "gone": b"2"}))
    database.commit()
    assert database.note(Transaction(put={"new": b"3"}, delete=["gone", "never"])) == [
        Change("gone", None),
        Change("new", b"3"),
    ]
    seen = contents(database)
    assert {key: record.value for key, record in seen.items()} == {"old": b"1", "new": b"3"}
    assert database.get("gone") is None
    assert database.get("new") == seen["new"]
    after = crashed(tmp_path / "a", tmp_path / "b")
    database.close()
    assert "new" not in in_sqlite(after)
    again = Database(after)
    assert contents(again) == seen
    assert again.revision == 2
    again.settle()
    again.close()
    assert in_sqlite(after) == ["new", "old"]
    again = Database(after)
    assert (contents(again), again.revision) == (seen, 2)
    again.close()


def test_an_expectation_sees_notes(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.note(Transaction(put={"a": b"1"}))
    assert database.note(Transaction(expect={"a": 0}, put={"a": b"2"})) is None
    assert database.note(Transaction(expect={"a": 1}, put={"a": b"2"})) == [Change("a", b"2")]
    assert database.apply(Transaction(expect={"a": 1}, put={"a": b"3"})) is None
    database.commit()
    assert database.get("a") == Versioned(b"2", 2)
    database.close()


def test_any_history_reads_as_if_there_were_no_notes(tmp_path: Path) -> None:
    """Random transactions, noted or not, rolled back, crashed and opened again, beside a plain dictionary."""
    chance = random.Random(7)
    folder = tmp_path / "0"
    database = Database(folder)
    model: dict[str, Versioned] = {}
    revision = 0
    for step in range(600):
        keys = [f"k{chance.randrange(12)}" for _ in range(3)]
        value = chance.randbytes(chance.choice([5, 700]))
        transaction = Transaction(put={keys[0]: value}, delete=[key for key in keys[1:] if key != keys[0]])
        if chance.random() < 0.1:
            transaction.delete_ranges = [("x", "y")]
        if chance.random() < 0.3:
            transaction.put = {}  # it may well change nothing
        if chance.random() < 0.2:
            transaction.delete = []
        kind = chance.random()
        if kind < 0.8:
            database.note(transaction)
        else:
            database.apply(transaction)
            database.apply(Transaction(expect={keys[0]: revision + 9}, put={"never": b""}))
            if kind < 0.9:
                database.roll_back()
            else:
                database.commit()
        if not 0.8 <= kind < 0.9:
            revision += 1
            for key in transaction.delete:
                model.pop(key, None)
            model |= {key: Versioned(value, revision) for key in transaction.put}
        if chance.random() < 0.02:
            folder = crashed(folder, tmp_path / str(step + 1))
            database.close()
            database = Database(folder)
        assert contents(database) == model
        assert database.revision == revision
    database.close()


CHANGES_NOTHING = [
    Transaction(expect={"never": 0}),
    Transaction(delete=["never"]),
    Transaction(delete_ranges=[("x", "y")]),
]


@pytest.mark.parametrize("transaction", CHANGES_NOTHING)
@pytest.mark.parametrize("noted", [False, True])
def test_a_transaction_that_changes_nothing_counts(tmp_path: Path, transaction: Transaction, noted: bool) -> None:
    """Whoever comes after it does, too, noted or not."""
    database = Database(tmp_path / "a")
    for number in range(2):
        if noted:
            assert database.note(transaction) == []
        else:
            assert database.apply(transaction) == []
            database.commit()
        if number:
            assert database.apply(Transaction(put={"b": b"2"}), alone=True) == [Change("b", b"2")]
            database.commit()
        database.note(Transaction(put={"c": b"3"}))
        after = crashed(tmp_path / "a", tmp_path / str(number))
        again = Database(after)
        assert (contents(again), again.revision) == (contents(database), database.revision)
        again.close()
    assert database.revision == 5
    database.close()


def test_an_undone_round_leaves_the_revision_of_what_is_durable(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.apply(Transaction(put={"a": b"1"}))
    database.commit()
    database.note(Transaction(put={"b": b"1"}))
    database.roll_back()  # of reads only: nothing had begun
    assert database.revision == 2
    database.close()


def noted(path: Path, count: int) -> bytes:
    """So many notes, of two places each; the bytes of their file."""
    make_notes(path)
    notes = Notes(path)
    for number in range(count):
        assert notes.add(number + 1, {f"k{number}": b"v" * 600})
    notes.close()
    return path.read_bytes()


def read(path: Path, data: bytes) -> list[int]:
    """The revisions that are found in a file of these bytes."""
    path.write_bytes(data)
    notes = Notes(path)
    try:
        return [note.revision for note in notes.read(0)]
    finally:
        notes.close()


def test_a_torn_note_is_the_end(tmp_path: Path) -> None:
    whole = noted(tmp_path / "whole", 3)
    last = 2 * 2 * PLACE_BYTES
    for length in range(0, NOTE_BYTES, 7):
        torn = whole[: last + length] + bytes(FILE_BYTES - last - length)
        assert read(tmp_path / "torn", torn) == [1, 2]
    assert read(tmp_path / "torn", whole) == [1, 2, 3]


def test_a_note_is_written_over_a_torn_one(tmp_path: Path) -> None:
    database = Database(tmp_path / "a")
    for number in range(3):
        database.note(Transaction(put={f"k{number}": b"v" * 600}))
    after = crashed(tmp_path / "a", tmp_path / "b")
    database.close()
    with (after / NOTES_NAME).open("r+b") as file:
        file.seek(2 * 2 * PLACE_BYTES + 100)
        file.write(bytes(PLACE_BYTES))
    for expected in (["k0", "k1"], ["k0", "k1", "k9"]):
        database = Database(after)
        assert sorted(contents(database)) == expected
        database.note(Transaction(put={"k9": b"over it"}))
        database.close()


def test_a_damaged_note_before_others_is_no_end(tmp_path: Path) -> None:
    whole = noted(tmp_path / "whole", 3)
    chance = random.Random(1)
    for _ in range(300):
        at = chance.randrange(2 * 2 * PLACE_BYTES)
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        if at % (2 * PLACE_BYTES) < NOTE_BYTES:
            with pytest.raises(Corrupt, match="is damaged"):
                read(tmp_path / "flipped", bytes(damaged))
        else:
            assert read(tmp_path / "flipped", bytes(damaged)) == [1, 2, 3]


def test_a_full_file_goes_into_sqlite_and_begins_anew(tmp_path: Path) -> None:
    database = Database(tmp_path / "a")
    places = FILE_BYTES // PLACE_BYTES
    for number in range(places):
        database.note(Transaction(put={f"k{number:04}": b"v"}))
    database.note(Transaction(put={"one more": b"v"}))
    database.note(Transaction(put={"and one": b"v"}))
    after = crashed(tmp_path / "a", tmp_path / "b")
    assert len(contents(database)) == places + 2
    database.close()
    assert len(in_sqlite(after)) == places + 1
    database = Database(after)
    assert len(contents(database)) == places + 2
    database.close()


def test_a_full_volume_has_no_notes_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume takes a part of the file only, and says so at first by a count alone."""
    room = 40 << 10
    pwrite = os.pwrite

    def write(fd: int, data: bytes, offset: int) -> int:
        end = max(room, os.fstat(fd).st_size)
        if offset >= end:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data[: end - offset], offset)

    monkeypatch.setattr(os, "pwrite", write)
    database = Database(tmp_path / "a")
    for number in range(room // PLACE_BYTES):
        assert database.note(Transaction(put={f"k{number}": b"1"})) == [Change(f"k{number}", b"1")]
    seen = contents(database)
    after = crashed(tmp_path / "a", tmp_path / "b")
    database.close()
    for _ in range(2):  # still full, then not any more
        database = Database(after)
        assert contents(database) == seen
        database.close()
        monkeypatch.undo()


class Full(sqlite3.Connection):
    """Of a volume that takes no change of a file's header."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA user_version ="):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *parameters)


def test_notes_are_not_overlooked_on_a_full_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "a")
    database.note(Transaction(put={"a": b"1"}))
    after = crashed(tmp_path / "a", tmp_path / "b")
    database.close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Full))
    database = Database(after)
    assert database.get("a") == Versioned(b"1", 1)
    database.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_write_that_fails_is_of_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    make_notes(tmp_path / "notes")
    notes = Notes(tmp_path / "notes")

    def fail(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Notes, "_write_durably", fail)
    with pytest.raises(DiskFailed, match="notes"):
        notes.add(1, {"a": b"1"})
    monkeypatch.setattr(Notes, "_write_durably", lambda *_: 5)
    with pytest.raises(DiskFailed, match="only 5 of"):
        notes.add(1, {"a": b"1"})
    notes.close()


def test_a_store_from_before_there_were_notes_is_taken_over(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.apply(Transaction(put={"a": b"1"}))
    database.commit()
    database.close()
    (tmp_path / NOTES_NAME).unlink()
    set_schema(tmp_path, WITHOUT_NOTES)
    database = Database(tmp_path)
    database.note(Transaction(put={"b": b"2"}))
    assert sorted(contents(database)) == ["a", "b"]
    database.close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA
    connection.close()


def stopped(folder: Path, *, notes: int = 0) -> bytes:
    """A store with so many notes that SQLite does not have; the bytes of their file."""
    database = Database(folder.with_name("running"))
    for number in range(notes):
        database.note(Transaction(put={f"k{number}": b"1"}))
    crashed(folder.with_name("running"), folder)
    database.close()
    return (folder / NOTES_NAME).read_bytes()


def test_lost_notes_are_noticed(tmp_path: Path) -> None:
    data = stopped(tmp_path / "a", notes=3)
    path = tmp_path / "a" / NOTES_NAME
    path.unlink()
    with pytest.raises(Corrupt, match="notes is missing: restore"):
        Database(tmp_path / "a")
    for size in (0, FILE_BYTES - 1):
        path.write_bytes(data[:size])
        with pytest.raises(Corrupt, match=f"has only {size} of"):
            Database(tmp_path / "a")
    path.write_bytes(data)
    database = Database(tmp_path / "a")
    assert sorted(contents(database)) == ["k0", "k1", "k2"]
    database.close()


def test_notes_without_their_database_are_noticed(tmp_path: Path) -> None:
    stopped(tmp_path / "a", notes=3)
    (tmp_path / "a" / FILE_NAME).unlink()
    (tmp_path / "a" / (FILE_NAME + "-wal")).unlink()
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"missing or empty, but .*-notes is there"):
            Database(tmp_path / "a")
        (tmp_path / "a" / FILE_NAME).write_bytes(b"")


def test_notes_of_another_store_do_not_count(tmp_path: Path) -> None:
    """They lie beside a store that never had any."""
    data = stopped(tmp_path / "a", notes=3)
    database = Database(tmp_path / "b")
    database.close()
    set_schema(tmp_path / "b", WITHOUT_NOTES)
    (tmp_path / "b" / NOTES_NAME).write_bytes(data)
    database = Database(tmp_path / "b")
    assert (contents(database), database.revision) == ({}, 0)
    database.close()


def test_a_note_whose_transaction_fails_is_not_made(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.apply(Transaction(put={"a": b"1"}))
    database.commit()
    database._connection.execute("UPDATE kv SET value = x'32'")
    with pytest.raises(Corrupt, match="'a' does not match"):  # its outcome is known: there was none
        database.note(Transaction(delete=["a"], put={"b": b"1"}))
    notes = Notes(tmp_path / NOTES_NAME)
    assert notes.read(1) == []
    notes.close()
    database.close()
