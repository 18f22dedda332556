"""Folders as archives: what is in them is durable, and nothing lies beside them."""

import os
from pathlib import Path

import pytest
from tests.archive.rows import grown, made, positions

from varlog.archive.place import parse_place
from varlog.base.errors import InvalidArgument


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
