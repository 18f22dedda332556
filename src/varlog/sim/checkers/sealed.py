"""I11, as far as `cut` goes. Sealed is sealed: after a seal is answered no ack is given, and the end never moves.

And only then: a seal that was refused was not done.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.history import Seal


def check(history: LogHistory) -> Iterator[Violation]:
    if history.final is not None and history.final.sealed and all(seal.refused for seal in history.seals):
        asked = ", ".join(map(describe, history.seals)) or "nobody asked for it"
        yield history.violation("I11", f"the log is sealed, but: {asked}")
    answered = [seal for seal in history.seals if seal.position is not None and seal.end is not None]
    if not answered:
        return
    first = min(answered, key=lambda seal: seal.end or 0)
    end = first.position or 0
    for seal in answered:
        if seal.position != end:
            yield history.violation("I11", f"{describe(seal)}, but before: {describe(first)}")
    yield from _appends(history, first, end)
    if history.final is not None and (history.final.tail != end - 1 or not history.final.sealed):
        state = "sealed" if history.final.sealed else "open"
        yield history.violation("I11", f"{describe(first)}, but the log is {state} and ends at {history.final.tail}")
    for replica in history.replicas:
        if replica.state in ("open", "sealed") and not replica.unfinished:
            yield history.violation(
                "I11", f"{describe(first)}, but stream {replica.stream} on node {replica.node} is {replica.state}"
            )


def _appends(history: LogHistory, first: Seal, end: int) -> Iterator[Violation]:
    """What is there already may be acked again to who sends it again."""
    begun: dict[str, int] = {}
    for append in history.appends:
        for payload in append.payloads[:1]:
            begun[payload] = min(append.start, begun.get(payload, append.start))
    for append in history.acks():
        if append.last >= end:
            yield history.violation("I11", f"{describe(append)} lies beyond the end of {describe(first)}")
        elif append.payloads and begun[append.payloads[0]] > (first.end or 0):
            yield history.violation("I11", f"{describe(append)} began after {describe(first)}")
