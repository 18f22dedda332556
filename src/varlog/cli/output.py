"""How results look: aligned tables on a terminal, JSON for programs. Colours only where somebody sees them."""

import base64
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
GAP = "  "

Row = Mapping[str, Any]


def colours_wanted(stream: TextIO) -> bool:
    """A terminal that has not been told otherwise."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO) -> str:
    if not style or not colours_wanted(stream):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def tell(text: str) -> None:
    """A line for whoever runs a process that goes on."""
    print(f"{styled('varlog:', 'yellow', sys.stderr)} {' '.join(text.split())}", file=sys.stderr, flush=True)


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


# ---------------------------------------------------------------- how values read


def plain(value: object) -> str:
    """Nothing is a dash, lists are joined; control characters cannot break the table."""
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)))
    return printable(str(value))


def printable(text: str) -> str:
    """A text with whatever a terminal would act on written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def payload(data: bytes) -> str:
    """Bytes for people: as text if they are, else as escapes."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return repr(data)[2:-1]


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def moment(time: datetime | None) -> str:
    """A time for people, to the millisecond."""
    return "-" if time is None else time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def several(count: int, what: str) -> str:
    """So many of something: 1 file, 2,000 files."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


# ---------------------------------------------------------------- tables


@dataclass(frozen=True)
class Column:
    """One column: which key of a row, its title, how a value reads and which style it deserves."""

    key: str
    title: str = ""
    show: Callable[[Any], str] = plain
    right: bool = False
    style: Callable[[Any], str] = lambda _: ""

    @property
    def heading(self) -> str:
        return (self.title or self.key.replace("_", " ")).upper()


def count(key: str, title: str = "") -> Column:
    """A column of numbers."""
    return Column(key, title, show=number, right=True)


def render_table(columns: Sequence[Column], rows: Iterable[Row], stream: TextIO) -> list[str]:
    """Lines of a table; the last column is not padded."""
    listed = list(rows)
    texts = [[column.show(row.get(column.key)) for column in columns] for row in listed]
    widths = [
        max(map(width, (column.heading, *(text[index] for text in texts)))) for index, column in enumerate(columns)
    ]
    lines = [_line(columns, [column.heading for column in columns], widths, lambda _: "bold", stream)]
    for row, text in zip(listed, texts, strict=True):
        lines.append(_line(columns, text, widths, lambda column, row=row: column.style(row.get(column.key)), stream))  # type: ignore[misc]
    return lines


def _line(
    columns: Sequence[Column],
    texts: Sequence[str],
    widths: Sequence[int],
    style: Callable[[Column], str],
    stream: TextIO,
) -> str:
    cells = []
    for column, text, wanted in zip(columns, texts, widths, strict=True):
        padding = " " * (wanted - width(text))
        shown = styled(text, style(column), stream)
        cells.append(padding + shown if column.right else shown + padding)
    return GAP.join(cells).rstrip()


# ---------------------------------------------------------------- printing


class Printer:
    """Prints results in the form that was asked for."""

    def __init__(self, form: str, stream: TextIO | None = None) -> None:
        self.json = form == "json"
        self.stream = stream or sys.stdout

    def table(self, columns: Sequence[Column], rows: Sequence[Row], empty: str = "") -> None:
        """A list of things. With none of them, `empty` tells so to people."""
        if self.json:
            self._write(to_json([dict(row) for row in rows]))
        elif rows:
            self._write("\n".join(render_table(columns, rows, self.stream)))
        elif empty:
            self._write(empty)

    def record(self, row: Row, columns: Sequence[Column]) -> None:
        """One thing, a line for each of its facts."""
        if self.json:
            self._write(to_json(dict(row)))
            return
        widest = max(width(column.heading) for column in columns)
        for column in columns:
            value = row.get(column.key)
            heading = column.heading.capitalize() + " " * (widest - width(column.heading))
            shown = styled(column.show(value), column.style(value), self.stream)
            self._write(f"{styled(heading, 'dim', self.stream)}{GAP}{shown}")

    def line(self, row: Row, text: str) -> None:
        """One of many results that come over time: a line of JSON, or the text."""
        self._write(to_json(dict(row), lines=True) if self.json else text)

    def done(self, row: Row, text: str) -> None:
        """What a command that changes something has to say."""
        self._write(to_json(dict(row)) if self.json else text)

    def _write(self, text: str) -> None:
        self.stream.write(text + "\n")


def to_json(value: object, *, lines: bool = False) -> str:
    """For programs; on one line where more follow."""
    return json.dumps(value, indent=None if lines else 2, default=jsonable)


def jsonable(value: object) -> object:
    """Times in ISO format; bytes as text where they are, else as base64 with its name."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no place in JSON")
