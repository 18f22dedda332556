"""I13. Trim is monotone: nothing at or below the trim point comes back; nothing above it is lost by it."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before
from varlog.sim.checkers.retention import END, allowance
from varlog.sim.history import Operation


def check(history: LogHistory) -> Iterator[Violation]:
    done = highest_before([(trim.end, trim.upto) for trim in history.trims if trim.done and trim.end is not None])
    asked = _Asked(history)
    for read in history.reads:
        if read.payload is not None and read.glsn <= done(read.start):
            yield history.violation("I13", f"{describe(read)} after the log was trimmed up to {done(read.start)}")
        if read.error == "Trimmed":
            asked_for = asked(read)
            if read.glsn > asked_for or read.value > asked_for + 1:
                yield history.violation("I13", f"{describe(read)}, but a trim was asked for only up to {asked_for}")
    for chain in history.chains:
        if chain.trimmed > asked(chain):
            told = f"{describe(chain)} tells of a trim up to {chain.trimmed}"
            yield history.violation("I13", f"{told}, but one was asked for only up to {asked(chain)}")
    for subscription in history.subscriptions:
        if subscription.glsns and subscription.glsns[0] <= done(subscription.start):
            yield history.violation(
                "I13",
                f"{describe(subscription)} gets {subscription.glsns[0]} after the log was trimmed up to "
                f"{done(subscription.start)}",
            )
        if subscription.error == "Trimmed" and subscription.value > asked(subscription) + 1:
            yield history.violation(
                "I13", f"{describe(subscription)} ends with Trimmed({subscription.value}), more than anybody asked for"
            )
    yield from _at_the_end(history, done(END), asked(None))


class _Asked:
    """Up to where a log may be trimmed when an operation ended: somebody asked for it, or it need not keep more."""

    def __init__(self, history: LogHistory) -> None:
        self._asked = highest_before([(trim.start, trim.upto) for trim in history.trims])
        self._allowed = allowance(history)

    def __call__(self, operation: Operation | None) -> int:
        if operation is None or operation.end is None:
            return self._allowed(END, float("inf"), self._asked(END))
        time = operation.end_time if operation.end_time is not None else float("inf")
        return self._allowed(operation.end, time, self._asked(operation.end))


def _at_the_end(history: LogHistory, done: int, asked: int) -> Iterator[Violation]:
    if history.final is not None and not done <= history.final.trimmed <= asked:
        yield history.violation(
            "I13",
            f"the log is trimmed up to {history.final.trimmed} at the end; answered were trims up to {done}, "
            f"asked for up to {asked}",
        )
    for replica in history.replicas:
        if replica.state != "failed" and not done <= replica.trimmed_glsn <= asked:
            yield history.violation(
                "I13",
                f"stream {replica.stream} on node {replica.node} is trimmed up to {replica.trimmed_glsn} at the end; "
                f"answered were trims up to {done}, asked for up to {asked}",
            )
