"""Rows and tables of an archive without a log behind it."""

from pathlib import Path
from uuid import uuid4

import pyarrow
import pyarrow.parquet
from tests.archive.by_hand import FILE

from varlog.archive.files import ArchivedRange, Snapshot
from varlog.archive.place import Place, parse_place
from varlog.archive.table import ArchiveTable, open_table
from varlog.wire.arrow import archive_schema

TIME_US = 1_700_000_000_000_000


def rows(start: int, stop: int, *, time_us: int = TIME_US) -> pyarrow.Table:
    """Entries `[start, stop)` of one stream, all at one time."""
    count = stop - start
    entries = {
        "glsn": range(start, stop),
        "stream": [1] * count,
        "slot": range(start, stop),
        "time": pyarrow.array([time_us] * count).cast(pyarrow.timestamp("us", tz="UTC")),
        "key": [b"k"] * count,
        "headers": [[("n", b"%d" % number)] for number in range(start, stop)],
        "payload": [b"%d" % number for number in range(start, stop)],
    }
    return pyarrow.table(entries, schema=archive_schema())


def made(folder: Path | str) -> tuple[Place, ArchiveTable]:
    """The table of a log `orders`."""
    place = parse_place(str(folder))
    return place, open_table(place, "orders", {}, "orders-1")


def grown(table: ArchiveTable, start: int, stop: int, *, time_us: int = TIME_US) -> Snapshot:
    """The table after entries `[start, stop)` were added to it; it begins at 1."""
    path = f"{table.data}/{start:020}-{stop:020}-{uuid4()}.parquet"
    with table.place.writing(path) as file:
        pyarrow.parquet.write_table(rows(start, stop, time_us=time_us), file, **FILE)
    assert table.add([path], 1, start, stop)
    return Snapshot(ArchivedRange(table.place.url, table.metadata, "", "", 1, stop))


def positions(snapshot: Snapshot) -> list[int]:
    stop = snapshot.archived.stop
    found = (batch for file in snapshot.files(1, stop) for batch in snapshot.rows(file, 1, stop))
    return [glsn for batch in found for glsn in batch["glsn"].to_pylist()]
