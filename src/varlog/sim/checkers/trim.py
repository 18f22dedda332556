"""I13. Trim is monotone: nothing at or below the trim point comes back; nothing above it is lost by it.

What is trimmed because it is archived is not lost: whoever asks for it gets it, and may not be told that it is gone.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before
from varlog.sim.checkers.retention import END, allowance
from varlog.sim.history import Operation


def check(history: LogHistory) -> Iterator[Violation]:
    lost, nodes = _Points(history, lost=True), _Points(history, lost=False)
    done, asked = lost.done, lost.asked
    for read in history.reads:
        if read.payload is not None and read.glsn <= done(read.start):
            yield history.violation("I13", f"{describe(read)} after the log was trimmed up to {done(read.start)}")
        if read.error == "Trimmed":
            asked_for = asked(read)
            if read.glsn > asked_for or read.value > asked_for + 1:
                yield history.violation("I13", f"{describe(read)}, but a trim was asked for only up to {asked_for}")
    for chain in history.chains:
        if chain.trimmed > nodes.asked(chain):
            told = f"{describe(chain)} tells of a trim up to {chain.trimmed}"
            yield history.violation("I13", f"{told}, but one was asked for only up to {nodes.asked(chain)}")
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
    yield from _at_the_end(history, lost, nodes)


class _Points:
    """Up to where a log was trimmed, and may be: somebody asked for it, or the log need not keep more."""

    def __init__(self, history: LogHistory, *, lost: bool) -> None:
        """`lost`: for good, which what is archived is not; else from the nodes."""
        trims = history.losses if lost else history.trims
        self.done = highest_before([(trim.end, trim.upto) for trim in trims if trim.done and trim.end is not None])
        self._asked = highest_before([(trim.start, trim.upto) for trim in trims])
        keeps = lost and history.keeping is not None and history.keeping.archived
        self._allowed = (lambda time, asked: asked) if keeps else allowance(history)

    def asked(self, operation: Operation | None = None) -> int:
        """By the end of an operation; of one that never ended, and without one, by the end of the run."""
        if operation is None or operation.end is None or operation.end_time is None:
            return self._allowed(float("inf"), self._asked(END))
        return self._allowed(operation.end_time, self._asked(operation.end))


def _at_the_end(history: LogHistory, lost: _Points, nodes: _Points) -> Iterator[Violation]:
    done, asked = lost.done(END), lost.asked()
    if history.final is not None and not done <= history.final.trimmed <= asked:
        yield history.violation(
            "I13",
            f"the log is trimmed up to {history.final.trimmed} at the end; answered were trims up to {done}, "
            f"asked for up to {asked}",
        )
    done, asked = nodes.done(END), nodes.asked()
    for replica in history.replicas:
        if replica.state != "failed" and not done <= replica.trimmed_glsn <= asked:
            yield history.violation(
                "I13",
                f"stream {replica.stream} on node {replica.node} is trimmed up to {replica.trimmed_glsn} at the end; "
                f"answered were trims up to {done}, asked for up to {asked}",
            )
