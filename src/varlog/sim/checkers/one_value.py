"""I2. One value: a position, once seen, gives the same entry to everybody for ever."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation


def check(history: LogHistory) -> Iterator[Violation]:
    first: dict[int, tuple[str, str]] = {}
    for glsn, payload, _, source in history.sights():
        seen = first.setdefault(glsn, (payload, source))
        if seen[0] != payload:
            yield history.violation("I2", f"position {glsn} is {seen[0]} to {seen[1]} and {payload} to {source}")
    for replica in history.replicas:
        where = f"the replica of stream {replica.stream} on node {replica.node}"
        for glsn, payload in zip(replica.glsns, replica.payloads, strict=False):
            seen = first.setdefault(glsn, (payload, where))
            if seen[0] != payload:
                yield history.violation("I2", f"position {glsn} is {seen[0]} to {seen[1]} and {payload} on {where}")
