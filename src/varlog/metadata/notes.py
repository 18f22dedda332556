"""A short file before the database: small transactions are durable here by one write, and join the database together.

    | note, revision 41 | note, 42 | note, 43 | free or older notes ... |
    ^ every note begins at a multiple of 512 bytes

A commit of SQLite is two writes of whole pages and a sync; a note is one write, synced, of the bytes that matter. The
database takes in all notes with the next transaction of its own, and at the latest when the file is full; from
then on they are older than its revision, and the next note is written over the first. What counts after a crash
is therefore plain: the notes from the start of the file on whose revisions continue the database's.

The first place where such a note is not whole is the end: it was being written when the process died. Should one that
comes later be found behind it, it was whole once, and others may rely on it: then the file is damaged.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt
from varlog.metadata.blocks import fill, read_fully
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk_worker import NO_SUCH_CALL, translate
from varlog.runtime.lock import sync_folder

PLACE_BYTES = 512
"""Notes begin at multiples of this, so that one is found even where those before it are damaged."""
FILE_BYTES = 256 * PLACE_BYTES
"""So many small transactions at most wait for the database."""

_HEAD = Struct("<4sIQI")
"""Magic, crc32c of all behind it, revision, bytes of the body."""
_MAGIC = b"VLn1"
_CHECKED_FROM = 8
_LENGTHS = Struct("<II")
"""Of a key and of its value."""
_GONE = 0xFFFFFFFF
"""In the place of a value's length: the key is deleted."""

Changes = Mapping[str, bytes | None]
"""What a transaction makes of keys; None: deleted."""


def make_notes(path: Path) -> None:
    """Make an empty file in place of any that is there, durable on return; `NoSpace` if there is no room for it.

    All of its blocks are written once: a sync is quicker then, and no note can run out of space.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            fill(fd, FILE_BYTES)
            os.fsync(fd)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(fd)
        sync_folder(path.parent)
    except OSError as error:
        raise translate(error, str(path)) from error


class Note(NamedTuple):
    """One transaction."""

    revision: int
    changes: dict[str, bytes | None]


class Notes:
    """The file, of one process. Raises `DiskFailed` when what it holds is not known any more."""

    def __init__(self, path: Path) -> None:
        """Open the file that `make_notes` made; `Corrupt` if it is not all there, for notes may have been in it."""
        self._path = path
        self._end = 0
        """Where the next note goes."""
        self._one_call = hasattr(os, "RWF_DSYNC")
        """A write and its sync; not every system or file system has it."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            size = os.fstat(self._fd).st_size
        except FileNotFoundError:
            raise Corrupt(f"{path} is missing: restore the whole folder from a copy") from None
        except OSError as error:
            raise translate(error, str(path)) from error
        if size < FILE_BYTES:
            os.close(self._fd)
            raise Corrupt(f"{path} has only {size} of {FILE_BYTES} bytes: restore the whole folder from a copy")

    def close(self) -> None:
        os.close(self._fd)

    # ------------------------------------------------------------ reading

    def read(self, revision: int) -> list[Note]:
        """Those that continue a database of this revision, in order, on disk; notes are added behind them."""
        try:
            data = read_fully(self._fd, FILE_BYTES, 0)
        except OSError as error:
            raise translate(error, str(self._path)) from error
        notes: list[Note] = []
        self._end = 0
        while (note := _note_at(data, self._end)) is not None and note.revision == revision + 1:
            notes.append(note)
            revision = note.revision
            self._end += _places(_body_bytes(data, self._end))
        for at in range(self._end, len(data), PLACE_BYTES):
            later = _note_at(data, at)
            if later is not None and later.revision > revision:
                raise Corrupt(f"{self._path}: the note of revision {revision + 1} is damaged, {later.revision} is not")
        if notes:
            # A process that died, or whose sync failed, may have left them in the page cache alone.
            self._write(data[: self._end], 0)
        return notes

    # ------------------------------------------------------------ writing

    def add(self, revision: int, changes: Changes) -> bool:
        """Write one down; it is durable on return. False: it does not fit, and the database has to take in the rest."""
        body = _encode(changes)
        size = _places(len(body))
        if self._end + size > FILE_BYTES:
            return False
        checked = _HEAD.pack(_MAGIC, 0, revision, len(body))[_CHECKED_FROM:] + body
        data = _MAGIC + int(crc32c(checked)).to_bytes(4, "little") + checked
        self._write(data, self._end)
        self._end += size
        return True

    def _write(self, data: bytes, offset: int) -> None:
        try:
            written = self._write_durably(data, offset)
        except OSError as error:
            # Even for lack of space: its blocks are there, so something else is wrong, and what they hold is not known.
            raise DiskFailed(translate(error, str(self._path)).message) from error
        if written != len(data):
            raise DiskFailed(f"{self._path}: only {written} of {len(data)} bytes were written")

    def _write_durably(self, data: bytes, offset: int) -> int:
        if self._one_call:
            try:
                return os.pwritev(self._fd, (data,), offset, os.RWF_DSYNC)
            except OSError as error:
                if error.errno not in NO_SUCH_CALL:
                    raise
                self._one_call = False
        written = os.pwrite(self._fd, data, offset)
        os.fdatasync(self._fd)
        return written

    @property
    def in_use(self) -> bool:
        """There are some that the database lacks."""
        return self._end > 0

    def begin_anew(self) -> None:
        """The database has them all, on disk."""
        self._end = 0


def _places(body_bytes: int) -> int:
    """What a note takes in the file."""
    return -(-(_HEAD.size + body_bytes) // PLACE_BYTES) * PLACE_BYTES


def _encode(changes: Changes) -> bytes:
    parts: list[bytes] = []
    for key, value in changes.items():
        name = key.encode()
        parts += (_LENGTHS.pack(len(name), _GONE if value is None else len(value)), name, value or b"")
    return b"".join(parts)


def _body_bytes(data: bytes, at: int) -> int:
    size: int = _HEAD.unpack_from(data, at)[3]
    return size


def _note_at(data: bytes, at: int) -> Note | None:
    """The note that begins there; None if none does, or if it is not whole."""
    if at + _HEAD.size > len(data):
        return None
    magic, crc, revision, size = _HEAD.unpack_from(data, at)
    start, end = at + _HEAD.size, at + _HEAD.size + size
    if magic != _MAGIC or end > len(data) or crc32c(data[at + _CHECKED_FROM : end]) != crc:
        return None
    changes: dict[str, bytes | None] = {}
    while start < end:
        name_bytes, value_bytes = _LENGTHS.unpack_from(data, start)
        name_at = start + _LENGTHS.size
        value_at = name_at + name_bytes
        start = value_at + (0 if value_bytes == _GONE else value_bytes)
        changes[data[name_at:value_at].decode()] = None if value_bytes == _GONE else data[value_at:start]
    return Note(revision, changes)
