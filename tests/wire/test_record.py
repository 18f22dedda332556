"""Records: what goes in comes out, and every damage is found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.base.errors import Corrupt
from varlog.base.limits import BATCH_BYTES
from varlog.wire.batch import check_batch, encode_batch, padding
from varlog.wire.record import (
    RECORD_HEADER_BYTES,
    Record,
    RecordKind,
    encode_record_header,
    read_record,
    walk_records,
)

u64 = st.integers(0, (1 << 64) - 1)
records = st.tuples(st.sampled_from(list(RecordKind)), u64, u64, u64, st.binary(max_size=40))
Given = tuple[RecordKind, int, int, int, bytes]


def encode(kind: int, slot: int, generation: int, synced: int, body: bytes) -> bytes:
    return encode_record_header(kind, slot, generation, synced, body) + body + bytes(padding(len(body)))


@given(st.lists(records, max_size=6))
@settings(max_examples=100, deadline=None)
def test_what_goes_in_comes_out(written: list[Given]) -> None:
    data = b"".join(encode(*record) for record in written)
    found = list(walk_records(memoryview(data)))
    assert [
        (each.kind, each.slot, each.generation, each.synced, data[each.body : each.body + each.length])
        for each in found
    ] == written
    assert [each.end for each in found[:-1]] == [each.body - RECORD_HEADER_BYTES for each in found[1:]]
    assert all(each.end % 8 == 0 for each in found)


EXAMPLES = {
    RecordKind.BATCH: encode_batch([b"one", b"two"], sequence=3),
    RecordKind.BIND: bytes(range(24)),
    RecordKind.SEAL: b"",
}


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_every_cut_off_length_is_found(kind: RecordKind) -> None:
    data = encode(kind, 5, 6, 7, EXAMPLES[kind])
    end = RECORD_HEADER_BYTES + len(EXAMPLES[kind])
    for length in range(end):
        with pytest.raises(Corrupt):
            read_record(data[:length])
    assert read_record(data[:end]) == Record(kind, 5, 6, 7, RECORD_HEADER_BYTES, len(EXAMPLES[kind]))


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_every_flipped_bit_is_found(kind: RecordKind) -> None:
    """By the record, or, inside a batch, by the batch."""
    data = encode(kind, 5, 6, 7, EXAMPLES[kind])
    for at in range(RECORD_HEADER_BYTES + len(EXAMPLES[kind])):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            if kind == RecordKind.BATCH and at >= RECORD_HEADER_BYTES:
                record = read_record(damaged)
                with pytest.raises(Exception, match=r"batch"):
                    check_batch(memoryview(damaged)[record.body : record.body + record.length])
            else:
                with pytest.raises(Corrupt):
                    read_record(damaged)


def test_zeros_are_no_record() -> None:
    with pytest.raises(Corrupt):
        read_record(bytes(4096))


def test_a_length_no_record_can_have_is_refused_whatever_is_there() -> None:
    data = bytearray(encode(RecordKind.BIND, 1, 2, 3, b"x" * 24))
    data[8:12] = (BATCH_BYTES * 2).to_bytes(4, "little")
    with pytest.raises(Corrupt, match="bytes"):
        read_record(data)
