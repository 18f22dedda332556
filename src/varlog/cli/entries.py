"""How entries are printed: columns for people, a line of JSON each for programs, or the payloads as they are."""

import shutil
import sys
from typing import TYPE_CHECKING

from varlog.cli.frame import Parser
from varlog.cli.output import Printer, moment, payload, printable, styled, width

if TYPE_CHECKING:
    from varlog.client.entry import Entry

GLSN_CELLS = 10
TIME_CELLS = 23


def add_format_flags(parser: Parser) -> None:
    parser.add_argument("--raw", action="store_true", help="print payloads only, each with a newline behind it")


class EntryPrinter:
    """Prints entries one by one; on a terminal each is cut to a line."""

    def __init__(self, form: str, *, raw: bool = False) -> None:
        self._printer = Printer(form)
        self._raw = raw
        self._columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        self._titled = False

    def print(self, entry: "Entry") -> None:
        if self._raw:
            sys.stdout.buffer.write(entry.payload + b"\n")
        elif self._printer.json:
            self._printer.line(self._facts(entry), "")
        else:
            self._print_line(entry)

    def flush(self) -> None:
        sys.stdout.flush()

    def _facts(self, entry: "Entry") -> dict[str, object]:
        return {
            "glsn": entry.glsn,
            "stream": entry.stream,
            "slot": entry.slot,
            "time": entry.time,
            "key": entry.key,
            "headers": dict(entry.headers),
            "payload": entry.payload,
        }

    def _print_line(self, entry: "Entry") -> None:
        if not self._titled:
            self._titled = True
            title = f"{'GLSN':>{GLSN_CELLS}}  {'TIME':<{TIME_CELLS}}  PAYLOAD"
            self._printer.line({}, styled(title, "bold", sys.stdout))
        notes = [] if entry.key is None else [f"key={payload(entry.key)}"]
        notes += [f"{printable(name)}={payload(value)}" for name, value in entry.headers.items()]
        text = f"{entry.glsn:>{GLSN_CELLS}}  {moment(entry.time)}  {payload(entry.payload)}"
        if notes:
            text += f"  [{', '.join(notes)}]"
        if self._columns and width(text) > self._columns:
            text = text[: self._columns - 1] + "…"
        self._printer.line({}, text)
