"""A disk in memory that crashes: it keeps, loses and tears what was not synced, as a test decides.

Bytes: `bytes` is what readers see, `durable` what a crash cannot touch. A crash takes each block that
differs either as it was or as it is, in any combination. After a failed sync the cache lies: what it
shows never reaches the disk unless it is written again. Names: creating, renaming and removing are kept
in order until the folder is synced; a crash keeps any prefix of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from varlog.base.errors import AlreadyExists, NoSpace, NotFound, VarlogError
from varlog.ports.disk import DiskFailed
from varlog.wire.frame import Buffer

BLOCK = 512
Raw = bytes
Keep = Callable[[int], bool]
"""Asked for each block that was not synced, by a running number: does it survive?"""


@dataclass(eq=False)
class Content:
    """One file's bytes, whatever it is called."""

    bytes: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    doomed: dict[int, Raw] = field(default_factory=dict)
    """Blocks that a failed sync left behind: the cache shows them as clean, on disk is what stands here."""

    def write(self, offset: int, data: Raw) -> None:
        self.bytes[offset : offset + len(data)] = data
        for block in range(offset // BLOCK, -(-(offset + len(data)) // BLOCK)):
            self.doomed.pop(block, None)

    def sync(self) -> None:
        """Everything but what looks clean."""
        self.durable = bytearray(self.bytes)
        for block, old in self.doomed.items():
            self.durable[block * BLOCK : block * BLOCK + len(old)] = old

    def fail_sync(self) -> None:
        old = self.durable.ljust(len(self.bytes), b"\0")
        for start in range(0, len(self.bytes), BLOCK):
            before = Raw(old[start : start + BLOCK])
            if self.bytes[start : start + BLOCK] != before:
                self.doomed[start // BLOCK] = before

    def crash(self, keep: Keep, block: int, number: int) -> int:
        """Gives the next running number."""
        size = len(self.bytes) if keep(number) else len(self.durable)
        number += 1
        old = self.durable.ljust(len(self.bytes), b"\0")
        survived = bytearray(old)
        for start in range(0, len(self.bytes), block):
            end = start + block
            if self.bytes[start:end] != old[start:end]:
                if keep(number) and not self.doomed:
                    survived[start:end] = self.bytes[start:end]
                number += 1
        self.bytes = survived[: max(size, len(self.durable))]
        self.doomed.clear()
        self.sync()
        return number


class CrashDisk:
    """Implements the `Disk` port; hands out `CrashFile`s."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.fail_syncs = 0
        """So many syncs of files fail from now on."""
        self.fail_writes = 0
        self.unreadable: dict[str, VarlogError] = {}
        """What opening a file raises, by the end of its path."""
        self.steps_left: int | None = None
        """Power is lost after so many more operations: every later one fails, until `crash`."""
        self.lose_power_in_sync = False
        """The next write with a sync reaches the page cache, and then power is lost."""
        self.wait_in_write: asyncio.Event | None = None
        """Writes wait for this before they do anything."""
        self.waiting = False
        self.writes: list[tuple[str, int, bytes]] = []
        """Every write so far."""
        self.syncs = 0
        self.reads = self.bytes_read = 0
        self._contents: dict[str, Content] = {}
        self._folders: dict[str, None] = {"": None}
        self._durable: dict[str, Content] = {}
        self._moves: list[tuple[str, str, Content | None]] = []
        """(folder, path, content) in order: from now on that path has this content, or none."""

    # ------------------------------------------------------------ what tests do

    def content(self, path: str) -> Content:
        return self._contents[path]

    def paths(self) -> list[str]:
        return sorted(self._contents)

    @property
    def used(self) -> int:
        return sum(len(content.bytes) for content in self._contents.values())

    def crash(self, keep: Keep = lambda _: False, *, block: int = 512, moves: int = 0) -> None:
        """Lose power: `moves` changes of names survive, and the blocks `keep` says."""
        for _, path, content in self._moves[:moves]:
            self._apply(self._durable, path, content)
        self._moves.clear()
        self._contents = dict(self._durable)
        number = 0
        for path in sorted(self._contents):
            number = self._contents[path].crash(keep, block, number)
            self._make_folders(path.rpartition("/")[0])
        self.fail_syncs = self.fail_writes = 0
        self.steps_left = None
        self.lose_power_in_sync = False

    def step(self) -> None:
        if self.steps_left is not None:
            if not self.steps_left:
                raise DiskFailed("power is lost")
            self.steps_left -= 1

    @property
    def pending_moves(self) -> int:
        return len(self._moves)

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Let one byte rot, on the platter and in the cache."""
        content = self._contents[path]
        content.bytes[offset] ^= mask
        content.durable[offset] ^= mask

    # ------------------------------------------------------------ the port

    async def open(self, path: str, *, create: bool = False) -> "CrashFile":
        self.step()
        for end, error in self.unreadable.items():
            if path.endswith(end):
                raise error
        if create:
            if path in self._contents:
                raise AlreadyExists(path)
            self._need_folder(path.rpartition("/")[0])
            self._move(path, Content())
        if path not in self._contents:
            raise NotFound(path)
        return CrashFile(self, path, self._contents[path])

    async def list(self, folder: str) -> list[str]:
        self.step()
        self._need_folder(folder)
        prefix = f"{folder}/" if folder else ""
        return sorted(
            {
                path.removeprefix(prefix).partition("/")[0]
                for path in [*self._contents, *self._folders]
                if path.startswith(prefix) and path != folder
            }
        )

    async def exists(self, path: str) -> bool:
        self.step()
        return path in self._contents or path in self._folders

    async def make_folder(self, path: str) -> None:
        """Folders are durable at once: losing them is the business of the simulator's disk."""
        self.step()
        self._make_folders(path)

    def _make_folders(self, path: str) -> None:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self._folders["/".join(parts[:end])] = None

    async def rename(self, old: str, new: str) -> None:
        self.step()
        if old not in self._contents:
            raise NotFound(old)
        content = self._contents[old]
        self._move(new, content, gone=old)

    async def remove(self, path: str) -> None:
        self.step()
        if path not in self._contents:
            raise NotFound(path)
        self._move(path, None)

    async def remove_folder(self, path: str) -> None:
        self.step()
        self._need_folder(path)
        for each in [each for each in self._contents if each.startswith(f"{path}/")]:
            self._move(each, None)
        for each in [each for each in self._folders if each == path or each.startswith(f"{path}/")]:
            del self._folders[each]

    async def sync_folder(self, path: str) -> None:
        self.step()
        self._need_folder(path)
        left = []
        for move in self._moves:
            if move[0] == path:
                self._apply(self._durable, move[1], move[2])
            else:
                left.append(move)
        self._moves = left

    async def space(self) -> tuple[int, int]:
        self.step()
        return max(self.capacity - self.used, 0), self.capacity

    def close(self) -> None:
        """Nothing to give back."""

    def _need_folder(self, folder: str) -> None:
        if folder not in self._folders:
            raise NotFound(folder)

    def _move(self, path: str, content: Content | None, gone: str | None = None) -> None:
        folder = path.rpartition("/")[0]
        if gone is not None:
            # one move: the new name has it and the old one does not
            self._apply(self._contents, gone, None)
            self._moves.append((folder, f"{gone}\n{path}", content))
        else:
            self._moves.append((folder, path, content))
        self._apply(self._contents, path, content)

    @staticmethod
    def _apply(names: dict[str, Content], path: str, content: Content | None) -> None:
        gone, _, path = path.rpartition("\n")
        names.pop(gone, None)
        if content is None:
            names.pop(path, None)
        else:
            names[path] = content


class CrashFile:
    """An open file."""

    def __init__(self, disk: CrashDisk, path: str, content: Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._closed = False

    async def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        self._check_open()
        data = b"".join(buffers)
        if self._disk.wait_in_write is not None:
            self._disk.waiting = True
            await self._disk.wait_in_write.wait()
        if self._disk.fail_writes:
            self._disk.fail_writes -= 1
            raise DiskFailed(f"write of {self.path} failed")
        content = self._content
        grown = offset + len(data) - len(content.bytes)
        if grown > 0:
            self._grow(grown)
        content.write(offset, data)
        self._disk.writes.append((self.path, offset, data))
        if sync:
            if self._disk.lose_power_in_sync:
                self._disk.steps_left = 0
                self._disk.step()
            if self._disk.fail_syncs:
                self._disk.fail_syncs -= 1
                content.fail_sync()
                raise DiskFailed(f"sync of {self.path} failed")
            self._disk.syncs += 1
            content.sync()

    async def read(self, offset: int, length: int) -> memoryview:
        self._check_open()
        data = bytes(self._content.bytes[offset : offset + length])
        self._disk.reads += 1
        self._disk.bytes_read += len(data)
        return memoryview(data)

    async def allocate(self, size: int) -> None:
        self._check_open()
        grown = size - len(self._content.bytes)
        if grown > 0:
            self._grow(grown)
        else:
            del self._content.bytes[size:]

    async def size(self) -> int:
        self._check_open()
        return len(self._content.bytes)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        self._disk.step()
        if self._closed:
            raise DiskFailed(f"{self.path} was closed")

    def _grow(self, size: int) -> None:
        if self._disk.used + size > self._disk.capacity:
            raise NoSpace("the volume is full")
        self._content.bytes.extend(bytes(size))
