"""What was wanted, what was seen, and whether that is enough: one table, and what statistics all need."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    wanted: str
    seen: str
    met: bool


def print_table(figures: Sequence[Figure]) -> None:
    print("| figure | wanted | seen | met |\n|---|---|---|---|")
    for each in figures:
        print(f"| {each.name} | {each.wanted} | {each.seen} | {'yes' if each.met else '**no**'} |")


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the range around it."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def p99(values: Sequence[float]) -> float:
    """Between two values that were seen, never beyond the largest."""
    return statistics.quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]


def milliseconds(values: Sequence[float]) -> str:
    """The median and the largest, of seconds."""
    return f"p50 {statistics.median(values) * 1e3:.0f} ms, longest {max(values) * 1e3:.0f} ms of {len(values)}"
