"""A progress bar on standard error, for work that takes a while. Only on a terminal; elsewhere nothing is printed."""

import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO

EVERY_S = 0.1
"""Redraw no more often than this."""
BAR_CELLS = 24


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


def compact(amount: float) -> str:
    """A number in four characters or so."""
    for unit in ("", "k", "M", "G"):
        if amount < 1000:
            return f"{amount:.0f}{unit}" if amount >= 100 or amount == int(amount) else f"{amount:.1f}{unit}"
        amount /= 1000
    return f"{amount:.1f}T"


class Progress:
    """Counts towards a total, or just counts when there is none.

    with Progress("seeds", total=1000) as progress:
        progress.advance()
    """

    def __init__(self, what: str, total: int = 0, *, note: str = "", stream: TextIO | None = None) -> None:
        self.done = 0
        self.note = note
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._started = time.monotonic()
        self._drawn = 0.0

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """`count` more are done."""
        self.done += count
        if note is not None:
            self.note = note
        if self._shown and time.monotonic() - self._drawn >= EVERY_S:
            self._draw()

    def text(self) -> str:
        """The line as it stands."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = self.done / seconds
        parts = [f"{compact(rate)} {self._what}/s"]
        if self._total:
            share = min(self.done / self._total, 1.0)
            filled = int(share * BAR_CELLS)
            bar = "█" * filled + "░" * (BAR_CELLS - filled)
            parts.insert(0, f"{bar} {share:4.0%}  {self.done:,}/{self._total:,} {self._what}")
            if rate > 0 and self.done < self._total:
                parts.append(f"{duration((self._total - self.done) / rate)} left")
        else:
            parts.insert(0, f"{self.done:,} {self._what}")
        if self.note:
            parts.append(self.note)
        return "  ".join(parts)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r\x1b[K" + self.text()[: columns - 1])
        self._stream.flush()

    def close(self) -> None:
        """Take the bar away."""
        if self._shown and self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
