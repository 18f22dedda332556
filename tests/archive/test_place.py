"""Folders as archives: what is in them is durable, nothing lies beside them, and damage is told in our own words."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.archive.rows import TIME_US, grown, made, positions

from varlog.archive.batches import to_batches
from varlog.archive.files import LAST_US, Snapshot
from varlog.archive.place import parse_place
from varlog.base.errors import Corrupt, InvalidArgument, Unavailable
from varlog.ports.archive import ArchivedBatch


def test_whatever_is_written_is_synced_and_so_are_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that names metadata which a power failure took away has lost what nodes gave up for it."""
    synced: set[Path] = set()
    sync = os.fsync

    def watched(number: int) -> None:
        sync(number)
        synced.add(Path(os.readlink(f"/proc/self/fd/{number}")))

    monkeypatch.setattr(os, "fsync", watched)
    _, table = made(tmp_path / "not" / "there")
    grown(table, 1, 10)
    assert positions(grown(table, 10, 20)) == list(range(1, 20))
    written = {path for path in tmp_path.rglob("*") if path.name != "catalog.db"}  # which SQLite syncs itself
    assert len([path for path in written if path.is_file()]) >= 9
    assert {path for path in written if path.is_file()} <= synced
    assert {path.parent for path in written} <= synced


@pytest.mark.parametrize("name", ["plain", "with space", "100%", "a%20b", "ärger", "a:b", "x@y"])
def test_an_odd_name_of_a_folder(tmp_path: Path, name: str) -> None:
    """Metadata, catalog and data all lie in it, where a backup of it finds them."""
    _, table = made(tmp_path / name)
    assert positions(grown(table, 1, 10)) == list(range(1, 10))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {path.name for path in (tmp_path / name).iterdir()} == {"catalog.db", "orders-1"}
    again, table = made((tmp_path / name).as_uri())
    assert (again.folder, table.range) == (tmp_path / name, (1, 10))


@pytest.mark.parametrize("name", ["a?b", "a#b", "a\nb", "a\tb", os.fsdecode(b"a\xffb")])
def test_names_that_tables_cannot_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="in its name"):
        parse_place(str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_the_last_time_of_all(tmp_path: Path) -> None:
    _, table = made(tmp_path)
    grown(table, 1, 10)
    snapshot = grown(table, 10, 20, time_us=LAST_US)
    assert [snapshot.find(time_us) for time_us in (0, TIME_US, TIME_US + 1, LAST_US, 1 << 63)] == [1, 1, 10, 10, 10]


def _damages(data: bytes) -> Iterator[bytes]:
    """Torn, empty, or rotten: its schema, the blocks behind it, its end."""
    yield b""
    yield data[: len(data) // 2]
    if data.startswith(b"Obj"):
        header = data.index(data[-16:]) + 16  # every part of such a file ends with the same mark
        yield data.replace(b'"name"', b'"nave"')
        yield data.replace(b'"type"', b'"tape"')
        yield data[:-60] + bytes(60)
        yield data[:header] + b"\xff" * (len(data) - header)
    if data.startswith(b"PAR1"):
        yield data.replace(b"payload", b"paylaad")


def batches(snapshot: Snapshot) -> list[ArchivedBatch]:
    stop = snapshot.archived.stop
    found = (rows for file in snapshot.files(1, stop) for rows in snapshot.rows(file, 1, stop))
    return [batch for rows in found for batch in to_batches(rows)]


def test_damaged_files(tmp_path: Path) -> None:
    """Who reads gets an error of ours, whatever pyiceberg and pyarrow say."""
    _, table = made(tmp_path)
    snapshot = grown(table, 1, 10)
    for pattern in ("snap-*.avro", "*-m0.avro", "00001-*.json", "*.parquet"):
        (path,) = tmp_path.rglob(pattern)
        data = path.read_bytes()
        for damaged in _damages(data):
            path.write_bytes(damaged)
            with pytest.raises(Corrupt, match=r"damaged|lacks"):
                batches(Snapshot(snapshot.archived))
        path.write_bytes(data)
    assert [batch.glsn for batch in batches(snapshot)] == [1]


def test_a_catalog_that_cannot_be_used(tmp_path: Path) -> None:
    _, table = made(tmp_path)
    grown(table, 1, 10)
    file = tmp_path / "catalog.db"
    file.write_bytes(file.read_bytes()[:5000] + bytes(5000))
    with pytest.raises(Unavailable, match=r"catalog .* malformed"):
        made(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(Unavailable, match=r"catalog .* unable to open"):
        made(tmp_path)
