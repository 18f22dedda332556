"""I13. Trim is monotone: nothing at or below the trim point comes back; nothing above it is lost by it.

What is trimmed because it is archived is not lost: whoever asks for it gets it, and may not be told that it is gone.
"""

from collections.abc import Callable, Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before
from varlog.sim.history import Trim

END = 1 << 62
"""After everything."""


def check(history: LogHistory) -> Iterator[Violation]:
    done, asked = _points(history.losses)
    for read in history.reads:
        if read.payload is not None and read.glsn <= done(read.start):
            yield history.violation("I13", f"{describe(read)} after the log was trimmed up to {done(read.start)}")
        if read.error == "Trimmed":
            asked_for = asked(read.end if read.end is not None else END)
            if read.glsn > asked_for or read.value > asked_for + 1:
                yield history.violation("I13", f"{describe(read)}, but a trim was asked for only up to {asked_for}")
    for subscription in history.subscriptions:
        if subscription.glsns and subscription.glsns[0] <= done(subscription.start):
            yield history.violation(
                "I13",
                f"{describe(subscription)} gets {subscription.glsns[0]} after the log was trimmed up to "
                f"{done(subscription.start)}",
            )
        if subscription.error == "Trimmed" and subscription.value > asked(subscription.end or END) + 1:
            yield history.violation(
                "I13", f"{describe(subscription)} ends with Trimmed({subscription.value}), more than anybody asked for"
            )
    yield from _at_the_end(history)


def _points(trims: list[Trim]) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Up to where trims were done, and asked for, before a moment."""
    done = highest_before([(trim.end, trim.upto) for trim in trims if trim.done and trim.end is not None])
    return done, highest_before([(trim.start, trim.upto) for trim in trims])


def _at_the_end(history: LogHistory) -> Iterator[Violation]:
    done, asked = (point(END) for point in _points(history.losses))
    if history.final is not None and not done <= history.final.trimmed <= asked:
        yield history.violation(
            "I13",
            f"the log is trimmed up to {history.final.trimmed} at the end; answered were trims up to {done}, "
            f"asked for up to {asked}",
        )
    done, asked = (point(END) for point in _points(history.trims))
    for replica in history.replicas:
        if replica.state != "failed" and not done <= replica.trimmed_glsn <= asked:
            yield history.violation(
                "I13",
                f"stream {replica.stream} on node {replica.node} is trimmed up to {replica.trimmed_glsn} at the end; "
                f"answered were trims up to {done}, asked for up to {asked}",
            )
