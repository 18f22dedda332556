"""Groups: what is staged in memory, and how it becomes the bytes of one write."""

from collections.abc import Iterable
from typing import NamedTuple

from varlog.base.ranges import Binding
from varlog.storage.scan import BIND, TRIM
from varlog.storage.walk import record_bytes
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer
from varlog.wire.record import RECORD_HEADER_BYTES, RecordKind, encode_record_header

_BATCH, _BIND = int(RecordKind.BATCH), int(RecordKind.BIND)
_BIND_BYTES = record_bytes(BIND.size)
_new = tuple.__new__
"""Makes a named tuple in half the time that its own constructor takes."""


class Staged(NamedTuple):
    """A record that is not yet in a file, so without the offset and generation it will get there."""

    kind: int
    slot: int
    body: Buffer
    size: int
    """What it will take in the file."""
    batch: BatchHeader | None = None


def batch_record(slot: int, data: Buffer, header: BatchHeader) -> Staged:
    length = len(data)
    size = RECORD_HEADER_BYTES + length + (-length & 7)  # `record_bytes`, without a call for every batch
    return _new(Staged, (_BATCH, slot, data, size, header))


def bind_record(binding: Binding, high_watermark: int) -> Staged:
    slot, glsn, count = binding
    return _new(Staged, (_BIND, slot, BIND.pack(glsn, count, high_watermark), _BIND_BYTES, None))


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
    if earlier.kind != _BIND:
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
        missing = -len(body) & 7
        if missing:
            buffers.append(bytes(missing))
    return buffers
