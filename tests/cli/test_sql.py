"""What `varlog sql` makes of names and values, without Spark."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from varlog.base.errors import InvalidArgument
from varlog.cli.output import to_json
from varlog.cli.sql import json_value, mentioned, shown_value, told_apart


def test_names_that_differ_only_in_their_capitals() -> None:
    """They are one table to SQL: the last one made would answer for both."""
    logs = ["Orders", "orders", "other"]
    assert mentioned("select * from orders", logs) == ["orders"]
    assert mentioned("select * from Orders", logs) == ["Orders"]
    assert mentioned("select * from OTHER", logs) == ["other"]
    with pytest.raises(InvalidArgument, match="Orders, orders are one name"):
        mentioned("select * from orders join Orders", logs)


def test_columns_of_the_same_name_are_told_apart() -> None:
    assert told_apart(["glsn", "glsn", "n", "glsn_2", "glsn"]) == ["glsn", "glsn_2", "n", "glsn_2_2", "glsn_3"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(2026, 1, 2), "2026-01-02"),
        (time(12, 30), "12:30:00"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (timedelta(days=1), "1 day, 0:00:00"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1.5, 1.5),
        ((1 << 63) - 1, (1 << 63) - 1),
        (bytearray(b"text"), "text"),
        ({b"\xff": 1, 2: [b"x", None]}, {"\\xff": 1, "2": ["x", None]}),
        (True, True),
    ],
)
def test_every_value_of_a_query_has_a_place_in_json(value: Any, expected: Any) -> None:
    assert json.loads(to_json(json_value({"v": value})), parse_constant=pytest.fail) == {"v": expected}


def test_values_inside_of_others() -> None:
    assert shown_value([b"a", b"\x1b[2J", {"k": b"v"}]) == "a, \\x1b[2J, k=v"
    assert shown_value({b"k": []}) == "k=-"
