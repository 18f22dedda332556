"""The `Disk` port of one simulated process, on a `Platter`: adds time, full volumes and failing syncs.

Operations on one file wait in line for each other, as do those on names. An operation takes effect
when its time has come even if nobody waits for it any more (a write once given to the kernel is not
called back), unless the volume's generation changed: the process that gave it died before.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from varlog.base.errors import NoSpace, VarlogError
from varlog.ports.disk import DiskFailed
from varlog.sim.loop import SimulatedLoop
from varlog.sim.platter import Content, Folder, Platter
from varlog.wire.frame import Buffer

if TYPE_CHECKING:
    from varlog.sim.host import Process

Result = TypeVar("Result")


class _Line(Protocol):
    """What operations wait in line for: a file, or the names of a volume."""

    busy_until: float


class _Operations:
    """Operations of one process on one volume."""

    __slots__ = ("_loop", "_platter", "_process")

    def __init__(self, platter: Platter, loop: SimulatedLoop, process: "Process") -> None:
        self._platter = platter
        self._loop = loop
        self._process = process

    def perform(
        self, line: _Line, seconds: float, end: Callable[[], Result], begin: Callable[[], None] | None = None
    ) -> "asyncio.Future[Result]":
        """`begin` happens when all in line before are done, `end` `seconds` later; the future brings its result."""
        if not self._process.alive:
            raise asyncio.CancelledError
        future: asyncio.Future[Result] = self._loop.create_future()
        start = max(line.busy_until, self._loop.now)
        line.busy_until = start + seconds
        if begin is not None and start > self._loop.now:
            self._at(start, self._begin_late, begin, end, future, line.busy_until)
        elif begin is None or self._try(begin, future):
            self._at(line.busy_until, self._end, end, future)
        return future

    def _at(self, when: float, step: Callable[..., None], *arguments: Any) -> None:
        generation = self._platter.generation
        self._loop.schedule(when, self._if_alive, generation, step, arguments, context=self._process.context)

    def _if_alive(self, generation: int, step: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if generation == self._platter.generation:
            step(*arguments)

    def _begin_late(
        self, begin: Callable[[], None], end: Callable[[], Any], future: "asyncio.Future[Any]", done_at: float
    ) -> None:
        if self._try(begin, future):
            self._at(done_at, self._end, end, future)

    def _try(self, begin: Callable[[], None], future: "asyncio.Future[Any]") -> bool:
        try:
            begin()
        except VarlogError as error:
            self._tell(future, None, error)
            return False
        return True

    def _end(self, end: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        try:
            result = end()
        except VarlogError as error:
            self._tell(future, None, error)
        else:
            self._tell(future, result, None)

    def _tell(self, future: "asyncio.Future[Any]", result: Any, error: VarlogError | None) -> None:
        """The platter does not care that the process is paused; the process does."""
        if self._process.paused:
            self._process.arrive_at(self._loop.now, _complete, future, result, error)
        else:
            _complete(future, result, error)


def _complete(future: "asyncio.Future[Any]", result: Any, error: VarlogError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class SimulatedFile:
    """An open file."""

    def __init__(self, disk: "SimulatedDisk", path: str, content: Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._closed = False

    async def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """The bytes are there as soon as it is this write's turn; a sync takes them over at that moment."""
        self._check_open()
        data = b"".join(buffers)
        weather, random = self._disk.platter.weather, self._disk.platter.random
        seconds = weather.write_seconds(random, len(data)) + (weather.sync_seconds(random) if sync else 0.0)
        if sync:
            await self._perform(seconds, self._end_sync, lambda: self._begin_sync(offset, data))
        else:
            await self._perform(seconds, _nothing, lambda: self._put(offset, data))

    async def read(self, offset: int, length: int) -> memoryview:
        self._check_open()
        seconds = self._disk.platter.weather.read_seconds(self._disk.platter.random)
        return await self._perform(seconds, lambda: memoryview(bytes(self._content.data[offset : offset + length])))

    async def allocate(self, size: int) -> None:
        self._check_open()
        seconds = self._disk.platter.weather.write_seconds(self._disk.platter.random, 0)
        await self._perform(seconds, lambda: self._grow(size))

    async def size(self) -> int:
        self._check_open()
        return self._content.size

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise DiskFailed(f"{self.path} was closed")

    def _put(self, offset: int, data: bytes) -> None:
        self._check_space(offset + len(data))
        self._content.write(offset, data)
        self._disk.event("writes", self.path, f"{len(data)} bytes at {offset}")

    def _grow(self, size: int) -> None:
        self._check_space(size)
        self._content.extend(size)
        self._disk.event("allocates", self.path, f"{size} bytes")

    def _check_space(self, size: int) -> None:
        wanted = size - self._content.size
        if wanted > 0 and wanted > self._disk.platter.free:
            self._disk.event("is full for", self.path, f"{size} bytes")
            raise NoSpace(f"no space for {wanted} more bytes on {self._disk.platter.name}")

    def _begin_sync(self, offset: int, data: bytes) -> None:
        self._put(offset, data)
        self._content.begin_sync()

    def _end_sync(self) -> None:
        platter = self._disk.platter
        if platter.sync_fails(self.path):
            self._content.fail_sync(platter.random)
            self._disk.event("fails to sync", self.path)
            raise DiskFailed(f"sync of {self.path} failed")
        self._content.end_sync()
        self._disk.event("syncs", self.path)

    def _perform(
        self, seconds: float, end: Callable[[], Result], begin: Callable[[], None] | None = None
    ) -> "asyncio.Future[Result]":
        return self._disk.operations.perform(self._content, seconds, end, begin)


def _nothing() -> None:
    """How a write without sync ends."""


class SimulatedDisk:
    """One volume in the hands of one process."""

    def __init__(self, platter: Platter, loop: SimulatedLoop, process: "Process") -> None:
        self.platter = platter
        self._loop = loop
        self._process = process
        self.operations = _Operations(platter, loop, process)
        platter.locked = True

    def event(self, what: str, path: str, details: str = "") -> None:
        trace = self._process.host.fabric.trace
        if trace.on:
            trace.event(self._loop.now, self._process.host.name, what, f"{self.platter.name}:{path} {details}")

    async def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        find = self.platter.create if create else self.platter.file
        return SimulatedFile(self, path, await self._change(lambda: find(path)))

    async def list(self, folder: str) -> list[str]:
        return await self._look(lambda: sorted(self.platter.folder(folder).names))

    async def exists(self, path: str) -> bool:
        return await self._look(lambda: self.platter.find(path) is not None)

    async def make_folder(self, path: str) -> None:
        await self._change(lambda: self.platter.make_folder(path))

    async def rename(self, old: str, new: str) -> None:
        await self._change(lambda: self.platter.rename(old, new))
        self.event("renames", old, f"to {new}")

    async def remove(self, path: str) -> None:
        await self._change(lambda: self.platter.remove(path))
        self.event("removes", path)

    async def remove_folder(self, path: str) -> None:
        await self._change(lambda: self.platter.remove_folder(path))
        self.event("removes", path, "with everything in it")

    async def sync_folder(self, path: str) -> None:
        """Fails like any sync; what it should have made durable then stays undecided."""
        seconds = self.platter.weather.sync_seconds(self.platter.random)
        await self.operations.perform(self.platter, seconds, lambda: self._sync_names(path))

    def _sync_names(self, path: str) -> None:
        self.platter.folder(path)
        if self.platter.sync_fails(path):
            self.event("fails to sync", path)
            raise DiskFailed(f"sync of the folder {path!r} failed")
        self.platter.sync_folder(path)
        self.event("syncs", path or "/")

    async def space(self) -> tuple[int, int]:
        return await self._look(lambda: (self.platter.free, self.platter.weather.capacity))

    def close(self) -> None:
        if self._process.alive:
            self.platter.locked = False

    async def _look(self, effect: Callable[[], Result]) -> Result:
        return await self.operations.perform(
            self.platter, self.platter.weather.read_seconds(self.platter.random), effect
        )

    async def _change(self, effect: Callable[[], Result]) -> Result:
        return await self.operations.perform(
            self.platter, self.platter.weather.write_seconds(self.platter.random, 0), effect
        )


def tree(platter: Platter) -> dict[str, bytes]:
    """Every file with its bytes as seen now, for tests."""
    found: dict[str, bytes] = {}

    def walk(folder: Folder, path: str) -> None:
        for name, node in sorted(folder.names.items()):
            if isinstance(node, Folder):
                walk(node, f"{path}{name}/")
            else:
                found[path + name] = bytes(node.data)

    walk(platter.root, "")
    return found
