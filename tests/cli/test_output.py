"""Tables that align, JSON that parses, colours only where they are seen."""

import io
import json
from datetime import UTC, datetime
from typing import Any, TextIO

import pytest

from varlog.cli.output import (
    Column,
    Printer,
    count,
    jsonable,
    moment,
    payload,
    plain,
    render_table,
    size,
    styled,
    width,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS: list[dict[str, Any]] = [
    {"name": "orders", "tail": 1234567, "state": "writable"},
    {"name": "日本", "tail": 3, "state": "sealed"},
    {"name": "x", "tail": None, "state": ""},
]
COLUMNS = [Column("name"), count("tail"), Column("state", style=lambda state: "red" if state == "sealed" else "")]


def rendered(stream: TextIO) -> list[str]:
    return render_table(COLUMNS, ROWS, stream)


def test_columns_align_also_with_wide_characters() -> None:
    assert rendered(io.StringIO()) == [
        "NAME         TAIL  STATE",
        "orders  1,234,567  writable",
        "日本            3  sealed",
        "x               -  -",
    ]


def test_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31msealed\x1b[0m" in rendered(Terminal())[2]
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b" not in "".join(rendered(Terminal()))
    assert styled("x", "red", Terminal()) == "x"


def test_json_holds_the_values_as_they_are() -> None:
    out = io.StringIO()
    Printer("json", out).table(COLUMNS, ROWS)
    assert json.loads(out.getvalue()) == ROWS


def test_an_empty_list_says_so_to_people_only() -> None:
    people, programs = io.StringIO(), io.StringIO()
    Printer("table", people).table(COLUMNS, [], empty="no logs yet")
    Printer("json", programs).table(COLUMNS, [], empty="no logs yet")
    assert people.getvalue() == "no logs yet\n"
    assert json.loads(programs.getvalue()) == []


def test_a_record_is_a_line_per_fact() -> None:
    out = io.StringIO()
    Printer("table", out).record(ROWS[0], COLUMNS)
    assert out.getvalue() == "Name   orders\nTail   1,234,567\nState  writable\n"


def test_lines_come_one_by_one() -> None:
    people, programs = io.StringIO(), io.StringIO()
    for printer in (Printer("table", people), Printer("json", programs)):
        printer.line({"glsn": 1, "payload": b"a\xff"}, "1 a")
    assert people.getvalue() == "1 a\n"
    assert json.loads(programs.getvalue()) == {"glsn": 1, "payload": {"base64": "Yf8="}}


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"plain", "plain"), ("grün".encode(), "grün"), (b"a\nb\x1b[31m", "a\\nb\\x1b[31m"), (b"\xff\x00", "\\xff\\x00")],
)
def test_payloads_cannot_play_with_the_terminal(data: bytes, shown: str) -> None:
    assert payload(data) == shown


ODD = [("a\tb", "a\\tb"), (["zone\x1b[2J", "b"], "zone\\x1b[2J, b")]
"""What others named: zones, paths, troubles of nodes."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), ("", "-"), ([], "-"), (0, "0"), (True, "yes"), (False, "no"), ([1, 2], "1, 2"), *ODD],
)
def test_plain_values(value: object, shown: str) -> None:
    assert plain(value) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (3 << 40, "3.0 TiB"), (None, "-")],
)
def test_sizes(amount: int | None, shown: str) -> None:
    assert size(amount) == shown


def test_moments() -> None:
    assert moment(datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)) == "2023-11-14 22:13:20.123"
    assert moment(None) == "-"


def test_width_counts_cells() -> None:
    assert width("abc") == 3
    assert width("日本") == 4
    assert width("e\u0301") == 1


def test_json_refuses_what_it_does_not_know() -> None:
    assert jsonable(b"text") == "text"
    with pytest.raises(TypeError):
        jsonable(object())
