"""I2. One value: a position, once seen, gives the same entry to everybody for ever."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Sight, Violation


def check(history: LogHistory) -> Iterator[Violation]:
    first: dict[int, Sight] = {}
    for sight in history.sights:
        glsn, payload = sight.glsn, sight.payload
        seen = first.setdefault(glsn, sight)
        if seen.payload != payload:
            evidence = f"position {glsn} is {seen.payload} to {seen.source} and {payload} to {sight.source}"
            yield history.violation("I2", evidence, glsn)
    for replica in history.replicas:
        where = f"stream {replica.stream} on node {replica.node}"
        for glsn, payload in zip(replica.glsns, replica.payloads, strict=False):
            known = first.get(glsn)
            if known is not None and known.payload != payload:
                evidence = f"position {glsn} is {known.payload} to {known.source} and {payload} in {where}"
                yield history.violation("I2", evidence, glsn)
