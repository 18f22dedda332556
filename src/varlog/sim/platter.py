"""What a simulated volume holds: bytes and names, as a running system sees them and as a crash leaves them.

Bytes. A write changes the file at once (the page cache) and remembers, per block of 512 bytes, what
was there before. A sync takes over what is remembered, and forgets it when it succeeds:

    content   the file as readers see it now
    dirty     block -> its bytes before the writes since the last sync began
    syncing   block -> its bytes before the writes which the sync under way is to make durable
    doomed    block -> its bytes on the disk, where a failed sync left them; no later sync cares

Losing power puts back an arbitrary subset of the blocks in `dirty` and `syncing`: torn writes, in
any order. After a sync that failed the cache keeps showing what never reached the disk, as if it
were clean: `doomed` blocks are put back by the next loss of power, unless they are written anew.

Names. Creating, renaming and removing change the folder at once and are remembered as *moves* until
the folder is synced; losing power keeps an arbitrary subset of them, or a prefix.
"""

from dataclasses import dataclass, field
from random import Random

from varlog.base.errors import AlreadyExists, NotFound
from varlog.ports.disk import DiskFailed
from varlog.sim.weather import CALM_DISK, DiskWeather

BLOCK = 512
"""What a disk writes as a whole."""


class Content:
    """One file's bytes. Lives on while it is open, whatever happens to its name."""

    __slots__ = (
        "_syncing_newest",
        "_syncing_size",
        "busy_until",
        "data",
        "dirty",
        "doomed",
        "durable_size",
        "newest",
        "rotten_ends",
        "syncing",
    )

    def __init__(self) -> None:
        self.busy_until = 0.0
        """Virtual time at which the operations given so far are done; see `sim.disk`."""
        self.data = bytearray()
        self.newest = 0
        """Where the last write began."""
        self._syncing_newest = 0
        self.rotten_ends: dict[int, bool] = {}
        """Where a bit flipped in what was written last, and nothing was synced behind it -> whether it was cut off."""
        self.durable_size = 0
        self._syncing_size = 0
        self.dirty: dict[int, bytes] = {}
        self.syncing: dict[int, bytes] | None = None
        self.doomed: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        return len(self.data)

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self._remember(offset, end)
        self.data[offset:end] = data
        self.newest = offset
        if self.rotten_ends:
            self._judge_rot(offset)

    def _judge_rot(self, offset: int) -> None:
        """Files grow at their end: whoever writes at or before what has rotted took it for torn, and cut it off."""
        if offset == 0:
            self.rotten_ends.clear()  # another header: it has become another file, and nobody took the rot for anything
        self.rotten_ends.update({at: True for at in self.rotten_ends if at >= offset})

    def extend(self, size: int) -> None:
        """Longer, with zeros; never shorter."""
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))

    def _remember(self, start: int, end: int) -> None:
        dirty, content = self.dirty, self.data
        for block in range(start // BLOCK, (end + BLOCK - 1) // BLOCK):
            if block in self.doomed:
                dirty[block] = self.doomed.pop(block)
            elif block not in dirty:
                dirty[block] = bytes(content[block * BLOCK : (block + 1) * BLOCK])

    def begin_sync(self) -> None:
        """What was written until now is on its way to the disk. Syncs of one file do not overlap."""
        self.syncing, self.dirty = self.dirty, {}
        self._syncing_size = len(self.data)
        self._syncing_newest = self.newest

    def end_sync(self) -> None:
        self.syncing = None
        self.durable_size = self._syncing_size
        # What is synced says that all before it was: rot there is not taken for a torn write any more.
        self.rotten_ends = {at: cut for at, cut in self.rotten_ends.items() if cut or at >= self._syncing_newest}

    def break_off_sync(self) -> None:
        """Nobody waits for the sync any more: what it was to make durable is as if it had not begun."""
        self.dirty |= self.syncing or {}
        self.syncing = None

    def fail_sync(self, random: Random) -> None:
        """Some blocks got there, some not; nobody is told which."""
        for block, old in (self.syncing or {}).items():
            if random.random() < 0.5:
                (self.dirty if block in self.dirty else self.doomed)[block] = old
        self.syncing = None

    def is_cold(self, block: int) -> bool:
        """It is on disk as it is seen."""
        return not (block in self.dirty or block in self.doomed or block in (self.syncing or ()))

    def lose_power(self, keep: float, random: Random) -> None:
        """Each block written since the last sync stays with chance `keep`."""
        newest_kept = set()
        for block, old in self.dirty.items():
            if random.random() < keep:
                newest_kept.add(block)
            else:
                self._put_back(block, old)
        for block, old in (self.syncing or {}).items():
            if block not in newest_kept and random.random() >= keep:
                self._put_back(block, old)
        for block, old in self.doomed.items():
            self._put_back(block, old)
        self.dirty, self.syncing, self.doomed = {}, None, {}
        if len(self.data) > self.durable_size and random.random() >= keep:
            del self.data[self.durable_size :]
        self.durable_size = len(self.data)

    def _put_back(self, block: int, old: bytes) -> None:
        """Bytes of a block that were beyond the end of the file before become zeros."""
        start = block * BLOCK
        end = min(start + BLOCK, len(self.data))
        self.data[start:end] = old.ljust(BLOCK, b"\0")[: end - start]


class Folder:
    """Names as seen now, and as known to be durable."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Content | Folder


@dataclass(frozen=True, slots=True)
class Move:
    """Names that change together: all of it survives a crash, or nothing."""

    changes: tuple[tuple[Folder, str, Node | None], ...]

    def apply_durably(self) -> None:
        for folder, name, node in self.changes:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


@dataclass(eq=False)
class Platter:
    """One volume. `generation` grows with every crash: operations of an earlier one have no more effect."""

    name: str
    random: Random
    weather: DiskWeather = CALM_DISK
    taken_by_others: int = 0
    """Bytes somebody else fills the volume with, for a while."""
    sync_failures_wanted: int = 0
    """The next so many syncs fail."""
    failed_syncs: list[str] = field(default_factory=list)
    """Paths of files and folders whose sync failed."""
    _rotten: list[tuple[str, Content]] = field(default_factory=list)
    """Files that rotted in what was written last, by the paths that they had then."""
    generation: int = 0
    locked: bool = False
    busy_until: float = 0.0
    """Like that of a file, for operations on names."""
    root: Folder = field(default_factory=Folder)
    moves: list[Move] = field(default_factory=list)

    # ------------------------------------------------------------ names

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for part in _parts(path):
            if not isinstance(node, Folder) or part not in node.names:
                return None
            node = node.names[part]
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if not isinstance(node, Folder):
            raise NotFound(f"no folder {path!r} on {self.name}")
        return node

    def file(self, path: str) -> Content:
        node = self.find(path)
        if node is None:
            raise NotFound(f"no file {path!r} on {self.name}")
        if isinstance(node, Folder):
            raise DiskFailed(f"{path!r} is a folder")
        return node

    def create(self, path: str) -> Content:
        if self.find(path) is not None:
            raise AlreadyExists(f"{path!r} is there")
        content = Content()
        self._move((self._parent(path), _last(path), content))
        return content

    def make_folder(self, path: str) -> None:
        at = self.root
        for part in _parts(path):
            node = at.names.get(part)
            if node is None:
                node = Folder()
                self._move((at, part, node))
            if not isinstance(node, Folder):
                raise DiskFailed(f"{part!r} in {path!r} is a file")
            at = node

    def rename(self, old: str, new: str) -> None:
        node = self.find(old)
        if node is None:
            raise NotFound(f"no file {old!r} on {self.name}")
        self._move((self._parent(old), _last(old), None), (self._parent(new), _last(new), node))

    def remove(self, path: str) -> None:
        self.file(path)
        self._move((self._parent(path), _last(path), None))

    def remove_folder(self, path: str) -> None:
        """File by file, so that a crash may leave a part."""
        folder = self.folder(path)
        for name, node in list(folder.names.items()):
            if isinstance(node, Folder):
                self.remove_folder(f"{path}/{name}")
            else:
                self._move((folder, name, None))
        self._move((self._parent(path), _last(path), None))

    def sync_folder(self, path: str) -> None:
        """Names changed in the folder are durable, in the order of their changes."""
        folder = self.folder(path)
        left = []
        for move in self.moves:
            if any(changed is folder for changed, _, _ in move.changes):
                move.apply_durably()
            else:
                left.append(move)
        self.moves = left

    def _parent(self, path: str) -> Folder:
        above, _, _ = path.rpartition("/")
        return self.folder(above)

    def _move(self, *changes: tuple[Folder, str, Node | None]) -> None:
        for folder, name, node in changes:
            if node is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = node
        self.moves.append(Move(changes))

    # ------------------------------------------------------------ space

    @property
    def used(self) -> int:
        return _bytes_under(self.root)

    @property
    def free(self) -> int:
        return max(self.weather.capacity - self.taken_by_others - self.used, 0)

    # ------------------------------------------------------------ fate

    def sync_fails(self, path: str) -> bool:
        """Whether the sync that is about to end fails."""
        if self.sync_failures_wanted:
            self.sync_failures_wanted -= 1
        elif not self.weather.sync_failure or self.random.random() >= self.weather.sync_failure:
            return False
        self.failed_syncs.append(path)
        return True

    def calm_down(self) -> None:
        """No faults from now on; as fast or slow as it always was, but for stalls."""
        self.taken_by_others = 0
        self.sync_failures_wanted = 0
        self.weather = self.weather.without_faults()

    def release(self) -> None:
        """The process that held the volume is gone, and with it whatever it had under way."""
        self.locked = False
        self.generation += 1
        for content in _files_under(self.root):
            content.break_off_sync()

    def lose_power(self, keep: float | None = None) -> None:
        """What was not synced is kept, lost or torn, as this crash will have it (unless told which share to keep)."""
        if keep is None:
            keep = self.random.choice((0.0, 1.0, 0.5, self.random.random()))
        for move in self._surviving(keep):
            move.apply_durably()
        self.moves.clear()
        _settle(self.root, keep, self.random)

    def _surviving(self, keep: float) -> list[Move]:
        if self.random.random() < 0.5:
            return self.moves[: round(keep * len(self.moves))]
        return [move for move in self.moves if self.random.random() < keep]

    def rot_cold(self) -> str:
        """Flip one bit of what a replica has on disk for sure, and does not change any more; where, or nowhere."""
        files = [(path, content) for path, content in _named(self.root, "") if _is_of_replica(path) and content.size]
        if not files:
            return ""
        path, content = self.random.choice(files)
        written = [at for at, byte in enumerate(content.data) if byte and content.is_cold(at // BLOCK)]
        if not written:
            return ""
        at = self.random.choice(written)
        content.data[at] ^= 1 << self.random.randrange(8)
        if at >= content.newest:
            content.rotten_ends[at] = False
            self._rotten.append((path, content))
        return f"{path} at {at}"

    @property
    def rotten_ends(self) -> list[str]:
        """Paths of files whose rotten end was cut off, or would be by who opens them: nothing tells it from torn."""
        return [path for path, content in self._rotten if self._is_end(path, content)]

    def _is_end(self, path: str, content: Content) -> bool:
        if any(content.rotten_ends.values()):
            return True
        above, _, name = path.rpartition("/")
        names = self.folder(above).durable if isinstance(self.find(above), Folder) else {}
        last = max((each for each in names if each.endswith(".data") and not each.startswith("free-")), default="")
        # A file has another behind it only when all of it was synced.
        return bool(content.rotten_ends) and names.get(name) is content and name >= last

    def rot(self) -> bool:
        """Flip one bit of one file, anywhere. False: there is nothing to rot."""
        files = [content for content in _files_under(self.root) if content.size]
        if not files:
            return False
        content = self.random.choice(files)
        content.data[self.random.randrange(content.size)] ^= 1 << self.random.randrange(8)
        return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _files_under(folder: Folder) -> list[Content]:
    found: list[Content] = []
    for node in folder.names.values():
        if isinstance(node, Folder):
            found += _files_under(node)
        else:
            found.append(node)
    return found


def _named(folder: Folder, path: str) -> list[tuple[str, Content]]:
    found: list[tuple[str, Content]] = []
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            found += _named(node, f"{path}{name}/")
        else:
            found.append((f"{path}{name}", node))
    return found


def _is_of_replica(path: str) -> bool:
    """A file that a replica's promises rest on, or that helps to find them."""
    name = _last(path)
    kept = name.endswith((".data", ".index")) or name in ("spec", "base")
    return path.startswith("replicas/") and kept and not name.startswith("free-")


def _bytes_under(folder: Folder) -> int:
    return sum(content.size for content in _files_under(folder))


def _settle(folder: Folder, keep: float, random: Random) -> None:
    """Names are what is durable; files lose their blocks. Sorted, for both dicts grew in orders of their own."""
    folder.names = dict(sorted(folder.durable.items()))
    folder.durable = dict(folder.names)
    for node in folder.names.values():
        if isinstance(node, Folder):
            _settle(node, keep, random)
        else:
            node.lose_power(keep, random)
