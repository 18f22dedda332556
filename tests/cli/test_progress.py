"""Progress bars: what they say, and that they keep quiet off a terminal."""

import io

import pytest

from varlog.cli.progress import Progress, compact, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    """A clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("varlog.cli.progress.time.monotonic", lambda: self.now)


def test_says_share_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    progress = Progress("seeds", total=1000, stream=Terminal())
    time.now += 10
    progress.advance(250)
    assert progress.text() == "██████░░░░░░░░░░░░░░░░░░  25%  250/1,000 seeds  25 seeds/s  30 s left"


def test_counts_without_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    progress = Progress("entries", stream=Terminal())
    time.now += 2
    progress.advance(3_000_000, note="120 MB")
    assert progress.text() == "3,000,000 entries  1.5M entries/s  120 MB"


def test_draws_on_a_terminal_and_takes_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    stream = Terminal()
    with Progress("seeds", total=10, stream=stream) as progress:
        time.now += 1
        progress.advance()
        drawn = stream.getvalue()
        progress.advance()  # too soon to draw again
        assert stream.getvalue() == drawn
    assert "1/10 seeds" in drawn
    assert stream.getvalue().endswith("\r\x1b[K")


def test_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    stream = io.StringIO()
    with Progress("seeds", total=10, stream=stream) as progress:
        for _ in range(10):
            time.now += 1
            progress.advance()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (75, "1:15 min"), (3700, "1:01 h")])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(("amount", "shown"), [(0, "0"), (7.25, "7.2"), (999, "999"), (1500, "1.5k"), (2.5e6, "2.5M")])
def test_compact_numbers(amount: float, shown: str) -> None:
    assert compact(amount) == shown
