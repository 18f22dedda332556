"""The files of an archive's snapshot: which of them hold a position or a time, and what is in them. All of it blocks.

    manifests    least and greatest position and time of each file        leave out files
    footers      the same of each row group                               leave out row groups
    row groups   read one at a time: what is in memory is bounded         sorted by position

Planning goes window by window (a partition of the table each), so that it stays small whatever the archive holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from varlog.archive.limits import WINDOW, WINDOWS_KEPT
from varlog.archive.place import Place, recorded_place, understood
from varlog.base.errors import Corrupt
from varlog.wire.arrow import archive_schema

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
GLSN_FIELD, TIME_FIELD = 1, 4
"""Ids of columns in the schema of every archive."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """What a log's record says of its archive: positions `[first, stop)`, as of one snapshot that never changes."""

    location: str
    metadata: str
    endpoint: str
    region: str
    first: int
    stop: int

    @property
    def place(self) -> Place:
        return recorded_place(self.location, self.endpoint, self.region)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """Positions `[start, stop)`."""

    path: str
    start: int
    stop: int


class Snapshot:
    """One snapshot of an archive. May be used by several threads."""

    def __init__(self, archived: ArchivedRange) -> None:
        self.archived = archived
        self._place = archived.place
        self._table: Table | None = None
        self._windows: dict[int, list[ArchivedFile]] = {}

    def _opened(self) -> "Table":
        """Two threads that come here at once read the same metadata, and either will do."""
        if self._table is None:
            with understood(self._place):
                from pyiceberg.table import StaticTable

                self._table = StaticTable.from_metadata(self.archived.metadata, self._place.properties())
        return self._table

    # ------------------------------------------------------------ planning

    def files(self, start: int, stop: int) -> Iterator[ArchivedFile]:
        """Files with positions in `[start, stop)`, in their order; raises `Corrupt` where they do not join."""
        begun = False
        for file in self.listed(start, stop):
            if file.start > start or (begun and file.start < start):
                wrong = f"lacks positions from {start} on" if file.start > start else f"holds {file.start} twice"
                raise Corrupt(f"the archive at {self._place.url} {wrong}")
            yield file
            start, begun = file.stop, True
        if start < min(stop, self.archived.stop):
            raise Corrupt(f"the archive at {self._place.url} lacks positions from {start} on")

    def listed(self, start: int, stop: int) -> Iterator[ArchivedFile]:
        """The same, whatever is wrong with them."""
        start, stop = max(start, self.archived.first), min(stop, self.archived.stop)
        for window in range(start // WINDOW, -(-stop // WINDOW)):
            yield from (each for each in self._window(window) if each.stop > start and each.start < stop)

    def _window(self, number: int) -> list[ArchivedFile]:
        """All files of a window, in their order. The last windows asked for are kept: a snapshot never changes."""
        found = self._windows.get(number)
        if found is None:
            first = number * WINDOW
            planned = self._plan(f"glsn >= {first} and glsn < {first + WINDOW}")
            found = sorted((_file(each) for each in planned), key=lambda each: each.start)
            for old in list(self._windows)[: len(self._windows) + 1 - WINDOWS_KEPT]:
                self._windows.pop(old, None)
            self._windows[number] = found
        return found

    def _plan(self, where: str) -> "list[DataFile]":
        table = self._opened()
        with understood(self._place):
            return [task.file for task in table.scan(row_filter=where).plan_files()]

    @property
    def entry_bytes(self) -> float:
        """What an entry takes in the files, on average."""
        snapshot = self._opened().current_snapshot()
        summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        return int(summary.get("total-files-size", 0)) / max(1, int(summary.get("total-records", 0)))

    # ------------------------------------------------------------ reading

    def groups(self, file: ArchivedFile) -> list[tuple[int, int]]:
        """The positions `[first, stop)` of each row group."""
        import pyarrow.parquet

        with self._place.reading(file.path) as source:
            metadata = pyarrow.parquet.read_metadata(source)
            bounds = [_bounds(metadata.row_group(index), "glsn") for index in range(metadata.num_row_groups)]
        return [(least, greatest + 1) for least, greatest in bounds]

    def rows(
        self, file: ArchivedFile, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> "Iterator[pyarrow.RecordBatch]":
        """Rows with positions in `[start, stop)`, a row group at a time, with these columns."""
        import pyarrow.parquet

        with (
            self._place.reading(file.path) as source,
            # The columns of a row group are fetched together: on S3 each request takes its time.
            pyarrow.parquet.ParquetFile(source, pre_buffer=True, page_checksum_verification=True) as parquet,
        ):
            if parquet.schema_arrow.names != archive_schema().names:  # a footer has no checksum
                raise Corrupt(f"{file.path} is damaged: it has not the columns of a log")
            for index in range(parquet.num_row_groups):
                least, greatest = _bounds(parquet.metadata.row_group(index), "glsn")
                if greatest < start or least >= stop:
                    continue
                if parquet.metadata.row_group(index).num_rows != greatest + 1 - least:
                    raise Corrupt(f"positions {least} to {greatest} of {file.path} are not dense")
                group = parquet.read_row_group(index, columns=columns and list(columns), use_threads=False)
                wanted = group.slice(max(0, start - least), min(stop, greatest + 1) - max(start, least))
                yield from wanted.combine_chunks().to_batches()

    def find(self, time_us: int) -> int | None:
        """The first position whose time is this or later."""
        import pyarrow.compute as compute

        time_us = min(time_us, LAST_US)  # later ones are archived as this
        wanted = EPOCH + timedelta(microseconds=time_us)
        found = [_file(each) for each in self._plan(f"time >= '{wanted.isoformat()}'")]
        for file in sorted(found, key=lambda each: each.start):
            for batch in self.rows(file, self.archived.first, self.archived.stop, ["glsn", "time"]):
                late = compute.greater_equal(batch["time"].cast("int64"), time_us)
                index = compute.index(late, True).as_py()
                if index >= 0:
                    return int(batch["glsn"][index].as_py())
        return None


def _file(data: "DataFile") -> ArchivedFile:
    low, high = data.lower_bounds[GLSN_FIELD], data.upper_bounds[GLSN_FIELD]
    start = int.from_bytes(low, "little", signed=True)
    return ArchivedFile(data.file_path, start, int.from_bytes(high, "little", signed=True) + 1)


def _bounds(group: Any, name: str) -> tuple[int, int]:
    """Least and greatest value of a column in a row group, by its footer."""
    columns = (group.column(index) for index in range(group.num_columns))
    statistics = next(column.statistics for column in columns if column.path_in_schema == name)
    if statistics is None or not statistics.has_min_max:
        raise Corrupt("a file of an archive says nothing of its positions")
    return statistics.min, statistics.max
