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
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk_worker import translate
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


class Note(NamedTuple):
    """One transaction."""

    revision: int
    changes: dict[str, bytes | None]


class Notes:
    """The file, of one process. Raises `DiskFailed` when what it holds is not known any more."""

    def __init__(self, path: Path) -> None:
        """Open the file, made if missing; raises `NoSpace` if there is no room for it."""
        self._path = path
        self._end = 0
        """Where the next note goes."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._lay_out()
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            raise translate(error, str(path)) from error

    def _lay_out(self) -> None:
        """All of its blocks are written once: a sync is quicker then, and no note can run out of space."""
        size = os.fstat(self._fd).st_size
        if size < FILE_BYTES:
            os.pwrite(self._fd, bytes(FILE_BYTES - size), size)
            os.fsync(self._fd)
            sync_folder(self._path.parent)

    def close(self) -> None:
        os.close(self._fd)

    # ------------------------------------------------------------ reading

    def read(self, revision: int) -> list[Note]:
        """Those that continue a database of this revision, in order; notes are added behind them."""
        data = os.pread(self._fd, FILE_BYTES, 0)
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
        try:
            written = _write_durably(self._fd, data, self._end)
        except OSError as error:
            # Even for lack of space: its blocks are there, so something else is wrong, and what they hold is not known.
            raise DiskFailed(translate(error, str(self._path)).message) from error
        if written != len(data):
            raise DiskFailed(f"{self._path}: only {written} of {len(data)} bytes were written")
        self._end += size
        return True

    def begin_anew(self) -> None:
        """The database has them all, on disk."""
        self._end = 0


def _write_durably(fd: int, data: bytes, offset: int) -> int:
    if hasattr(os, "RWF_DSYNC"):
        return os.pwritev(fd, (data,), offset, os.RWF_DSYNC)
    written = os.pwrite(fd, data, offset)
    os.fsync(fd)
    return written


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
