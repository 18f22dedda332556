"""The Iceberg table of an archive: made, found, judged, and swapped. With `files.py` the only one that knows pyiceberg.

    folder        folder/catalog.db                    which metadata is the table, swapped by compare-and-swap
    S3            the log's record in the repository   the same
    either        .../LOG-ID/metadata/00003-....metadata.json    all snapshots of the table, never changed
                  .../LOG-ID/data/00..0001-00..5000-....parquet  positions [1, 5000)

In a folder a snapshot counts once the catalog has it, and is recorded in the repository then; on S3 the record itself
is the catalog. Either way readers go by the record: it names the metadata that holds what it says is archived.
"""

from typing import TYPE_CHECKING, Any

from varlog.archive.limits import WINDOW
from varlog.archive.place import Place, check_extra, understood
from varlog.base.errors import Conflict, InvalidArgument, NotFound
from varlog.wire.arrow import archive_schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

NAMESPACE = "varlog"
FIRST, START, STOP = "varlog.first", "varlog.start", "varlog.stop"
"""Of a snapshot: where the archive begins, and the positions `[start, stop)` that it added."""
FIXED = {
    "commit.retry.num-retries": "0",
    # A commit that finds another snapshot than it began with must fail: tried again on top of it, a range comes twice.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.glsn": "full",
    "write.metadata.metrics.column.time": "full",
    # By these, and no other column, look-ups leave out files; bounds of payloads would only make manifests large.
    "commit.manifest-merge.enabled": "true",
    # Each run adds a manifest: many small ones are joined.
}


class ArchiveTable:
    """The table of one log at one place. What it says of itself is as of when it was opened."""

    def __init__(self, place: Place, log: str, table: "Table", ids: dict[str, str]) -> None:
        self.place = place
        self._log = log
        self._table = table
        self._check(ids)
        self.data = place.below(*table.location().removeprefix(place.url).strip("/").split("/"), "data")

    def _check(self, ids: dict[str, str]) -> None:
        properties = self._table.properties
        for name, own in {**FIXED, **ids}.items():
            if properties.get(name) != own:
                raise Conflict(
                    f"the archive of {self._log!r} at {self.place.url} is not of this log: its {name} is "
                    f"{properties.get(name)}, not {own}; choose another place"
                )
        columns = [(field.name, field.required) for field in self._table.schema().fields]
        spec = [(field.name, str(field.transform)) for field in self._table.spec().fields]
        wanted = [(field.name, not field.nullable) for field in archive_schema()]
        if columns != wanted or spec != [("window", f"truncate[{WINDOW}]")]:
            raise Conflict(f"the table of {self._log!r} at {self.place.url} has another schema than a log")

    # ------------------------------------------------------------ looking

    @property
    def metadata(self) -> str:
        """URL of the metadata that says all this."""
        return str(self._table.metadata_location)

    @property
    def range(self) -> tuple[int, int] | None:
        """The positions `[start, stop)` that are archived; None if nothing is."""
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return None
        told = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if not {FIRST, STOP} <= told.keys():
            raise Conflict(f"the last snapshot of {self._log!r} at {self.place.url} was made by somebody else")
        return int(told[FIRST]), int(told[STOP])

    def files(self) -> list[str]:
        """Of the present snapshot."""
        with understood(self.place):
            return sorted(task.file.file_path for task in self._table.scan().plan_files())

    # ------------------------------------------------------------ changing

    def add(self, paths: list[str], first: int, start: int, stop: int) -> bool:
        """Make files with `[start, stop)` part of the table, all at once; False if it has changed since it was opened.

        `first` is where the archive begins by the record: the table may hold more, of one that was given up.
        """
        from pyiceberg.exceptions import CommitFailedException

        try:
            with understood(self.place):
                properties = {FIRST: str(first), START: str(start), STOP: str(stop)}
                self._table.add_files(paths, snapshot_properties=properties)
        except CommitFailedException:
            return False
        return True

    def sweep(self) -> int:
        """Remove what runs that were killed left: files of ranges that are archived, by others. How many."""
        known, archived = set(self.files()), (self.range or (0, 0))[1]
        left = [path for path in self.place.list(self.data) if path not in known]
        gone = [path for path in left if _begins_below(path, archived)]
        for path in gone:
            self.place.remove(path)
        return len(gone)


def _begins_below(path: str, position: int) -> bool:
    first = path.rpartition("/")[2].partition("-")[0]
    return first.isdigit() and int(first) < position


# ---------------------------------------------------------------- opening


def open_table(
    place: Place, log: str, ids: dict[str, str], name: str, recorded: str = "", first: int = 0
) -> ArchiveTable:
    """The table of a log, made if there is none. `name` is unique to the log.

    `recorded` is the metadata on record, `first` where the archive begins that is on record; 0 if there is none.

    Raises `InvalidArgument` where nothing can be written, `Conflict` where there is something else, or no longer what
    is on record: a folder that is not mounted looks like an empty one, and nothing may begin anew there.
    """
    check_extra()
    if recorded and not place.has(recorded):
        raise Conflict(
            f"the archive of log {log!r} is not at {place.url} any more: {recorded} is missing; mount or restore it"
        )
    place.check_writable(place.below(name))
    with understood(place):
        catalog = _catalog(place)
        if place.folder is None and (latest := _latest(place, name, recorded, first)):
            table = catalog.register_table((NAMESPACE, log), latest)
        elif catalog.table_exists((NAMESPACE, log)):
            table = catalog.load_table((NAMESPACE, log))
        else:
            table = _create(catalog, place, log, {**FIXED, **ids}, name)
    return ArchiveTable(place, log, table, ids)


def _latest(place: Place, name: str, recorded: str, first: int) -> str:
    """The metadata on record, or that of a snapshot on top of it: whoever made it was killed before it was recorded."""
    from pyiceberg.table import StaticTable

    listed = place.list(place.below(name, "metadata")) if first else []
    for path in sorted((each for each in listed if each.endswith(".metadata.json")), reverse=True):
        if _version(path) <= _version(recorded):
            break
        metadata = StaticTable.from_metadata(path, place.properties()).metadata
        snapshot = metadata.current_snapshot()
        told = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        before = [entry.metadata_file for entry in metadata.metadata_log]
        if told.get(FIRST) == str(first) and (recorded in before or not recorded):
            return path
    return recorded


def _version(path: str) -> int:
    """Of metadata: its files are named 00003-....metadata.json."""
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else -1


def find_table(place: Place, log: str) -> ArchiveTable:
    """The table of a log in a folder, by the catalog there."""
    folder = place.folder
    if folder is None:
        raise InvalidArgument(f"only a folder has a catalog of its own; {place.url} is read through its log")
    if not (folder / "catalog.db").exists():
        raise NotFound(f"there is no archive in {folder}")
    with understood(place):
        catalog = _catalog(place)
        if not catalog.table_exists((NAMESPACE, log)):
            raise NotFound(f"there is no archive of log {log!r} in {folder}")
        return ArchiveTable(place, log, catalog.load_table((NAMESPACE, log)), {})


def _catalog(place: Place) -> "Catalog":
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import URL

    file = ":memory:" if place.folder is None else str(place.folder / "catalog.db")
    uri = URL.create("sqlite", database=file).render_as_string()
    catalog = SqlCatalog(NAMESPACE, uri=uri, warehouse=place.url, **place.properties())
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def _create(catalog: "Catalog", place: Place, log: str, properties: dict[str, str], name: str) -> "Table":
    """Another run may make it at the same time: then there is one all the same."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
    from pyiceberg.transforms import TruncateTransform

    window: Any = TruncateTransform(WINDOW)
    identifier, location = (NAMESPACE, log), f"{place.url}/{name}"
    try:
        with (
            catalog.create_table_transaction(
                identifier, archive_schema(), location, properties=properties
            ) as transaction,
            transaction.update_spec() as spec,
        ):
            spec.add_field("glsn", window, "window")
    except (TableAlreadyExistsError, CommitFailedException):
        pass
    return catalog.load_table(identifier)
