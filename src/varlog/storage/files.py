"""The data files of one replica in order, with bounded numbers of open handles and of columns in memory.

A file whose columns are in its sidecar keeps only a summary here; its columns are loaded when somebody
asks, and the last ones stay in a small cache. Whoever reads a file pins it: a pinned file is neither
closed nor recycled under him, and neither is any file behind it.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from varlog.base.errors import InvalidArgument
from varlog.base.invariant import invariant
from varlog.ports.disk import File
from varlog.storage.index import BindingColumn, Columns, SparseIndex
from varlog.storage.layout import FILE_HEADER_BYTES, FileHeader, data_name, index_name
from varlog.storage.place import Place
from varlog.storage.scan import FileScan, copy_bindings, scan_file
from varlog.storage.sidecar import NO_GOOD, Summary, read_sidecar

OPEN_HANDLES = 8
"""Files of one replica kept open besides the one being written."""

CACHED_COLUMN_BYTES = 4 << 20
"""Columns of one replica loaded from sidecars and kept; the one loaded last is kept whatever its size."""


class DataFile:
    """One data file: its header, how far it reaches, and how positions in it are found."""

    __slots__ = ("_summary", "columns", "end", "end_slot", "first_slot", "handle", "header", "name", "pins", "size")

    def __init__(self, header: FileHeader, size: int) -> None:
        self.name = data_name(header.first_slot)
        self.header = header
        self.first_slot = header.first_slot
        self.size = size
        self.end = FILE_HEADER_BYTES
        """Offset behind the last record that is synced."""
        self.end_slot = header.first_slot
        """One past the last slot that is synced."""
        self.columns: Columns | None = Columns(SparseIndex(), BindingColumn(header.first_slot))
        """None: they are in the sidecar."""
        self.handle: File | None = None
        self.pins = 0
        self._summary: Summary | None = None

    @property
    def bound_end(self) -> int:
        return self.columns.bindings.end if self.columns is not None else self.end_slot

    @property
    def glsn_end(self) -> int:
        """One past the last GLSN bound in it; 0 if none is."""
        if self.columns is not None:
            return self.columns.bindings.glsn_end
        return self._summary.glsn_end if self._summary is not None else 0

    @property
    def max_time(self) -> int:
        if self.columns is not None:
            return self.columns.index.max_time
        return self._summary.max_time if self._summary is not None else 0

    def summarize(self, summary: Summary) -> None:
        """From now on the columns are in the sidecar."""
        self._summary = summary
        self.end = summary.end
        self.end_slot = summary.end_slot
        self.columns = None

    def distrust(self) -> None:
        """The sidecar is no good after all: the columns have to come from the data files."""
        self._summary = None
        self.columns = Columns(SparseIndex(), BindingColumn(self.first_slot))

    def matches(self, summary: Summary) -> bool:
        """Whether a sidecar is still the one this file was summarized by."""
        return summary == self._summary


class Files:
    """Never empty once the replica is open. The last file is the one being written."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._closed = False
        self._files: list[DataFile] = []
        self.removed: list[DataFile] = []
        """Forgotten here, but as far as is known still on disk."""
        self.last: DataFile
        """Set by the first `append`."""
        self._firsts: list[int] = []
        self._full_bytes: int | None = None
        """Of all files but the last; None: to be counted."""
        self._open: dict[DataFile, None] = {}
        """Files with a handle, the one opened first in front."""
        self._cache: dict[DataFile, Columns] = {}
        """The one unused longest in front."""
        self._cached_bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, file: object) -> bool:
        return file in self._files

    def __getitem__(self, number: int) -> DataFile:
        return self._files[number]

    @property
    def full(self) -> list[DataFile]:
        """All but the last."""
        return self._files[:-1]

    @property
    def stored_bytes(self) -> int:
        if self._full_bytes is None:
            self._full_bytes = sum(file.end for file in self.full)
        return self._full_bytes + self.last.end

    def append(self, file: DataFile) -> None:
        invariant(not self._firsts or file.first_slot > self._firsts[-1], "files follow each other", file=file.name)
        self._full_bytes = None
        self._files.append(file)
        self.last = file
        self._firsts.append(file.first_slot)

    def remove_first(self, count: int) -> None:
        """Forget the first files, which nobody may be reading; they are to be removed from the disk."""
        gone = self._files[:count]
        self.removed += gone
        del self._files[:count]
        del self._firsts[:count]
        self._full_bytes = None
        for file in gone:
            self._uncache(file)
            self._close(file)

    def number_of(self, slot: int) -> int:
        """The number of the file that holds `slot`."""
        number = bisect_right(self._firsts, slot) - 1
        invariant(number >= 0, "the slot lies before the first file", slot=slot, first=self._firsts[0])
        return number

    def find(self, slot: int) -> DataFile:
        return self._files[self.number_of(slot)]

    def from_slot(self, slot: int) -> list[DataFile]:
        """The file that holds `slot` and all behind it."""
        if slot >= self._firsts[-1]:
            return self._files[-1:]
        return self._files[self.number_of(slot) :]

    def close(self) -> None:
        self._closed = True
        for file in self._files:
            self._close(file)

    # ------------------------------------------------------------ handles

    @contextmanager
    def pinned(self, file: DataFile) -> Iterator[None]:
        """Files are removed from the front only: while this one is pinned, it and all behind it stay."""
        file.pins += 1
        try:
            yield
        finally:
            file.pins -= 1

    @asynccontextmanager
    async def use(self, file: DataFile) -> AsyncIterator[File]:
        """An open handle of a file, which stays as it is meanwhile."""
        with self.pinned(file):
            yield file.handle or await self.open(file)

    async def open(self, file: DataFile) -> File:
        """For who has pinned the file, or writes it."""
        handle = await self.place.disk.open(self.place.path(file.name))
        if self._closed:  # nobody would close it any more
            handle.close()
            raise InvalidArgument(f"the files of replica {self.place.replica} are closed")
        if file.handle is not None:
            handle.close()
            return file.handle
        self.adopt(file, handle)
        return handle

    def adopt(self, file: DataFile, handle: File) -> None:
        """Keep a handle until others are used more."""
        file.handle = handle
        self._open[file] = None
        if len(self._open) > OPEN_HANDLES + 1:
            for other in list(self._open):
                if not other.pins and other is not self.last and other is not file:
                    self._close(other)
                    break

    def _close(self, file: DataFile) -> None:
        self._open.pop(file, None)
        if file.handle is not None:
            file.handle.close()
            file.handle = None

    # ------------------------------------------------------------ columns

    async def columns(self, file: DataFile) -> Columns:
        """From memory, the cache, the sidecar, or, where that is damaged, from the data files."""
        if file.columns is not None:
            return file.columns
        cached = self._cache.pop(file, None)
        if cached is not None:
            self._cache[file] = cached
            return cached
        with self.pinned(file):
            loaded = await self._load(file)
        if file.columns is None:
            self._remember(file, loaded)
        return loaded

    async def _load(self, file: DataFile) -> Columns:
        try:
            summary, columns, _ = await read_sidecar(self.place.disk, self.place.path(index_name(file.first_slot)))
        except NO_GOOD:
            summary = None
        if summary is None or not file.matches(summary):
            # The next `collect` writes the sidecar anew.
            file.columns = await self.rebuild(file)
            return file.columns
        return columns

    def _remember(self, file: DataFile, columns: Columns) -> None:
        self._uncache(file)
        self._cache[file] = columns
        self._cached_bytes += columns.memory_bytes
        while self._cached_bytes > CACHED_COLUMN_BYTES and len(self._cache) > 1:
            self._uncache(next(iter(self._cache)))

    def _uncache(self, file: DataFile) -> None:
        columns = self._cache.pop(file, None)
        if columns is not None:
            self._cached_bytes -= columns.memory_bytes

    async def rebuild(self, file: DataFile, scans: dict[DataFile, FileScan] | None = None) -> Columns:
        """The columns of a full file from the data files alone; `scans` has what was read already.

        The index is in the file itself; its bindings are there and in the files that follow.
        """
        index: SparseIndex | None = None
        column = BindingColumn(file.first_slot)
        for each in self._files[self._files.index(file) :]:
            scan = (scans or {}).get(each) or await self._scan(each)
            index = scan.index if index is None else index
            copy_bindings(column, scan.bound, file.end_slot)
            if column.end >= file.end_slot:
                break
        return Columns(SparseIndex() if index is None else index, column)

    async def _scan(self, file: DataFile) -> FileScan:
        async with self.use(file) as handle:
            scan, stop = await scan_file(handle, file.header, file.end)
        if stop.reason is not None:
            raise self.place.corrupt(file.name, scan.end_slot, stop.reason, stop.offset)
        return scan
