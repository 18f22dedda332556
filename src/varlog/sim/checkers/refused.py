"""I6. Refused is refused: an append that ended in a definite error is not in the log, now or later."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe


def check(history: LogHistory) -> Iterator[Violation]:
    refused = {
        payload: append for append in history.appends if append.outcome == "refused" for payload in append.payloads
    }
    for sight in history.sights:
        if sight.payload in refused:
            append = refused[sight.payload]
            yield history.violation(
                "I6", f"{describe(append)} ended in {append.error}, but is at {sight.glsn} to {sight.source}"
            )
    for replica in history.replicas:
        for glsn, payload in zip(replica.glsns, replica.payloads, strict=False):
            if payload in refused:
                append = refused[payload]
                yield history.violation(
                    "I6", f"{describe(append)} ended in {append.error}, but node {replica.node} has it at {glsn}"
                )
