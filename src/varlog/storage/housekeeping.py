"""What nobody waits for: sidecars for full files, and the space of trimmed ones given back.

Removing files takes three steps, so that a crash in between is finished at the next opening:
`base` names the first slot that stays (with what is known of producers up to there), then the files
before it go, then the folder is synced.
"""

from varlog.base.errors import NoSpace, NotFound
from varlog.base.ids import Slot
from varlog.ports.disk import replace_file
from varlog.storage.files import DataFile, Files
from varlog.storage.layout import BASE, encode_base, index_name
from varlog.storage.place import Place
from varlog.storage.pool import FilePool
from varlog.storage.producers import ProducerTable
from varlog.storage.sidecar import SUMMARY_BYTES, decode_summary, encode_sidecar


async def write_sidecars(files: Files, pool: FilePool, bound: int, producers: ProducerTable) -> None:
    """For every full file that has none and lies below `bound`, up to which bindings are on disk.

    One that is in memory only may be lost, and the slots bound again. A full volume is no reason to fail, and what is
    left of it is for the base, without which nothing can be removed.
    """
    for file in files.full:
        if file.columns is not None and file.end_slot <= bound:
            try:
                await _write_sidecar(files, pool, file, producers)
            except NoSpace:
                return  # the columns stay in memory; next time


async def _write_sidecar(files: Files, pool: FilePool, file: DataFile, producers: ProducerTable) -> None:
    columns = file.columns
    if columns is None:
        return
    snapshot = await producers.snapshot(Slot(file.end_slot))
    data = encode_sidecar(file.header.generation, file.end, columns, snapshot)
    free, _ = await files.place.disk.space()
    if free < len(data) + pool.margin_bytes:
        raise NoSpace(f"{free} bytes are free on the volume of replica {files.place.replica}")
    with files.pinned(file):
        await replace_file(files.place.disk, files.place.path(index_name(file.first_slot)), data)
    file.summarize(decode_summary(data[:SUMMARY_BYTES]))


async def free_trimmed(files: Files, pool: FilePool, trimmed: int, producers: ProducerTable) -> None:
    """Remove or recycle the files that lie wholly below `trimmed`; never the last, nor one that is being read.

    Whatever ends this half way, the next call goes on with it.
    """
    count = _count_free(files, trimmed)
    if count:
        await _write_base(files, count, pool, producers)
        # Somebody may have begun to read one of them meanwhile.
        files.remove_first(min(count, _count_free(files, trimmed)))
    if files.removed:
        await _give_back(files, pool)


def _count_free(files: Files, trimmed: int) -> int:
    """How many of the first files nobody needs."""
    needed = (number for number, file in enumerate(files.full) if file.end_slot > trimmed or file.pins)
    return next(needed, len(files.full))


async def _write_base(files: Files, count: int, pool: FilePool, producers: ProducerTable) -> None:
    place, kept = files.place, files[count].first_slot
    base = encode_base(place.replica, kept, await producers.snapshot(Slot(kept)))
    try:
        await replace_file(place.disk, place.path(BASE), base)
    except NoSpace:
        # A few bytes are wanted to free many. The spare files have them, and the sidecars of those that are to go,
        # which are made anew from the data files if they are needed after all.
        await pool.release()
        for file in files.full[:count]:
            await _remove_if_there(place, index_name(file.first_slot))
        await replace_file(place.disk, place.path(BASE), base)


async def _give_back(files: Files, pool: FilePool) -> None:
    place = files.place
    while files.removed:
        file = files.removed[0]
        await _remove_if_there(place, index_name(file.first_slot))
        try:
            await pool.give(file.name, file.size)
        except NotFound:
            pass  # a call that was cancelled has done it
        files.removed.remove(file)
    await place.disk.sync_folder(place.folder)


async def _remove_if_there(place: Place, name: str) -> None:
    try:
        await place.disk.remove(place.path(name))
    except NotFound:
        pass
