"""Folders as archives: what is in them is durable, and nothing lies beside them."""

import os
from pathlib import Path

import pytest
from tests.archive.rows import grown, made, positions


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
