"""I1. No loss: every acked entry is readable at its position, with its bytes, until trimmed."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before

GONE = ("NotWritten", "NotFound", "Junk", "Corrupt")
"""Answers that say there is no such entry; Trimmed is judged with the trims (I13)."""


def check(history: LogHistory) -> Iterator[Violation]:
    yield from _in_final_log(history)
    yield from _when_read(history)


def _in_final_log(history: LogHistory) -> Iterator[Violation]:
    for append in history.acks():
        if append.last - append.first + 1 != len(append.payloads):
            yield history.violation("I1", f"{describe(append)} has {len(append.payloads)} entries")
            continue
        if history.final is None:
            continue
        for offset, payload in enumerate(append.payloads):
            glsn = append.first + offset
            if glsn > history.trimmed and history.at.get(glsn) != payload:
                there = history.at.get(glsn, "nothing")
                yield history.violation("I1", f"{describe(append)}, but at the end {there} is at {glsn}")
                break


def _when_read(history: LogHistory) -> Iterator[Violation]:
    """Positions are dense, so whoever saw a position saw that all below exist."""
    seen = highest_before([(sight.end, sight.glsn) for sight in history.sights() if sight.end is not None])
    for read in history.reads:
        if read.error in GONE and 0 < read.glsn <= seen(read.start):
            yield history.violation(
                "I1", f"{describe(read)}, though position {seen(read.start)} had been seen before it began"
            )
