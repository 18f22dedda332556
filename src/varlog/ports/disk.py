"""Files of one volume. Paths are relative to the volume's folder, with '/' between parts.

Errors are translated here: a full volume raises `NoSpace`, a missing file `NotFound`, a lack of file descriptors or of
memory, which passes, `Unavailable`, anything else that goes wrong with bytes on their way to the disk `DiskFailed`.
"""

from collections.abc import Sequence
from typing import Protocol

from varlog.base.errors import VarlogError
from varlog.wire.frame import Buffer


class DiskFailed(VarlogError):
    """An I/O error. After one on write or sync, the file is not to be trusted again."""


class File(Protocol):
    """An open file. Writes given at once are performed in the order given."""

    path: str

    async def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """Write all buffers one after the other from `offset` on; with `sync`, durable on return."""
        ...

    async def read(self, offset: int, length: int) -> memoryview:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    async def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with its blocks reserved; new bytes read as zeros."""
        ...

    async def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One volume, locked for this process. Listings are sorted."""

    async def open(self, path: str, *, create: bool = False) -> File:
        """With `create`, the file is new and empty (`AlreadyExists` if it is there)."""
        ...

    async def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; `NotFound` if there is none."""
        ...

    async def exists(self, path: str) -> bool: ...

    async def make_folder(self, path: str) -> None:
        """With all above it; no error if it is there."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Atomic, replacing `new`; durable only after `sync_folder` of the folder."""
        ...

    async def remove(self, path: str) -> None: ...

    async def remove_folder(self, path: str) -> None:
        """With everything in it."""
        ...

    async def sync_folder(self, path: str) -> None:
        """Makes created, renamed and removed names in it durable."""
        ...

    async def space(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...

    def close(self) -> None:
        """Give the lock back."""
        ...


async def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Write a small file so that a crash leaves the old or the new one, never a part."""
    folder, _, _ = path.rpartition("/")
    temporary = f"{path}.new"
    if await disk.exists(temporary):
        await disk.remove(temporary)
    file = await disk.open(temporary, create=True)
    try:
        await file.write(0, [data], sync=True)
    finally:
        file.close()
    await disk.rename(temporary, path)
    await disk.sync_folder(folder)
