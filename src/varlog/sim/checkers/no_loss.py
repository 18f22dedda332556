"""I1. No loss: every acked entry is readable at its position, with its bytes, until trimmed.

What is committed is on the disk of every member of its stream: W = N under `cut`. So each replica is
asked for all of it, too, and none may have failed unless its disk did.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before

GONE = ("NotWritten", "NotFound", "Corrupt")
"""Answers that say there is no such entry. Trimmed is judged with the trims (I13), and Junk is a value (I2)."""


def check(history: LogHistory) -> Iterator[Violation]:
    yield from _in_final_log(history)
    yield from _when_read(history)
    yield from _on_replicas(history)


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
                yield history.violation("I1", f"{describe(append)}, but at the end {there} is at {glsn}", glsn)
                break


def _when_read(history: LogHistory) -> Iterator[Violation]:
    """Positions are dense, so whoever saw a position saw that all below exist."""
    seen = highest_before(history.seen_positions())
    for read in history.reads:
        if read.error in GONE and 0 < read.glsn <= seen(read.start):
            yield history.violation(
                "I1", f"{describe(read)}, though position {seen(read.start)} had been seen before it began", read.glsn
            )


def _on_replicas(history: LogHistory) -> Iterator[Violation]:
    committed = _payloads_by_slot(history)
    for replica in history.replicas:
        where = f"stream {replica.stream} on node {replica.node}"
        if replica.state == "failed":
            if not replica.excuse:
                yield history.violation(
                    "I1", f"{where} cannot be opened, though its disk never failed: {replica.trouble}"
                )
            continue
        for slot, glsn, payload in committed.get(replica.stream, []):
            offset = slot - replica.first_slot
            if offset < 0 < glsn - replica.trimmed_glsn:
                begins = f"begins at slot {replica.first_slot}, trimmed up to {replica.trimmed_glsn}"
                yield history.violation("I1", f"{where} {begins}, without {glsn}", glsn)
                break
            if offset >= 0 and (offset >= len(replica.payloads) or replica.payloads[offset] != payload):
                there = replica.payloads[offset] if offset < len(replica.payloads) else "nothing"
                yield history.violation("I1", f"{where} has {there} in slot {slot}, where {glsn} is {payload}", glsn)
                break


def _payloads_by_slot(history: LogHistory) -> dict[int, list[tuple[int, int, str]]]:
    """Stream -> (slot, position, payload) of the final log."""
    final = history.final
    found: dict[int, list[tuple[int, int, str]]] = {}
    if final is not None:
        for glsn, payload, stream, slot in zip(final.glsns, final.payloads, final.streams, final.slots, strict=True):
            found.setdefault(stream, []).append((slot, glsn, payload))
    return found
