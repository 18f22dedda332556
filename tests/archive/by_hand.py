"""Archives a log without Spark: what the client must read is written by the shortest way."""

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow
import pyarrow.parquet

import varlog
from varlog.archive.limits import ROW_GROUP_ROWS
from varlog.archive.place import Place, parse_place
from varlog.archive.table import open_table

FILE = {"compression": "zstd", "write_statistics": ["glsn", "time"], "write_page_checksum": True}


async def archive(
    log: varlog.Log,
    where: Path | Place,
    stop: int | None = None,
    *,
    file_rows: int = 1 << 20,
    group_rows: int = ROW_GROUP_ROWS,
) -> varlog.LogDescription:
    """Everything before `stop` that is not archived yet, in files of so many rows, and record it."""
    place = where if isinstance(where, Place) else parse_place(str(where))
    info = await log.info()
    if info.archive is None:
        first = info.trimmed + 1
        empty = varlog.ArchiveDescription(place.url, "", place.endpoint, place.region, first, first)
        info = await log.record_archive(empty, expected=0)
    assert info.archive is not None
    end = await log.tail() + 1 if stop is None else stop
    batches = [batch.to_arrow() async for batch in log.subscribe(info.archived, end).batches()]
    rows = pyarrow.Table.from_batches(batches)
    metadata = await asyncio.to_thread(_store, place, info, rows, end, file_rows, group_rows)
    now = replace(info.archive, metadata=metadata, stop=end)
    return await log.record_archive(now, expected=info.archived)


def _store(
    place: Place, info: varlog.LogDescription, rows: pyarrow.Table, end: int, file_rows: int, group_rows: int
) -> str:
    assert info.archive is not None
    name = f"{info.name}-{info.id}"
    table = open_table(place, info.name, {"varlog.log": str(info.id)}, name, info.archive.metadata)
    paths = []
    for low in range(0, rows.num_rows, file_rows):
        path = f"{table.data}/{info.archived + low:020}-{uuid4()}.parquet"
        with place.writing(path) as file:
            pyarrow.parquet.write_table(rows.slice(low, file_rows), file, row_group_size=group_rows, **FILE)
        paths.append(path)
    assert table.add(paths, info.archive.first, info.archived, end)
    return table.metadata
