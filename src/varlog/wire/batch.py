"""The batch: what one append carries, in one encoding from the client's memory to Spark's.

    0      4   5     6     8     12      16           20          24     32         40         56
    +------+---+-----+-----+-----+-------+------------+-----------+------+----------+----------+------
    | VLB1 | v |flags|  0  | crc | count | body bytes | raw bytes | time | sequence | producer | body
    +------+---+-----+-----+-----+-------+------------+-----------+------+----------+----------+------

All integers are little endian. `crc` is the crc32c of everything but itself, header and body, so
whoever holds a batch can tell that it is whole. `raw bytes` is the size of the body before
compression (equal to `body bytes` when there is none). The body is made of columns in Arrow's
binary layout, each buffer padded with zeros to a multiple of eight bytes:

    payload    offsets int32[count+1], values
    key        validity bitmap, offsets int32[count+1], values              if flag KEYS
    headers    list offsets int32[count+1],                                 if flag HEADERS
               name offsets int32[pairs+1], names in UTF-8,
               value offsets int32[pairs+1], values

Nodes read the fixed header and check the crc; only the two ends look at columns.

A batch with flag JUNK has no body. Its `count` positions were written by nobody and given up: a fact like any
other batch, stored, copied and checked as one, and skipped by readers.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base import limits
from varlog.base.errors import Corrupt, InvalidArgument, TooLarge, Unsupported
from varlog.wire.columns import (
    Columns,
    add_binary,
    add_padded,
    decode_validity,
    encode_offsets,
    encode_validity,
    only_value,
    ordered,
    split,
)
from varlog.wire.columns import padding as padding
from varlog.wire.frame import Buffer

MAGIC = b"VLB1"
VERSION = 1
HEADER = Struct("<4sBBHIIIIQQ16s")
HEADER_BYTES = HEADER.size
CRC_AT = 8
CRC_FROM = 12
"""The checksum lies between these two and covers everything before and behind."""

KEYS = 1
HEADERS = 2
ZSTD = 4
JUNK = 8
KNOWN_FLAGS = KEYS | HEADERS | ZSTD | JUNK

PRODUCER_ID_BYTES = 16
NO_PRODUCER = bytes(PRODUCER_ID_BYTES)
_NO_HEADER = bytes(HEADER_BYTES)

Headers = Mapping[str, bytes]


class BatchHeader(NamedTuple):
    """The fixed part of a batch, all that a storage node looks at."""

    flags: int
    crc: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a header
    body_bytes: int
    raw_bytes: int
    time_us: int
    sequence: int
    producer: bytes

    @property
    def total_bytes(self) -> int:
        return HEADER_BYTES + self.body_bytes


def read_header(data: Buffer, offset: int = 0) -> BatchHeader:
    """Decode and judge the fixed header at `offset`; the body need not be there yet."""
    if len(data) - offset < HEADER_BYTES:
        raise Corrupt(f"a batch needs {HEADER_BYTES} bytes of header, {len(data) - offset} are there")
    magic, version, flags, _, crc, count, body_bytes, raw_bytes, time_us, sequence, producer = HEADER.unpack_from(
        data, offset
    )
    if magic != MAGIC:
        raise Corrupt(f"not a batch: it begins with {magic!r}")
    if version != VERSION or flags & ~KNOWN_FLAGS:
        raise Unsupported(f"batch version {version} with flags {flags:#x} is unknown to this release")
    if not 0 < count <= limits.BATCH_ENTRIES:
        raise Corrupt(f"a batch of {count} entries")
    if flags & JUNK and (flags != JUNK or body_bytes):
        raise Corrupt("a batch of junk that holds something")
    if body_bytes > limits.BATCH_BYTES or raw_bytes > limits.BATCH_BYTES:
        raise TooLarge(f"a batch of {max(body_bytes, raw_bytes)} bytes", limits.BATCH_BYTES)
    return BatchHeader(flags, crc, count, body_bytes, raw_bytes, time_us, sequence, producer)


def check_batch(data: Buffer, offset: int = 0) -> BatchHeader:
    """Like `read_header`, and the body is there and matches the checksum."""
    header = read_header(data, offset)
    end = offset + header.total_bytes
    if end > len(data):
        raise Corrupt(f"a batch of {header.total_bytes} bytes is cut off after {len(data) - offset}")
    view = memoryview(data)
    if crc32c(view[offset + CRC_FROM : end], crc32c(view[offset : offset + CRC_AT])) != header.crc:
        raise Corrupt("a batch does not match its checksum")
    return header


def check_batches(data: Buffer) -> list[tuple[Buffer, BatchHeader]]:
    """All batches that lie end to end in `data`, each checked; nothing else may be there."""
    found: list[tuple[Buffer, BatchHeader]] = []
    view = memoryview(data)
    offset, size = 0, len(view)
    while offset < size:
        header = check_batch(view, offset)
        end = offset + header.total_bytes
        found.append((view[offset:end], header))
        offset = end
    return found


# ---------------------------------------------------------------- encoding (client)


def _add_keys(buffers: list[Buffer], keys: Sequence[bytes | None]) -> None:
    add_padded(buffers, encode_validity(keys))
    add_binary(buffers, [key or b"" for key in keys])


def _add_headers(buffers: list[Buffer], headers: Sequence[Headers]) -> None:
    add_padded(buffers, encode_offsets(list(map(len, headers))))
    add_binary(buffers, [name.encode() for each in headers for name in each])
    add_binary(buffers, [value for each in headers for value in each.values()])


def encode_batch(
    payloads: Sequence[bytes],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    producer: bytes = NO_PRODUCER,
    sequence: int = 0,
    time_us: int = 0,
    compress: bool = False,
) -> bytes:
    """Encode entries into a batch. Sizes are judged here, before anything is sent."""
    return bytes(encode_buffer(payloads, keys, headers, producer, sequence, time_us, compress))


def encode_buffer(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    producer: bytes,
    sequence: int,
    time_us: int,
    compress: bool,
) -> bytearray:
    """The same in memory that nobody else has: entries are copied once, behind room for the header, known last."""
    count = len(payloads)
    if not count:
        raise InvalidArgument("an append needs at least one entry")
    if count > limits.BATCH_ENTRIES:
        raise TooLarge(f"{count} entries in one batch", limits.BATCH_ENTRIES)
    flags = 0
    buffers: list[Buffer] = [_NO_HEADER]
    add_binary(buffers, payloads)
    if keys is not None:
        flags |= KEYS
        _add_keys(buffers, keys)
    if headers is not None:
        flags |= HEADERS
        _add_headers(buffers, headers)
    data = bytearray().join(buffers)
    raw_bytes = len(data) - HEADER_BYTES
    if raw_bytes > limits.BATCH_BYTES:
        raise TooLarge(f"a batch of {raw_bytes} bytes", limits.BATCH_BYTES)
    if compress:
        packed = _compress(memoryview(data)[HEADER_BYTES:])
        if len(packed) < raw_bytes:
            flags |= ZSTD
            data = bytearray().join((_NO_HEADER, packed))
    _fill_header(data, flags, count, raw_bytes, time_us, sequence, producer)
    return data


def _fill_header(
    data: bytearray, flags: int, count: int, raw_bytes: int, time_us: int, sequence: int, producer: bytes
) -> None:
    """Before a body that is there already."""
    body_bytes = len(data) - HEADER_BYTES
    HEADER.pack_into(data, 0, MAGIC, VERSION, flags, 0, 0, count, body_bytes, raw_bytes, time_us, sequence, producer)
    view = memoryview(data)
    crc = crc32c(view[CRC_FROM:], crc32c(view[:CRC_AT]))
    view[CRC_AT:CRC_FROM] = crc.to_bytes(4, "little")


def junk_batch(count: int) -> bytes:
    """Fills so many slots. The same for everybody, so that two who fill the same slots agree."""
    return _with_checksum(HEADER.pack(MAGIC, VERSION, JUNK, 0, 0, count, 0, 0, 0, 0, NO_PRODUCER), b"")


def _with_checksum(header: bytes, body: Buffer) -> bytes:
    """A header whose checksum is still missing, completed, and its body."""
    before, behind = header[:CRC_AT], header[CRC_FROM:]
    crc = crc32c(body, crc32c(behind, crc32c(before)))
    return b"".join((before, crc.to_bytes(4, "little"), behind, body))


def stamp_batch(data: Buffer, producer: bytes, sequence: int) -> bytes:
    """The same entries under another identity: all that changes is in the header."""
    header = read_header(data)
    body = memoryview(data)[HEADER_BYTES : header.total_bytes]
    packed = HEADER.pack(
        MAGIC,
        VERSION,
        header.flags,
        0,
        0,
        header.count,
        header.body_bytes,
        header.raw_bytes,
        header.time_us,
        sequence,
        producer,
    )
    return _with_checksum(packed, body)


# ---------------------------------------------------------------- decoding (client, Spark)


class Batch:
    """A received batch: the raw bytes, their header, and columns on demand."""

    __slots__ = ("_body", "data", "header")

    def __init__(self, data: Buffer, header: BatchHeader | None = None) -> None:
        """`header` is given by who has already checked the bytes."""
        self.header = header if header is not None else check_batch(data)
        self.data = memoryview(data)[: self.header.total_bytes]
        self._body: memoryview | None = None

    def __len__(self) -> int:
        return self.header.count

    @property
    def junk(self) -> bool:
        """Nobody wrote these positions: there are no entries."""
        return bool(self.header.flags & JUNK)

    @property
    def body(self) -> memoryview:
        """The columns, uncompressed."""
        if self._body is None:
            stored = self.data[HEADER_BYTES:]
            self._body = memoryview(_decompress(stored, self.header.raw_bytes)) if self.header.flags & ZSTD else stored
        return self._body

    def payload_buffers(self) -> tuple[memoryview, memoryview]:
        """Offsets and values, as Arrow wants them; no copy."""
        return Columns(self.body).binary(self.header.count)

    def payloads(self) -> list[bytes]:
        if self.header.count == 1:
            return [only_value(self.body)]
        return split(*self.payload_buffers())

    def key_buffers(self) -> tuple[memoryview, memoryview, memoryview] | None:
        """Validity bitmap, offsets and values, or None when no entry has a key."""
        if not self.header.flags & KEYS:
            return None
        columns = Columns(self.body)
        columns.binary(self.header.count)
        bitmap = columns.take((self.header.count + 7) // 8)
        return (bitmap, *columns.binary(self.header.count))

    def keys(self) -> list[bytes | None]:
        buffers = self.key_buffers()
        if buffers is None:
            return [None] * self.header.count
        bitmap, offsets, values = buffers
        keys: list[bytes | None] = list(split(offsets, values))
        there = decode_validity(bitmap, self.header.count)
        return keys if there is None else [key if each else None for key, each in zip(keys, there, strict=True)]

    def header_buffers(self) -> tuple[memoryview, tuple[memoryview, memoryview], tuple[memoryview, memoryview]] | None:
        """List offsets, then names and values of all pairs; None when no entry has headers."""
        if not self.header.flags & HEADERS:
            return None
        columns = Columns(self.body)
        columns.binary(self.header.count)
        if self.header.flags & KEYS:
            columns.take((self.header.count + 7) // 8)
            columns.binary(self.header.count)
        lists = columns.offsets(self.header.count)
        pairs = lists[self.header.count]
        return lists, columns.binary(pairs), columns.binary(pairs)

    def headers(self) -> list[dict[str, bytes]]:
        buffers = self.header_buffers()
        if buffers is None:
            return [{} for _ in range(self.header.count)]
        lists, names, values = buffers
        pairs = list(zip(_decoded(split(*names)), split(*values), strict=True))
        return [dict(pairs[start:end]) for start, end in pairwise(ordered(lists))]


def _decoded(names: list[bytes]) -> list[str]:
    """The same few names come again and again: each is decoded once."""
    try:
        known = {name: name.decode() for name in dict.fromkeys(names)}
    except UnicodeDecodeError as broken:
        raise Corrupt("the name of a header is not valid text") from broken
    return [known[name] for name in names]


def _compress(body: memoryview) -> bytes:
    try:
        import zstandard
    except ImportError as missing:
        raise Unsupported("compression needs the extra: pip install 'varlog[zstd]'") from missing
    return zstandard.ZstdCompressor(level=1).compress(body)


def _decompress(body: memoryview, raw_bytes: int) -> bytes:
    try:
        import zstandard
    except ImportError as missing:
        raise Unsupported("this batch is compressed: pip install 'varlog[zstd]'") from missing
    try:
        raw = zstandard.ZstdDecompressor().decompress(body, max_output_size=raw_bytes)
    except zstandard.ZstdError as broken:
        raise Corrupt(f"a compressed batch does not unpack: {broken}") from broken
    if len(raw) != raw_bytes:
        raise Corrupt(f"a compressed batch unpacks to {len(raw)} bytes, its header says {raw_bytes}")
    return raw
