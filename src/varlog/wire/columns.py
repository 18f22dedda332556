"""Columns of a batch: values end to end behind their offsets, as Arrow lays out binary arrays.

    offsets int32[count + 1]   0, end of the first value, end of the second ...
    values                     all of them, without anything between

Each buffer is padded with zeros to a multiple of eight bytes. Entries of one size are common and
cheap: their offsets are known beforehand, and many of them are cut out at once.
"""

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack
from typing import NamedTuple

from varlog.base.errors import Corrupt, TooLarge
from varlog.base.limits import BATCH_BYTES, ENTRY_BYTES
from varlog.wire.frame import Buffer

_PAIR = Struct("<ii")

EVEN_COUNT = 4096
"""Most values whose even offsets are kept ready."""
EVEN_BYTES = 4096
"""Largest size of value for which they are."""
EVEN_SIZES = 32
"""Sizes for which they are kept at a time: half a megabyte in all."""
_AT_ONCE = 64
"""Values of one size that are cut out at once."""


class _Even(NamedTuple):
    """What is known of values that all have one size."""

    offsets: bytes
    cutter: Struct


@lru_cache(maxsize=EVEN_SIZES)
def _even(size: int) -> _Even:
    offsets = pack(f"<{EVEN_COUNT + 1}i", *(index * size for index in range(EVEN_COUNT + 1)))
    return _Even(offsets, Struct(f"{size}s" * _AT_ONCE))


def padding(size: int) -> int:
    """Bytes missing to the next multiple of eight."""
    return -size & 7


# ---------------------------------------------------------------- encoding


def add_padded(buffers: list[Buffer], data: bytes) -> None:
    buffers.append(data)
    missing = -len(data) & 7
    if missing:
        buffers.append(bytes(missing))


def add_binary(buffers: list[Buffer], values: Sequence[bytes]) -> None:
    """A column of values. They are joined with all else, once: fresh memory costs more than the copying."""
    if len(values) == 1:
        value = values[0]
        if len(value) > ENTRY_BYTES:
            raise _too_large([len(value)])
        buffers.append(_PAIR.pack(0, len(value)))
        add_padded(buffers, value)
    else:
        lengths = list(map(len, values))
        add_padded(buffers, encode_offsets(lengths))
        buffers += values
        buffers.append(bytes(padding(sum(lengths))))


def encode_offsets(lengths: list[int]) -> bytes:
    count = len(lengths)
    total = sum(lengths)
    if total > ENTRY_BYTES and (total > BATCH_BYTES or max(lengths) > ENTRY_BYTES):
        raise _too_large(lengths)
    size = lengths[0] if lengths else 0
    if count <= EVEN_COUNT and size <= EVEN_BYTES and lengths.count(size) == count:
        return _even(size).offsets[: 4 * (count + 1)]
    return pack(f"<{count + 1}i", *accumulate(lengths, initial=0))


def _too_large(lengths: list[int]) -> TooLarge:
    if max(lengths) > ENTRY_BYTES:
        return TooLarge(f"an entry has at most {ENTRY_BYTES:,} bytes, not {max(lengths):,}", ENTRY_BYTES)
    return TooLarge(f"a batch has at most {BATCH_BYTES:,} bytes, not {sum(lengths):,}", BATCH_BYTES)


def encode_validity(values: Sequence[bytes | None]) -> bytes:
    """One bit a value, the lowest first: whether there is one."""
    count = len(values)
    if None in values:
        bits = int("".join(["0" if value is None else "1" for value in reversed(values)]), 2)
    else:
        bits = (1 << count) - 1
    return bits.to_bytes((count + 7) // 8, "little")


# ---------------------------------------------------------------- decoding


class Columns:
    """Walks the buffers of a body in order; every length is judged against what is there."""

    __slots__ = ("at", "body")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.at = 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.body):
            raise Corrupt("a column of a batch reaches beyond its body")
        taken = self.body[self.at : end]
        self.at = end + (-size & 7)
        return taken

    def offsets(self, count: int) -> memoryview:
        """The int32 offsets of `count` values, checked to begin at 0 and to end where a column can."""
        raw = self.take(4 * (count + 1))
        if sys.byteorder == "big":
            swapped = array("i", raw.tobytes())
            swapped.byteswap()
            view = memoryview(swapped)
        else:
            view = raw.cast("i")
        if view[0] != 0 or view[count] < 0:
            raise Corrupt("the offsets of a batch do not begin at zero or end below it")
        return view

    def binary(self, count: int) -> tuple[memoryview, memoryview]:
        offsets = self.offsets(count)
        return offsets, self.take(offsets[count])


def only_value(body: memoryview) -> bytes:
    """The value of a first column that has one."""
    if len(body) >= _PAIR.size:
        start, end = _PAIR.unpack_from(body)
        if start == 0 <= end <= len(body) - _PAIR.size:
            return body[_PAIR.size : _PAIR.size + end].tobytes()
    raise Corrupt("a column of a batch reaches beyond its body")


def split(offsets: memoryview, values: memoryview) -> list[bytes]:
    """The values of a column."""
    count = len(offsets) - 1
    if count == 1:
        return [values.tobytes()]
    size = offsets[1] if count else 0
    if 0 <= size <= EVEN_BYTES and count <= EVEN_COUNT and len(values) == count * size:
        even = _even(size)
        if offsets.tobytes() == even.offsets[: 4 * (count + 1)]:
            return _split_even(values, count, size, even.cutter)
    ends = ordered(offsets)
    data = values.tobytes()
    start = 0
    return [data[start : (start := end)] for end in ends[1:]]


def ordered(offsets: memoryview) -> list[int]:
    """Offsets as a list, checked never to go back."""
    ends: list[int] = offsets.tolist()
    if sorted(ends) != ends:
        raise Corrupt("the offsets of a batch go back")
    return ends


def _split_even(values: memoryview, count: int, size: int, cutter: Struct) -> list[bytes]:
    if not size:
        return [b""] * count
    found: list[bytes] = []
    for index in range(0, count - _AT_ONCE + 1, _AT_ONCE):
        found += cutter.unpack_from(values, index * size)
    data = values[len(found) * size :].tobytes()
    found += [data[start : start + size] for start in range(0, len(data), size)]
    return found


def decode_validity(bitmap: memoryview, count: int) -> list[bool] | None:
    """Which values there are; None: all."""
    bits = int.from_bytes(bitmap, "little") & (1 << count) - 1
    if bits == (1 << count) - 1:
        return None
    return [bit == "1" for bit in reversed(f"{bits:0{count}b}")]
