"""Conditional appends (a promise of the client): one that is acked has the position that it was to get."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe


def check(history: LogHistory) -> Iterator[Violation]:
    for append in history.acks():
        if append.expect and append.first != append.expect:
            yield history.violation("conditional", f"{describe(append)}, but {append.expect} was expected")
