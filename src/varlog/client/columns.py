"""What an append carries, judged before anything else happens to it.

Whatever is accepted here can be encoded, alone or together with others: a batch that several
callers share must not fail because of one of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from varlog.base import limits
from varlog.base.errors import InvalidArgument, TooLarge
from varlog.wire.batch import HEADERS, KEYS, Batch, Headers, encode_batch
from varlog.wire.frame import Buffer

ENTRY_OVERHEAD_BYTES = 128
"""What an entry costs in memory besides its bytes, in round figures."""


class Columns(NamedTuple):
    """Entries by column, as `encode_batch` wants them."""

    payloads: list[bytes]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    cost: int
    """Bytes, with what the entries cost besides."""

    def part(self, index: int, count: int) -> "Columns":
        """Entries `[index, index + count)`."""
        part = slice(index, index + count)
        keys = self.keys and self.keys[part]
        headers = self.headers and self.headers[part]
        return Columns(self.payloads[part], keys, headers, entries_cost(self.payloads[part], keys, headers))


def columns_of(data: Buffer, cost: int) -> Columns:
    """What an encoded batch was made of."""
    batch = Batch(data)
    keys = batch.keys() if batch.header.flags & KEYS else None
    headers = list[Headers](batch.headers()) if batch.header.flags & HEADERS else None
    return Columns(batch.payloads(), keys, headers, cost)


def as_bytes(value: object, what: str) -> bytes:
    """The value as bytes that nobody else can change."""
    if type(value) is bytes:
        data = value
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    else:
        raise InvalidArgument(f"{what} is made of bytes, not {type(value).__name__}")
    if len(data) > limits.ENTRY_BYTES:
        raise TooLarge(f"{what} of {len(data)} bytes", limits.ENTRY_BYTES)
    return data


def checked_headers(headers: object) -> dict[str, bytes]:
    """A copy of an entry's headers."""
    if not isinstance(headers, Mapping):
        raise InvalidArgument(f"headers are a mapping of text to bytes, not {type(headers).__name__}")
    if len(headers) > limits.HEADERS_PER_ENTRY:
        raise TooLarge(f"{len(headers)} headers of one entry", limits.HEADERS_PER_ENTRY)
    for name in headers:
        if not isinstance(name, str):
            raise InvalidArgument(f"the name of a header is text, not {type(name).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError as invalid:
            raise InvalidArgument(f"the name of a header is not valid text: {name!r}") from invalid
    return {name: as_bytes(value, f"header {name!r}") for name, value in headers.items()}


@cache
def check_compression() -> None:
    """Raises `Unsupported`, naming the extra, where batches cannot be compressed."""
    encode_batch([b""], compress=True)


def one_entry(payload: Buffer, key: Buffer | None, headers: Headers | None) -> Columns:
    """The columns of a single entry."""
    entry = [as_bytes(payload, "an entry")]
    keys = _all_keys(1, key, None)
    listed: list[Headers] | None = [checked_headers(headers)] if headers else None
    return Columns(entry, keys, listed, entries_cost(entry, keys, listed))


def many_entries(
    payloads: Iterable[Buffer],
    key: Buffer | None,
    keys: Sequence[Buffer | None] | None,
    headers: Headers | Sequence[Headers] | None,
) -> Columns:
    """The columns of a batch; `key` and a single mapping of headers go to every entry."""
    if isinstance(payloads, str | bytes | bytearray | memoryview):
        raise InvalidArgument("a batch is a list of entries, not a single one")
    if not isinstance(payloads, Iterable):
        raise InvalidArgument(f"a batch is a list of entries, not {type(payloads).__name__}")
    listed = list(payloads)
    if not listed:
        raise InvalidArgument("an append needs at least one entry")
    if len(listed) > limits.BATCH_ENTRIES:
        raise TooLarge(f"{len(listed)} entries in one batch", limits.BATCH_ENTRIES)
    entries, size = as_entries(listed)
    if size > limits.BATCH_BYTES:
        raise TooLarge(f"a batch of {size} bytes", limits.BATCH_BYTES)
    all_keys = _all_keys(len(entries), key, keys)
    all_headers = _all_headers(len(entries), headers)
    cost = size + ENTRY_OVERHEAD_BYTES * len(entries) + options_cost(all_keys, all_headers)
    return Columns(entries, all_keys, all_headers, cost)


def as_entries(payloads: list[Buffer]) -> tuple[list[bytes], int]:
    """All of them as bytes, and how many bytes; nothing is touched one by one when they already are."""
    if set(map(type, payloads)) == {bytes}:
        size = sum(map(len, payloads))
        if size <= limits.ENTRY_BYTES:  # and so is each of them
            return payloads, size  # type: ignore[return-value]
    entries = [as_bytes(each, "an entry") for each in payloads]
    return entries, sum(map(len, entries))


def _all_keys(count: int, key: Buffer | None, keys: Sequence[Buffer | None] | None) -> list[bytes | None] | None:
    if key is not None and keys is not None:
        raise InvalidArgument("give one key for all entries or a list of keys, not both")
    if key is not None:
        return [as_bytes(key, "a key")] * count
    if keys is None:
        return None
    if not isinstance(keys, Collection):
        raise InvalidArgument(f"keys are a list, one for each entry, not {type(keys).__name__}")
    if len(keys) != count:
        raise InvalidArgument(f"{len(keys)} keys for {count} entries")
    return [None if each is None else as_bytes(each, "a key") for each in keys]


def _all_headers(count: int, headers: Headers | Sequence[Headers] | None) -> list[Headers] | None:
    if not headers:
        return None
    if isinstance(headers, Mapping):
        return [checked_headers(headers)] * count
    if not isinstance(headers, Collection):
        raise InvalidArgument(f"headers are a mapping, or a list of them for the entries, not {type(headers).__name__}")
    if len(headers) != count:
        raise InvalidArgument(f"{len(headers)} mappings of headers for {count} entries")
    return [checked_headers(each) for each in headers]


def entries_cost(
    payloads: Sequence[bytes], keys: Sequence[bytes | None] | None, headers: Sequence[Headers] | None
) -> int:
    """What entries take in memory."""
    return sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads) + options_cost(keys, headers)


def options_cost(keys: Sequence[bytes | None] | None, headers: Sequence[Headers] | None) -> int:
    """What is added to that by keys and headers."""
    cost = 0
    if keys:
        cost += sum(map(len, filter(None, keys)))
    if headers:
        cost += sum(map(headers_bytes, headers))
    return cost


def headers_bytes(headers: Headers) -> int:
    """What the headers of one entry add to its batch, in round figures."""
    return sum(4 * len(name) + len(value) + 8 for name, value in headers.items())
