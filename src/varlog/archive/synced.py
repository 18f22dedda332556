"""How pyiceberg writes the metadata of tables into folders: on the disk before anything names it.

A record, or the catalog, that names a file which a power failure took away would lose an archive whose nodes have
already trimmed what it holds.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from varlog.archive.place import make_folder, sync_file


class SyncedFileIO(PyArrowFileIO):
    """For folders; loaded by its name, which `Place.properties` has."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, host, path = self.parse_location(location, self.properties)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        make_folder(path.parent)
        return _SyncedStream(super().create(overwrite), path)


class _SyncedStream:
    """Closed, it is durable."""

    def __init__(self, stream: OutputStream, path: Path) -> None:
        self._stream = stream
        self._path = path

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        sync_file(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
