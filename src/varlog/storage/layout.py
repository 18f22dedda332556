"""Names and headers of a replica's files; docs/file-format.md is this in prose. Pure, no I/O.

    replicas/<log>.<segment>.<stream>/           of a copy: <log>.<segment>.<stream>.<number of the copy>
        spec                         what the replica was told at its creation; its presence means: created
        00000000000000000000.data    header of 4096 bytes, then records; named by the first slot
        00000000000000048211.data
        00000000000000000000.index   sidecar of a full file whose slots are all bound
        base                         the first slot still there, once files were removed by trimming
        free-0.data                  blocks for the next data file, fresh or recycled
        failed                       a write or sync failed: nothing here is trusted again
        damaged                      something here does not match its checksum: what, for people
        copying                      it is being copied from other nodes and not complete: nothing here counts
        dropped                      the folder is being removed

A data file gets its name only after its header is on disk. The header names the file before it by
generation and end, so that a chain of files is whole or the break is seen.
"""

from random import Random
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt, Unsupported
from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.storage.facts import Facts
from varlog.wire.frame import Buffer

VERSION = 1

FILE_BYTES = 64 << 20
"""Usual size of a data file."""

SMALLEST_FILE_BYTES = 16 << 10
"""Below this, headers and reserve would be most of a file."""

FILE_HEADER_BYTES = 4096
"""A block of its own: no write of records ever touches it."""

MOST_RESERVE_BYTES = 64 << 10
"""Kept free at the end of each file for bindings, trims and seals on a full volume."""

SPEC, BASE, FAILED, DAMAGED, DROPPED, COPYING = "spec", "base", "failed", "damaged", "dropped", "copying"
DATA_SUFFIX, INDEX_SUFFIX, NEW_SUFFIX = ".data", ".index", ".new"
FREE_PREFIX = "free-"

FILE_MAGIC = b"VARLOGDF"
SPEC_MAGIC = b"VARLOGSP"
BASE_MAGIC = b"VARLOGBA"

_FILE = Struct("<8sIIQIIQQQQQQQQQQQII")
"""magic, crc, version, log, segment, stream, first slot, size, generation, previous generation and end, facts."""
_SPEC = Struct("<8sIIQIIQ")
"""magic, crc, version, log, segment, stream, length of what follows."""
_BASE = Struct("<8sIIQIIQQ")
"""magic, crc, version, log, segment, stream, first slot, length of what follows."""
_CRC_AT, _CRC_FROM = 8, 12
_CRC = Struct("<I")
_SEALED = 1
_NO_END = (1 << 64) - 1


def reserve_bytes(size: int) -> int:
    """What a data file of `size` bytes keeps back from batches."""
    return min(MOST_RESERVE_BYTES, size // 8) & ~7


def last_reserve_bytes(size: int) -> int:
    """What it keeps back from bindings too, so that a trim always finds room."""
    return reserve_bytes(size) // 4 & ~7


# ---------------------------------------------------------------- names


def data_name(first_slot: int) -> str:
    return f"{first_slot:020d}{DATA_SUFFIX}"


def index_name(first_slot: int) -> str:
    return f"{first_slot:020d}{INDEX_SUFFIX}"


def slot_of_name(name: str, suffix: str = DATA_SUFFIX) -> int | None:
    """The first slot of a file named so, or None if that is no such name."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def free_name(number: int) -> str:
    return f"{FREE_PREFIX}{number}{DATA_SUFFIX}"


def is_free_name(name: str) -> bool:
    return name.startswith(FREE_PREFIX) and name.endswith(DATA_SUFFIX)


# ---------------------------------------------------------------- checksums


def with_crc(packed: bytes) -> bytes:
    """`packed` has eight bytes of magic, four bytes for the crc32c of all else, and all else."""
    crc = crc32c(packed[_CRC_FROM:], crc32c(packed[:_CRC_AT]))
    return b"".join((packed[:_CRC_AT], _CRC.pack(crc), packed[_CRC_FROM:]))


def check_crc(data: Buffer, magic: bytes, what: str) -> None:
    """The bytes are one of `with_crc`, of this kind and of a version we know."""
    view = memoryview(data)
    if len(view) < _CRC_FROM + 4:
        raise Corrupt(f"{what} is cut off after {len(view)} bytes")
    if view[:_CRC_AT] != magic:
        raise Corrupt(f"{what} begins with {bytes(view[:_CRC_AT])!r}, not with {magic!r}")
    if crc32c(view[_CRC_FROM:], crc32c(view[:_CRC_AT])) != _CRC.unpack_from(view, _CRC_AT)[0]:
        raise Corrupt(f"{what} does not match its checksum")
    version = _CRC.unpack_from(view, _CRC_FROM)[0]
    if version != VERSION:
        raise Unsupported(f"{what} has version {version}, this release knows {VERSION}")


# ---------------------------------------------------------------- the header of a data file


class FileHeader(NamedTuple):
    """What stands at the beginning of a data file."""

    replica: ReplicaId
    first_slot: int
    size: int
    """Bytes reserved for it when it was made. It may have grown since; a shorter one has lost something."""
    generation: int
    """Never used twice in a folder: tells this file's records from what recycled blocks held before."""
    previous_generation: int
    """0: this is the replica's first file."""
    previous_end: int
    """Offset at which the records of the file before end."""
    facts: Facts
    """As of the end of the file before."""

    @classmethod
    def first(
        cls, replica: ReplicaId, size: int, random: Random, slot: int = 0, facts: Facts | None = None
    ) -> "FileHeader":
        """That of a new replica, whose slots below the given one are trimmed."""
        return cls(replica, slot, size, next_generation(0, random), 0, 0, Facts() if facts is None else facts)


def next_generation(previous: int, random: Random) -> int:
    """A number this folder has not seen: a count in the upper half, chance in the lower."""
    return ((previous >> 32) + 1 & 0xFFFFFFFF) << 32 | random.getrandbits(32)


def encode_file_header(header: FileHeader) -> bytes:
    facts = header.facts
    packed = _FILE.pack(
        FILE_MAGIC,
        0,
        VERSION,
        *_numbers(header.replica),
        header.first_slot,
        header.size,
        header.generation,
        header.previous_generation,
        header.previous_end,
        facts.trimmed,
        facts.trimmed_glsn,
        facts.committed,
        facts.next_glsn,
        facts.high_watermark,
        _NO_END if facts.end is None else facts.end,
        _SEALED if facts.sealed else 0,
        0,
    )
    return with_crc(packed.ljust(FILE_HEADER_BYTES, b"\0"))


def decode_file_header(data: Buffer) -> FileHeader:
    if len(data) != FILE_HEADER_BYTES:
        raise Corrupt(f"a file header needs {FILE_HEADER_BYTES} bytes, {len(data)} are there")
    check_crc(data, FILE_MAGIC, "the file header")
    (
        *_,
        log,
        segment,
        stream,
        first_slot,
        size,
        generation,
        previous_generation,
        previous_end,
        trimmed,
        trimmed_glsn,
        committed,
        next_glsn,
        high_watermark,
        end,
        flags,
        _zero,
    ) = _FILE.unpack_from(data)
    facts = Facts(
        trimmed,
        trimmed_glsn,
        committed,
        next_glsn,
        high_watermark,
        sealed=bool(flags & _SEALED),
        end=None if end == _NO_END else end,
    )
    replica = _replica(log, segment, stream)
    return FileHeader(replica, first_slot, size, generation, previous_generation, previous_end, facts)


# ---------------------------------------------------------------- spec and base


def encode_spec(replica: ReplicaId, spec: bytes) -> bytes:
    return with_crc(_SPEC.pack(SPEC_MAGIC, 0, VERSION, *_numbers(replica), len(spec)) + spec)


def decode_spec(data: Buffer) -> tuple[ReplicaId, bytes]:
    check_crc(data, SPEC_MAGIC, "the spec")
    *_, log, segment, stream, length = _SPEC.unpack_from(data)
    return _replica(log, segment, stream), bytes(data[_SPEC.size : _SPEC.size + length])


def encode_base(replica: ReplicaId, first_slot: int, producers: bytes) -> bytes:
    packed = _BASE.pack(BASE_MAGIC, 0, VERSION, *_numbers(replica), first_slot, len(producers))
    return with_crc(packed + producers)


def decode_base(data: Buffer) -> tuple[ReplicaId, int, bytes]:
    """The replica, the first slot it still has, and the producers as of there."""
    check_crc(data, BASE_MAGIC, "the base")
    *_, log, segment, stream, first_slot, length = _BASE.unpack_from(data)
    return _replica(log, segment, stream), first_slot, bytes(data[_BASE.size : _BASE.size + length])


def _numbers(replica: ReplicaId) -> tuple[int, int, int]:
    return replica.log, replica.segment, replica.stream


def _replica(log: int, segment: int, stream: int) -> ReplicaId:
    return ReplicaId(LogId(log), Epoch(segment), StreamId(stream))
