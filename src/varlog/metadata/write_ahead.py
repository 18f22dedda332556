"""SQLite's write-ahead log as it lies on disk: is its end that of a crash, or is it damaged in the middle?

    | header, 32 bytes: magic, version, page size, count, salts, checksum |
    | frame: page number, pages of the database if it ends a transaction, salts, checksum | page | frame | page | ...

SQLite takes the first frame that fails its checksum for the end, as a crash leaves it, and would begin to write there.
But it syncs the log after every transaction. So only the last one can be torn: two that end behind such a
frame were durable, or the first of them was, and SQLite would forget it without a word.
"""

from array import array
from pathlib import Path
from struct import Struct
from sys import byteorder
from typing import BinaryIO, NamedTuple

from varlog.base.errors import Corrupt

_HEADER = Struct(">4sII4s8sQ")
"""Magic, version, bytes of a page, count, salts, checksum."""
_FRAME = Struct(">II8sQ")
"""Page, pages of the database, salts, checksum."""
_MAGIC = {b"\x37\x7f\x06\x82": "little", b"\x37\x7f\x06\x83": "big"}
"""By it, the order of bytes that checksums are made with."""
_CHECKED_OF_FRAME = 8
_CHECKED_OF_HEADER = 24


class _Frame(NamedTuple):
    ends_transaction: bool
    whole: bool
    """It matches its checksum, which continues that of the frame before."""


def check_log(log: Path) -> None:
    """Raise `Corrupt` if transactions are lost in it that were durable."""
    with log.open("rb") as file:
        frames = _frames(file, log)
    first = next((at for at, frame in enumerate(frames) if not frame.whole), len(frames))
    behind = frames[first + 1 :]
    ends = [frame for frame in behind if frame.ends_transaction and frame.whole]
    ends += [frame for frame in frames[first : first + 1] if frame.ends_transaction]
    if len(ends) > 1:
        raise Corrupt(f"{log} is damaged in frame {first + 1} of {len(frames)}: restore the folder from a copy")


def _frames(file: BinaryIO, log: Path) -> list[_Frame]:
    """All; those from before the log was last begun anew have other salts, and are not whole."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not any(header):
        return []  # made, and nothing written yet
    magic, _, page_bytes, _, salts, checksum = _HEADER.unpack(header)
    order = _MAGIC.get(magic)
    if order is None or _checksum(header[:_CHECKED_OF_HEADER], order, 0) != checksum:
        raise Corrupt(f"{log} has a damaged header: restore the folder from a copy")
    frames: list[_Frame] = []
    while len(data := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, pages, found_salts, found = _FRAME.unpack_from(data)
        ours = found_salts == salts
        checked = data[:_CHECKED_OF_FRAME] + data[_FRAME.size :]
        frames.append(_Frame(ours and pages > 0, ours and _checksum(checked, order, checksum) == found))
        checksum = found
    return frames


def _checksum(data: bytes, order: str, before: int) -> int:
    """SQLite's own, continued from that of what comes before."""
    words = array("I", data)
    if order != byteorder:
        words.byteswap()
    first, second = before >> 32, before & 0xFFFFFFFF
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first << 32 | second
