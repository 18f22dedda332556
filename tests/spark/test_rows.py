"""Rows become batches: all of them, in order, and cut at the same places however they are handed over."""

from collections.abc import Iterator
from itertools import pairwise

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.base.errors import InvalidArgument
from varlog.spark import rows
from varlog.spark.rows import Rows, batches_of, rows_of


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "WRITE_ENTRIES", 5)
        patch.setattr(rows, "WRITE_BYTES", 20)
        yield


def made(payloads: list[bytes]) -> Rows:
    return Rows(list(payloads), [None] * len(payloads), [{} for _ in payloads])


payloads = st.lists(st.binary(max_size=30), max_size=30)


@settings(deadline=None)
@given(payloads, st.lists(st.integers(0, 30), max_size=5))
def test_cuts_do_not_depend_on_how_rows_come(given: list[bytes], cuts: list[int]) -> None:
    at = sorted({min(cut, len(given)) for cut in cuts} | {0, len(given)})
    parts = [made(given[start:stop]) for start, stop in pairwise(at)]
    batches = [each.payloads for each in batches_of(parts)]
    assert [payload for batch in batches for payload in batch] == given
    assert batches == [each.payloads for each in batches_of([made(given)])]
    for batch in batches:
        assert len(batch) <= 5
        assert len(batch) == 1 or sum(map(len, batch)) <= 20


def test_the_log_may_take_less_at_once() -> None:
    given = [b"%d" % number for number in range(7)]
    assert [len(each) for each in batches_of([made(given)], 3)] == [3, 3, 1]
    assert [len(each) for each in batches_of([made(given)], 1000)] == [5, 2]


def test_all_columns_travel_together() -> None:
    batch = pyarrow.record_batch(
        {
            "payload": pyarrow.array(["a", "b"]),
            "key": pyarrow.array([None, b"k"], pyarrow.binary()),
            "headers": pyarrow.array([[("x", b"1")], None], pyarrow.map_(pyarrow.string(), pyarrow.binary())),
            "glsn": [1, 2],
        }
    )
    assert rows_of(batch) == Rows([b"a", b"b"], [None, b"k"], [{"x": b"1"}, {}])


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("payload", pyarrow.array([None], pyarrow.binary()), "no payload"),
        ("headers", pyarrow.array([[("x", None)]], pyarrow.map_(pyarrow.string(), pyarrow.binary())), "no value"),
    ],
)
def test_nothing_is_appended_for_null(column: str, values: pyarrow.Array, says: str) -> None:
    columns = {"payload": pyarrow.array([b"p"])} | {column: values}
    with pytest.raises(InvalidArgument, match=says):
        rows_of(pyarrow.record_batch(columns))
