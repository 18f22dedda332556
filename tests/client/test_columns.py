"""What may be appended."""

from collections.abc import Callable
from typing import Any

import pytest

from varlog.base import limits
from varlog.base.errors import InvalidArgument, TooLarge
from varlog.client.columns import Columns, many_entries, one_entry


def test_bytes_are_taken_as_they_are_and_all_else_is_copied() -> None:
    payload = b"abc"
    assert one_entry(payload, None, None).payloads[0] is payload
    mutable: Any = bytearray(b"abc")
    entry = one_entry(mutable, memoryview(mutable), {"h": mutable})
    mutable[0] = 0
    assert entry.payloads == [b"abc"]
    assert entry.keys == [b"abc"]
    assert entry.headers == [{"h": b"abc"}]
    mutable = bytearray(b"abc")
    entries = many_entries([b"x", mutable, memoryview(mutable)], None, None, None)
    mutable[0] = 0
    assert entries.payloads == [b"x", b"abc", b"abc"]


def test_a_part_costs_its_part() -> None:
    columns = many_entries([b"a", b"bb", b"ccc"], None, [None, b"key", None], [{}, {}, {"h": b"v"}])
    parts = [columns.part(index, 1) for index in range(3)]
    assert [part[:3] for part in parts] == [
        ([b"a"], [None], [{}]),
        ([b"bb"], [b"key"], [{}]),
        ([b"ccc"], [None], [{"h": b"v"}]),
    ]
    assert [part.cost for part in parts] == [
        one_entry(b"a", None, None).cost,
        one_entry(b"bb", b"key", None).cost,
        one_entry(b"ccc", None, {"h": b"v"}).cost,
    ]
    assert sum(part.cost for part in parts) == columns.cost


@pytest.mark.parametrize(
    ("payload", "key", "headers"),
    [
        ("text", None, None),
        (None, None, None),
        (7, None, None),
        (b"", "text", None),
        (b"", None, {"x": "text"}),
        (b"", None, {b"x": b""}),
        (b"", None, {"\ud800": b""}),
        (b"", None, ["x"]),
    ],
)
def test_what_is_not_bytes_is_refused(payload: Any, key: Any, headers: Any) -> None:
    with pytest.raises(InvalidArgument):
        one_entry(payload, key, headers)
    with pytest.raises(InvalidArgument):
        many_entries([b"good", payload], key, None, headers)


def test_an_empty_append_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one entry"):
        many_entries([], None, None, None)


@pytest.mark.parametrize("payloads", [b"abc", "abc", bytearray(b"abc")])
def test_a_single_entry_is_no_batch(payloads: Any) -> None:
    with pytest.raises(InvalidArgument, match="not a single one"):
        many_entries(payloads, None, None, None)


def test_what_is_no_list_is_refused() -> None:
    nonsense: Any = 5
    with pytest.raises(InvalidArgument, match="list of entries, not int"):
        many_entries(nonsense, None, None, None)
    with pytest.raises(InvalidArgument, match="keys are a list"):
        many_entries([b"a"], None, nonsense, None)
    with pytest.raises(InvalidArgument, match="headers are a mapping, or a list"):
        many_entries([b"a"], None, None, nonsense)


def test_sizes_are_limited() -> None:
    large = bytes(limits.ENTRY_BYTES + 1)
    attempts: list[Callable[[], Columns]] = [
        lambda: one_entry(large, None, None),
        lambda: one_entry(b"", large, None),
        lambda: one_entry(b"", None, {"h": large}),
        lambda: many_entries([b"", large], None, None, None),
    ]
    for attempt in attempts:
        with pytest.raises(TooLarge) as refused:
            attempt()
        assert refused.value.limit == limits.ENTRY_BYTES
    half = bytes(limits.BATCH_BYTES // 2)
    with pytest.raises(TooLarge) as batch:
        many_entries([half, half, b"x"], None, None, None)
    assert batch.value.limit == limits.BATCH_BYTES
    with pytest.raises(TooLarge):
        many_entries([b""] * (limits.BATCH_ENTRIES + 1), None, None, None)
    with pytest.raises(TooLarge):
        one_entry(b"", None, {str(number): b"" for number in range(limits.HEADERS_PER_ENTRY + 1)})


def test_keys_and_headers_for_all_or_one_by_one() -> None:
    assert many_entries([b"a", b"b"], b"k", None, {"h": b"v"})[1:3] == ([b"k", b"k"], [{"h": b"v"}, {"h": b"v"}])
    assert many_entries([b"a", b"b"], None, [None, b"k"], [{}, {"h": b"v"}])[1:3] == ([None, b"k"], [{}, {"h": b"v"}])
    with pytest.raises(InvalidArgument, match="1 keys for 2 entries"):
        many_entries([b"a", b"b"], None, [b"k"], None)
    with pytest.raises(InvalidArgument, match="not both"):
        many_entries([b"a"], b"k", [b"k"], None)
    with pytest.raises(InvalidArgument, match="1 mappings of headers for 2"):
        many_entries([b"a", b"b"], None, None, [{"h": b""}])
