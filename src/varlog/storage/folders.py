"""Making and removing a replica's folder, so that a crash in between leaves nothing half made or half gone.

A replica exists from the moment its spec does, which is written last. It is gone from the moment its
`dropped` mark is there, which is removed last. One that is copied from other nodes has the mark `copying`
before anything else and until it is complete: a folder with that mark is garbage to whoever opens it.
"""

from varlog.base.errors import AlreadyExists, Corrupt, NoSpace, VarlogError
from varlog.ports.disk import Disk, replace_file
from varlog.storage import layout
from varlog.storage.files import Files
from varlog.storage.layout import NEW_SUFFIX, FileHeader, data_name, is_free_name
from varlog.storage.place import Place
from varlog.storage.pool import FilePool
from varlog.storage.walk import search_behind
from varlog.storage.writer import begin_file


async def make_folder(
    place: Place, spec: bytes, pool: FilePool, files: Files, header: FileHeader, producers: bytes | None = None
) -> None:
    """With its first, empty data file; durable on return. Whatever ends this before, nothing of it stays.

    With `producers`, what is known of them up to the first slot, it is a copy that is about to begin.
    """
    await _clear_unfinished(place)
    try:
        await _fill_folder(place, spec, pool, files, header, producers)
    except BaseException:  # also of who is cancelled: nobody hears of a replica that would take up space
        files.close()
        await _drop_unfinished(place)
        raise


async def _fill_folder(
    place: Place, spec: bytes, pool: FilePool, files: Files, header: FileHeader, producers: bytes | None
) -> None:
    await place.disk.make_folder(place.folder)
    if producers is not None:
        await replace_file(place.disk, place.path(layout.COPYING), b"")
        base = layout.encode_base(place.replica, header.first_slot, producers)
        await replace_file(place.disk, place.path(layout.BASE), base)
    file, handle = await begin_file(place, pool, header)
    files.append(file)
    files.adopt(file, handle)
    await pool.follow(file.size)
    await replace_file(place.disk, place.path(layout.SPEC), layout.encode_spec(place.replica, spec))
    await place.disk.sync_folder(_parent(place.folder))


async def complete_copy(disk: Disk, folder: str) -> None:
    """From now on it is a replica like any other."""
    await disk.remove(f"{folder}/{layout.COPYING}")
    await disk.sync_folder(folder)


async def _clear_unfinished(place: Place) -> None:
    """A folder without a spec is what an interrupted creation or drop left; nobody was told of it."""
    disk = place.disk
    if not await disk.exists(place.folder):
        return
    names = await disk.list(place.folder)
    if layout.DROPPED not in names and layout.COPYING not in names:
        if layout.SPEC in names or layout.FAILED in names:
            raise AlreadyExists(f"replica {place.replica} is there already")
        if await _has_data(disk, place.folder, names):
            raise Corrupt(f"{place.folder} has data but no spec: it is not overwritten")
    await drop_folder(disk, place.folder)


async def _drop_unfinished(place: Place) -> None:
    try:
        await drop_folder(place.disk, place.folder)
    except VarlogError:
        pass  # who waits is told what went wrong before; the next start of the node finds what is left


async def is_unfinished(disk: Disk, folder: str, names: list[str]) -> bool:
    """Whether a folder has no more than what an interrupted creation leaves; what cannot be read may be more."""
    begun = [name for name in names if is_free_name(name) or name.endswith(NEW_SUFFIX) or name == data_name(0)]
    try:
        return bool(names) and begun == names and not await _has_data(disk, folder, names)
    except VarlogError:
        return False


async def _has_data(disk: Disk, folder: str, names: list[str]) -> bool:
    """Whether more is there than the empty file with which a creation begins."""
    firsts = [slot for name in names if (slot := layout.slot_of_name(name)) is not None]
    if firsts not in ([], [0]) or layout.BASE in names:
        return True
    if not firsts:
        return False
    file = await disk.open(f"{folder}/{data_name(0)}")
    try:
        generation = layout.decode_file_header(await file.read(0, layout.FILE_HEADER_BYTES)).generation
        found = await search_behind(file, generation, layout.FILE_HEADER_BYTES, await file.size())
        return found.end > layout.FILE_HEADER_BYTES
    finally:
        file.close()


async def mark_dropped(disk: Disk, folder: str) -> bool:
    """From now on a start of the node removes it. False: there was no room for the mark."""
    if layout.COPYING not in await disk.list(folder):
        try:
            await replace_file(disk, f"{folder}/{layout.DROPPED}", b"")
        except NoSpace:
            return False  # space matters more: a crash may leave a damaged replica, which is then dropped again
    return True


async def drop_folder(disk: Disk, folder: str) -> None:
    """Remove a replica so that a crash half way leaves a folder that is known to be garbage: its mark goes last."""
    if not await disk.exists(folder):
        return
    await mark_dropped(disk, folder)
    for name in await disk.list(folder):
        if name not in (layout.DROPPED, layout.COPYING):
            await disk.remove(f"{folder}/{name}")
    await disk.sync_folder(folder)
    await disk.remove_folder(folder)
    await disk.sync_folder(_parent(folder))


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]
