"""The batch: what goes in comes out, every damage is found, and the layout really is Arrow's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.base.errors import Corrupt, InvalidArgument, TooLarge, Unsupported, VarlogError
from varlog.base.limits import BATCH_BYTES, BATCH_ENTRIES, ENTRY_BYTES
from varlog.wire.batch import (
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    JUNK,
    KEYS,
    MAGIC,
    VERSION,
    ZSTD,
    Batch,
    _with_checksum,
    check_batch,
    check_batches,
    encode_batch,
    junk_batch,
    padding,
    read_header,
    stamp_batch,
)
from varlog.wire.columns import EVEN_BYTES, EVEN_COUNT


@dataclass
class Entries:
    payloads: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[dict[str, bytes]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode_batch(self.payloads, keys=self.keys, headers=self.headers, **self.extra)


@st.composite
def entries(draw: st.DrawFn) -> Entries:
    count = draw(st.integers(1, 40))
    if draw(st.booleans()):
        size = draw(st.integers(0, 20))
        payload = st.binary(min_size=size, max_size=size)
    else:
        payload = st.binary(max_size=30)

    def column(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.lists(values, min_size=count, max_size=count))

    return Entries(
        draw(st.lists(payload, min_size=count, max_size=count)),
        column(st.none() | st.binary(max_size=9)),
        column(st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=3)),
        {
            "producer": draw(st.binary(min_size=16, max_size=16)),
            "sequence": draw(st.integers(0, (1 << 64) - 1)),
            "time_us": draw(st.integers(0, (1 << 64) - 1)),
            "compress": draw(st.booleans()),
        },
    )


@given(entries())
@settings(max_examples=100, deadline=None)
def test_what_goes_in_comes_out(given_entries: Entries) -> None:
    encoded = given_entries.encode()
    batch = Batch(encoded)
    count = len(given_entries.payloads)
    assert len(batch) == count
    assert batch.payloads() == given_entries.payloads
    assert batch.keys() == (given_entries.keys or [None] * count)
    assert batch.headers() == (given_entries.headers or [{}] * count)
    assert batch.header.total_bytes == len(encoded)
    for name in ("producer", "sequence", "time_us"):
        assert getattr(batch.header, name) == given_entries.extra[name]
    assert bool(batch.header.flags & KEYS) == (given_entries.keys is not None)
    assert bool(batch.header.flags & HEADERS) == (given_entries.headers is not None)


@given(entries(), entries())
@settings(max_examples=50, deadline=None)
def test_batches_lie_end_to_end(first: Entries, second: Entries) -> None:
    one, two = first.encode(), second.encode()
    found = check_batches(memoryview(one + two))
    assert [(bytes(data), header.count) for data, header in found] == [
        (one, len(first.payloads)),
        (two, len(second.payloads)),
    ]
    with pytest.raises(Corrupt):
        check_batches(one + two + b"\x00")
    assert check_batches(b"") == []


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, EVEN_BYTES, EVEN_BYTES + 1])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 1000])
def test_entries_of_one_size(size: int, count: int) -> None:
    payloads = [bytes([index & 255]) * size for index in range(count)]
    assert Batch(encode_batch(payloads)).payloads() == payloads
    almost = [*payloads[:-1], payloads[-1] + b"x"]
    assert Batch(encode_batch(almost)).payloads() == almost


@pytest.mark.parametrize("count", [EVEN_COUNT - 1, EVEN_COUNT, EVEN_COUNT + 1, 50_000])
def test_many_entries(count: int) -> None:
    payloads = [b"%06d" % index for index in range(count)]
    keys = [None if index % 3 else b"k%d" % index for index in range(count)]
    batch = Batch(encode_batch(payloads, keys=keys))
    assert batch.payloads() == payloads
    assert batch.keys() == keys


def test_offsets_that_only_end_evenly_are_not_taken_for_even() -> None:
    payloads = [b"ab", b"abc", b"a", b"ab"]
    assert Batch(encode_batch(payloads)).payloads() == payloads


def test_any_kind_of_buffer_can_be_decoded() -> None:
    encoded = encode_batch([b"a", b"bc"], keys=[None, b"k"])
    for data in (encoded, bytearray(encoded), memoryview(encoded), memoryview(b"xx" + encoded + b"yy")[2:]):
        batch = Batch(data)
        assert (batch.payloads(), batch.keys(), bytes(batch.data)) == ([b"a", b"bc"], [None, b"k"], encoded)


# ---------------------------------------------------------------- damage


def some_batches() -> list[bytes]:
    return [
        encode_batch([b"x"]),
        encode_batch([b"one", b"", b"three"], keys=[b"k", None, b""], headers=[{}, {"n": b"v"}, {}], sequence=7),
        encode_batch([b"again and again " * 5] * 5, compress=True, producer=b"p" * 16, time_us=99),
    ]


@pytest.mark.parametrize("encoded", some_batches(), ids=["one", "columns", "compressed"])
def test_every_cut_off_length_is_found(encoded: bytes) -> None:
    for length in range(len(encoded)):
        with pytest.raises(Corrupt):
            check_batch(encoded[:length])


@pytest.mark.parametrize("encoded", some_batches(), ids=["one", "columns", "compressed"])
def test_every_flipped_bit_is_found(encoded: bytes) -> None:
    for at in range(len(encoded)):
        for bit in range(8):
            damaged = bytearray(encoded)
            damaged[at] ^= 1 << bit
            with pytest.raises((Corrupt, TooLarge, Unsupported)):
                check_batch(damaged)


@given(entries(), st.data())
@settings(max_examples=100, deadline=None)
def test_any_changed_bytes_are_found(given_entries: Entries, data: st.DataObject) -> None:
    encoded = bytearray(given_entries.encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    new = data.draw(st.binary(min_size=1, max_size=4))
    changed = encoded[:at] + new + encoded[at + len(new) :]
    if changed[: len(encoded)] != encoded:
        with pytest.raises(VarlogError):
            check_batch(changed[: len(encoded)])


def with_header(**changes: int) -> bytes:
    """A batch whose checksum is right and whose header is not."""
    fields = {"version": VERSION, "flags": 0, "count": 1, "body": 16, "raw": 16} | changes
    header = HEADER.pack(
        MAGIC, fields["version"], fields["flags"], 0, 0, fields["count"], fields["body"], fields["raw"], 0, 0, bytes(16)
    )
    return _with_checksum(header, bytes(fields["body"] if fields["body"] < 100 else 16))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (with_header(version=2), Unsupported),
        (with_header(flags=16), Unsupported),
        (with_header(flags=8), Corrupt),
        (with_header(count=0), Corrupt),
        (with_header(count=BATCH_ENTRIES + 1), Corrupt),
        (with_header(body=BATCH_BYTES + 1), TooLarge),
        (with_header(raw=BATCH_BYTES + 1), TooLarge),
        (b"VLB2" + with_header()[4:], Corrupt),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(data: bytes, error: type[VarlogError]) -> None:
    with pytest.raises(error):
        read_header(data)


def with_body(count: int, body: bytes, flags: int = 0) -> Batch:
    """A batch with a right checksum over columns of our making."""
    header = HEADER.pack(MAGIC, VERSION, flags, 0, 0, count, len(body), len(body), 0, 0, bytes(16))
    return Batch(_with_checksum(header, body))


def ints(*values: int) -> bytes:
    data = b"".join(value.to_bytes(4, "little", signed=True) for value in values)
    return data + bytes(padding(len(data)))


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (1, b""),
        (1, ints(0)[:4]),
        (1, ints(0, 9) + bytes(8)),
        (1, ints(0, -1) + bytes(8)),
        (1, ints(1, 2) + bytes(8)),
        (2, ints(0, 1)),
        (2, ints(0, 1, 9) + bytes(8)),
        (2, ints(1, 1, 2) + bytes(8)),
        (2, ints(0, 1, -2) + bytes(8)),
        (3, ints(0, 5, 3, 8) + bytes(8)),
        (3, ints(0, -3, 2, 8) + bytes(8)),
        (3, ints(0, 100, 2, 8) + bytes(8)),
        (1000, ints(0, 0)),
    ],
)
def test_columns_that_contradict_themselves_are_corrupt(count: int, body: bytes) -> None:
    """A writer may lie under a right checksum: readers get an error, never other bytes than there are."""
    with pytest.raises(Corrupt):
        with_body(count, body).payloads()


def test_keys_and_headers_that_contradict_themselves_are_corrupt() -> None:
    payload = ints(0, 0)
    for body in (payload, payload + bytes([1]) + bytes(7), payload + bytes([1]) + bytes(7) + ints(0, 100)):
        with pytest.raises(Corrupt):
            with_body(1, body, KEYS).keys()
    lists = ints(0, 1)
    name, value = ints(0, 2) + b"\xff\xfe" + bytes(6), ints(0, 1) + b"v" + bytes(7)
    for body in (payload, payload + ints(0, 5), payload + lists + name, payload + lists + name + value):
        with pytest.raises(Corrupt):
            with_body(1, body, HEADERS).headers()
    pairs = ints(0, 0, 0)
    with pytest.raises(Corrupt):
        with_body(3, ints(0, 0, 0, 0) + ints(0, 2, 1, 2) + pairs + pairs, HEADERS).headers()


def test_a_compressed_batch_that_does_not_unpack_is_corrupt() -> None:
    encoded = encode_batch([b"again and again " * 50], compress=True)
    header = read_header(encoded)
    assert header.flags & ZSTD
    assert header.body_bytes < header.raw_bytes
    body = encoded[HEADER_BYTES:]

    def again(raw_bytes: int, data: bytes) -> Batch:
        packed = HEADER.pack(MAGIC, VERSION, ZSTD, 0, 0, 1, len(data), raw_bytes, 0, 0, bytes(16))
        return Batch(_with_checksum(packed, data))

    assert again(header.raw_bytes, body).payloads() == [b"again and again " * 50]
    for batch in (
        again(header.raw_bytes, b"not zstd"),
        again(header.raw_bytes - 1, body),
        again(header.raw_bytes + 1, body),
        again(header.raw_bytes, body[:-1]),
    ):
        with pytest.raises(Corrupt):
            batch.payloads()


def test_what_does_not_compress_is_stored_as_it_is() -> None:
    encoded = encode_batch([b"x"], compress=True)
    assert not read_header(encoded).flags & ZSTD


# ---------------------------------------------------------------- limits


def test_sizes_are_judged_before_anything_is_sent() -> None:
    with pytest.raises(InvalidArgument):
        encode_batch([])
    big = bytes(ENTRY_BYTES + 1)
    for payloads in ([big], [b"", big], [big, big, big]):
        with pytest.raises(TooLarge) as caught:
            encode_batch(payloads)
        assert caught.value.limit == ENTRY_BYTES
    with pytest.raises(TooLarge) as caught:
        encode_batch([big[1:]] * 3)
    assert caught.value.limit == BATCH_BYTES
    with pytest.raises(TooLarge):
        encode_batch([big[1:], big[1:]])  # no room for the offsets
    with pytest.raises(TooLarge):
        encode_batch([b""] * (BATCH_ENTRIES + 1))
    with pytest.raises(TooLarge):
        encode_batch([b""], keys=[big])
    with pytest.raises(TooLarge):
        encode_batch([b""], headers=[{"h": big}])


def test_the_largest_entry_passes() -> None:
    payload = bytes(ENTRY_BYTES)
    assert Batch(encode_batch([payload])).payloads() == [payload]


@given(entries(), st.binary(min_size=16, max_size=16), st.integers(0, (1 << 64) - 1))
@settings(max_examples=50, deadline=None)
def test_stamping_is_encoding_under_another_identity(given_entries: Entries, producer: bytes, sequence: int) -> None:
    stamped = stamp_batch(given_entries.encode(), producer, sequence)
    given_entries.extra |= {"producer": producer, "sequence": sequence}
    assert stamped == given_entries.encode()


def test_the_checksum_covers_all_but_itself() -> None:
    encoded = bytearray(encode_batch([b"x"]))
    crc = read_header(encoded).crc
    assert bytes(encoded[CRC_AT:CRC_FROM]) == crc.to_bytes(4, "little")


# ---------------------------------------------------------------- Arrow


def arrow_binary(count: int, buffers: Sequence[memoryview | None]) -> Any:
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    array = pa.Array.from_buffers(pa.binary(), count, wrapped)
    array.validate(full=True)
    return array


@given(entries())
@settings(max_examples=100, deadline=None)
def test_the_layout_is_arrows(given_entries: Entries) -> None:
    batch = Batch(given_entries.encode())
    count = len(batch)
    assert arrow_binary(count, [None, *batch.payload_buffers()]).to_pylist() == given_entries.payloads
    keys = batch.key_buffers()
    assert (keys is None) == (given_entries.keys is None)
    if keys is not None:
        array = arrow_binary(count, keys)
        assert array.to_pylist() == given_entries.keys
        assert array.null_count == sum(key is None for key in given_entries.keys or [])
    headers = batch.header_buffers()
    assert (headers is None) == (given_entries.headers is None)
    if headers is not None:
        lists, names, values = headers
        pairs = lists[count]
        text = pa.Array.from_buffers(pa.string(), pairs, [None, *map(pa.py_buffer, names)])
        offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(lists)])
        maps = pa.MapArray.from_arrays(offsets, text, arrow_binary(pairs, [None, *values]))
        maps.validate(full=True)
        assert [dict(each) for each in maps.to_pylist()] == given_entries.headers


def test_arrow_gets_the_very_bytes() -> None:
    encoded = encode_batch([b"abc", b"de"])
    _, values = Batch(encoded).payload_buffers()
    array = arrow_binary(2, [None, *Batch(encoded).payload_buffers()])
    assert array.buffers()[2].address == pa.py_buffer(values).address


def test_every_column_begins_at_a_multiple_of_eight() -> None:
    encoded = encode_batch([b"abc", b"de"], keys=[b"k", None], headers=[{"a": b"1"}, {}])
    assert HEADER_BYTES % 8 == 0
    batch = Batch(encoded)
    start = pa.py_buffer(batch.data).address
    keys, headers = batch.key_buffers(), batch.header_buffers()
    assert keys is not None
    assert headers is not None
    buffers = [*batch.payload_buffers(), *keys, headers[0], *headers[1], *headers[2]]
    assert [(pa.py_buffer(buffer).address - start) % 8 for buffer in buffers] == [0] * len(buffers)


# ---------------------------------------------------------------- junk


def test_junk_is_a_header_that_everybody_writes_alike() -> None:
    encoded = junk_batch(7)
    assert len(encoded) == HEADER_BYTES
    assert encoded == junk_batch(7) != junk_batch(8)
    batch = Batch(encoded)
    assert batch.junk
    assert (len(batch), batch.header.total_bytes, batch.header.producer) == (7, HEADER_BYTES, bytes(16))
    assert not Batch(encode_batch([b""])).junk


def test_junk_lies_between_other_batches() -> None:
    parts = [encode_batch([b"a"]), junk_batch(3), encode_batch([b"b", b"c"])]
    found = check_batches(b"".join(parts))
    assert [(header.count, bool(header.flags & JUNK)) for _, header in found] == [(1, False), (3, True), (2, False)]


@pytest.mark.parametrize(("flags", "body"), [(JUNK, b"something"), (JUNK | KEYS, b""), (JUNK | ZSTD, b"")])
def test_junk_that_holds_something_is_damage(flags: int, body: bytes) -> None:
    header = HEADER.pack(MAGIC, VERSION, flags, 0, 0, 1, len(body), len(body), 0, 0, bytes(16))
    with pytest.raises(Corrupt, match="junk"):
        check_batch(_with_checksum(header, body))


def test_no_junk_of_no_entries_or_of_too_many() -> None:
    for count in (0, BATCH_ENTRIES + 1):
        with pytest.raises(Corrupt):
            check_batch(junk_batch(count))
    check_batch(junk_batch(BATCH_ENTRIES))
