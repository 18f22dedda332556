"""Blocks for the next data file: made ahead of need, or recycled from files that trimming freed.

A free file has its full size on disk and some `free-<n>.data` for a name. What an earlier use left in
it does no harm: its records carry another generation. Recycled ones are preferred, because blocks
that were written before are synced faster than blocks that were only reserved.

Files grow with the replica, from `first_bytes` on by `GROWTH` each time up to the size that is wanted: most replicas of
a log that is switched or rolled often hold little, and keep what their last file reserved as long as they are there.
"""

import asyncio
from collections.abc import Callable, Sequence

from varlog.base.errors import NoSpace, NotFound
from varlog.storage.layout import SMALLEST_FILE_BYTES, free_name, is_free_name
from varlog.storage.place import Place

FREE_FILES = 2
"""Most free files kept in a folder."""

GROWTH = 4
"""A file is at most so many times as large as the one before it."""


def margin_bytes(file_bytes: int, table_bytes: int = 0) -> int:
    """For sidecars and the like, and for the base, which has the table of producers and is there twice for a moment."""
    return max(file_bytes // 16, 2 * table_bytes)


def first_bytes(file_bytes: int) -> int:
    """Size of a replica's first file."""
    return max(SMALLEST_FILE_BYTES, file_bytes // GROWTH**2)


class FilePool:
    """The free files of one replica's folder."""

    def __init__(self, place: Place, file_bytes: int) -> None:
        self._place = place
        self._most_bytes = file_bytes
        self.file_bytes = first_bytes(file_bytes)
        """Size of those made now. Free ones that are smaller are of no use any more."""
        self._free: dict[str, int] = {}
        """Their sizes."""
        self._leaving: dict[str, str] = {}
        """Data files on their way to be free ones, and under which names."""
        self._number = 0
        self._changing = asyncio.Lock()
        self.full = False
        """The last attempt to make a file found no space."""
        self.table_bytes: Callable[[], int] = lambda: 0
        """Of what is known of producers: it is written before anything can be removed."""

    def __len__(self) -> int:
        return len(self._free)

    @property
    def margin_bytes(self) -> int:
        """Left free on the volume when files are made."""
        return margin_bytes(self._most_bytes, self.table_bytes())

    async def adopt(self, names: Sequence[str]) -> None:
        """At the opening of a replica: keep what is usable, remove the rest."""
        for name in filter(is_free_name, names):
            self._number = max(self._number, _number_of(name) + 1)
            size = await self._size(name) if len(self._free) < FREE_FILES else 0
            if first_bytes(self._most_bytes) <= size <= self._most_bytes:
                self._free[name] = size
            else:
                await self._place.disk.remove(self._place.path(name))

    async def follow(self, size: int) -> None:
        """A file of so many bytes is the last one now: the next are larger, up to what is wanted."""
        async with self._changing:
            self.file_bytes = min(self._most_bytes, GROWTH * size)
            await self._remove_free(self.file_bytes)

    async def ensure(self) -> None:
        """Have a free file ready; raises `NoSpace`."""
        async with self._changing:
            if not self._free:
                self._free[await self._make(self.file_bytes)] = self.file_bytes

    async def has_room(self) -> bool:
        """One could be made, or is there."""
        if self._free:
            return True
        free, _ = await self._place.disk.space()
        return free >= self.file_bytes + self.margin_bytes

    async def take(self, size: int) -> tuple[str, int]:
        """The name and size of a free file of at least `size` bytes, which is the caller's from now on."""
        async with self._changing:
            fitting = [name for name, there in self._free.items() if there >= size]
            if fitting:
                return fitting[-1], self._free.pop(fitting[-1])
            size = max(size, self.file_bytes)
            try:
                return await self._make(size), size
            except NoSpace:
                if not self._free:
                    raise
                # What is too small for this one must not be what keeps it from being made.
                await self._remove_free()
                return await self._make(size), size

    async def put_back(self, name: str, size: int) -> None:
        """What was taken is not used after all."""
        async with self._changing:
            if self._is_usual(size) and len(self._free) < FREE_FILES:
                self._free[name] = size
            else:
                await self._place.disk.remove(self._place.path(name))

    async def give(self, name: str, size: int) -> None:
        """A data file that is no longer needed: kept under another name, or removed. To be repeated if cancelled."""
        disk, path = self._place.disk, self._place.path
        async with self._changing:
            if name not in self._leaving:
                if not self._is_usual(size) or len(self._free) >= FREE_FILES:
                    await disk.remove(path(name))
                    return
                self._leaving[name] = self._next_name()
            free = self._leaving[name]
            try:
                await disk.rename(path(name), path(free))
            except NotFound:
                if not await disk.exists(path(free)):  # else a call that was cancelled has done it
                    raise
            del self._leaving[name]
            self._free[free] = size

    async def release(self) -> bool:
        """Give the space of the free files back to the volume; whether there was any."""
        async with self._changing:
            released = bool(self._free)
            await self._remove_free()
            return released

    async def _remove_free(self, below: int | None = None) -> None:
        """Those that are smaller than so many bytes, if that is given."""
        for name, there in list(self._free.items()):
            if below is None or there < below:
                del self._free[name]
                await self._place.disk.remove(self._place.path(name))

    def _is_usual(self, size: int) -> bool:
        """It is as large as those made now, or larger, and not because of one large batch."""
        return self.file_bytes <= size <= self._most_bytes

    async def _make(self, size: int) -> str:
        try:
            name = await self._create(size)
        except NoSpace:
            self.full = True
            raise
        self.full = False
        return name

    async def _create(self, size: int) -> str:
        disk = self._place.disk
        free, _ = await disk.space()
        if free < size + self.margin_bytes:
            raise NoSpace(f"{free} bytes are free on the volume of replica {self._place.replica}, {size} are needed")
        name = self._next_name()
        path = self._place.path(name)
        file = await disk.open(path, create=True)
        try:
            await file.allocate(size)
        except NoSpace:
            await disk.remove(path)
            raise
        finally:
            file.close()
        return name

    def _next_name(self) -> str:
        self._number += 1
        return free_name(self._number - 1)

    async def _size(self, name: str) -> int:
        try:
            file = await self._place.disk.open(self._place.path(name))
        except NotFound:
            return 0
        try:
            return await file.size()
        finally:
            file.close()


def _number_of(name: str) -> int:
    digits = "".join(filter(str.isdigit, name))
    return int(digits) if digits else 0
