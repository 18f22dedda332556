"""I5. No invention, no doubling: every entry was sent by a client, and no send is there twice."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation
from varlog.sim.history import JUNK


def check(history: LogHistory) -> Iterator[Violation]:
    sent: dict[str, int] = {}
    for append in history.appends:
        for payload in append.payloads:
            sent[payload] = min(append.start, sent.get(payload, append.start))
    places: dict[str, int] = {}
    for sight in history.sights:
        glsn, payload, end, _ = sight
        if payload == JUNK:
            continue
        if payload not in sent:
            yield history.violation("I5", f"{sight.source} has {payload} at {glsn}, which nobody sent")
        elif end is not None and end < sent[payload]:
            yield history.violation("I5", f"{sight.source} has {payload} at {glsn} before it was sent")
        place = places.setdefault(payload, glsn)
        if place != glsn:
            yield history.violation("I5", f"{payload} is in the log twice: at {place}, and at {glsn} by {sight.source}")
    for replica in history.replicas:
        yield from _on_replica(history, replica.stream, replica.node, replica.payloads, sent)


def _on_replica(
    history: LogHistory, stream: int, node: int, payloads: list[str], sent: dict[str, int]
) -> Iterator[Violation]:
    seen: set[str] = set()
    for payload in payloads:
        if payload == JUNK:
            continue
        if payload not in sent:
            yield history.violation("I5", f"stream {stream} on node {node} holds {payload}, which nobody sent")
        if payload in seen:
            yield history.violation("I5", f"stream {stream} on node {node} holds {payload} twice")
        seen.add(payload)
