"""Numbers (a promise of named producers): what an opened one is told to be in the log is there.

An application leaves such a batch out when it goes on after a crash. Of a log that was trimmed nobody can tell.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe


def check(history: LogHistory) -> Iterator[Violation]:
    if history.final is None or history.trimmed:
        return
    for opening in history.openings:
        for payload in opening.payloads:
            if payload not in history.found:
                evidence = f"{describe(opening)}, but at the end {payload} is nowhere"
                yield history.violation("numbers", evidence, history.final.tail + 1)
