"""The Iceberg table of an archive: made, found, judged, and swapped. The only place that knows pyiceberg."""

import os
from pathlib import Path
from typing import Any

from varlog.base.errors import Conflict, InvalidArgument, NotFound, Unsupported
from varlog.client.arrow import schema

NAMESPACE = "varlog"
START, STOP = "varlog.start", "varlog.stop"
FIXED = {"commit.retry.num-retries": "0"}
"""A commit that finds another snapshot than it began with must fail: tried again on top of it, a range comes twice."""


class ArchiveTable:
    """The table of one log in one folder. What it says of itself is as of when it was opened."""

    def __init__(self, folder: Path, log: str, ids: dict[str, str] | None = None, *, create: bool = True) -> None:
        self._folder = folder.absolute()
        self._log = log
        self.data = self._folder / "data" / log
        catalog = self._catalog(create)
        name = (NAMESPACE, log)
        if create:
            catalog.create_namespace_if_not_exists(NAMESPACE)
            catalog.create_table_if_not_exists(name, schema=schema(), properties={**FIXED, **(ids or {})})
        elif not catalog.table_exists(name):
            raise NotFound(f"there is no archive of log {log!r} in {folder}")
        self._table = catalog.load_table(name)
        self._check(ids or {})

    def _catalog(self, create: bool) -> Any:
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError as missing:
            raise Unsupported("an archive needs the extra: pip install 'varlog[archive]'") from missing
        if create:
            try:
                self.data.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidArgument(f"{self._folder} cannot be an archive: {error.strerror}") from error
            if not os.access(self.data, os.W_OK):
                raise InvalidArgument(f"{self._folder} cannot be an archive: it is not writable")
        elif not (self._folder / "catalog.db").exists():
            raise NotFound(f"there is no archive in {self._folder}")
        return SqlCatalog(NAMESPACE, uri=f"sqlite:///{self._folder}/catalog.db", warehouse=f"file://{self._folder}")

    def _check(self, ids: dict[str, str]) -> None:
        properties = self._table.properties
        for name, own in {**FIXED, **ids}.items():
            if properties.get(name) != own:
                raise Conflict(
                    f"the archive of {self._log!r} in {self._folder} is not of this log: its {name} is "
                    f"{properties.get(name)}, not {own}; choose another folder"
                )
        columns = [(field.name, field.required) for field in self._table.schema().fields]
        if columns != [(field.name, not field.nullable) for field in schema()]:
            raise Conflict(f"the table of {self._log!r} in {self._folder} has another schema than a log")

    # ------------------------------------------------------------ looking

    @property
    def stop(self) -> int | None:
        """One past the last position that is archived; None if nothing is."""
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return None
        told = snapshot.summary.additional_properties.get(STOP)
        if told is None:
            raise Conflict(f"the last snapshot of {self._log!r} in {self._folder} was made by somebody else")
        return int(told)

    def files(self) -> list[str]:
        """Of the present snapshot."""
        return sorted(task.file.file_path for task in self._table.scan().plan_files())

    # ------------------------------------------------------------ changing

    def add(self, paths: list[str], start: int, stop: int) -> bool:
        """Make files part of the table, all at once; False if the table has changed since it was opened."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            self._table.add_files(paths, snapshot_properties={START: str(start), STOP: str(stop)})
        except CommitFailedException:
            return False
        return True

    def sweep(self) -> int:
        """Remove what runs that were killed left: files of ranges that are archived, by others. How many."""
        known, archived = set(self.files()), self.stop or 0
        left = [path for path in sorted(self.data.glob("*.parquet")) if str(path) not in known]
        gone = [path for path in left if int(path.name.partition("-")[0]) < archived]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)
