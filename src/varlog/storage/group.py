"""Groups: what is staged in memory, and how it becomes the bytes of one write."""

from collections.abc import Iterable
from typing import NamedTuple

from varlog.base.ranges import Binding
from varlog.storage.scan import BIND, TRIM
from varlog.storage.walk import record_bytes
from varlog.wire.batch import BatchHeader, padding
from varlog.wire.frame import Buffer
from varlog.wire.record import RecordKind, encode_record_header

_BATCH = int(RecordKind.BATCH)


class Staged(NamedTuple):
    """A record that is not yet in a file, so without the offset and generation it will get there."""

    kind: int
    slot: int
    body: Buffer
    size: int
    """What it will take in the file."""
    batch: BatchHeader | None = None


def batch_record(slot: int, data: Buffer, header: BatchHeader) -> Staged:
    return Staged(_BATCH, slot, data, record_bytes(len(data)), header)


def bind_record(binding: Binding, high_watermark: int) -> Staged:
    return _other(RecordKind.BIND, binding.slot, BIND.pack(binding.glsn, binding.count, high_watermark))


def trim_record(slot: int, glsn: int) -> Staged:
    return _other(RecordKind.TRIM, slot, TRIM.pack(glsn))


def seal_record(slot: int) -> Staged:
    return _other(RecordKind.SEAL, slot, b"")


def finish_record(end: int) -> Staged:
    return _other(RecordKind.FINISH, end, b"")


def _other(kind: int, slot: int, body: bytes) -> Staged:
    return Staged(kind, slot, body, record_bytes(len(body)))


def joined_bind(earlier: Staged, binding: Binding, high_watermark: int) -> Staged | None:
    """One record for two bindings, if `earlier` is one that this continues."""
    if earlier.kind != RecordKind.BIND:
        return None
    glsn, count, _ = BIND.unpack(earlier.body)
    if binding.slot != earlier.slot + count or binding.glsn != glsn + count:
        return None
    return _other(RecordKind.BIND, earlier.slot, BIND.pack(glsn, count + binding.count, high_watermark))


def encode_group(records: Iterable[Staged], offset: int, generation: int) -> list[Buffer]:
    """The buffers of one write at `offset`, up to which everything is synced. Bodies are not copied."""
    buffers: list[Buffer] = []
    for kind, slot, body, _, _ in records:
        buffers.append(encode_record_header(kind, slot, generation, offset, body))
        buffers.append(body)
        missing = padding(len(body))
        if missing:
            buffers.append(bytes(missing))
    return buffers
