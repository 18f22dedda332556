"""I3. Dense: committed positions have no gap, and no two slots have the same one."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation


def check(history: LogHistory) -> Iterator[Violation]:
    if history.final is not None:
        yield from _in_final_log(history)
    yield from _on_replicas(history)


def _in_final_log(history: LogHistory) -> Iterator[Violation]:
    final = history.final
    assert final is not None
    expected = final.trimmed + 1
    for glsn in sorted((*final.glsns, *final.junk)):
        if glsn != expected:
            yield history.violation("I3", f"the final scan goes from {expected - 1} to {glsn}", min(expected, glsn))
        expected = glsn + 1
    if expected != final.tail + 1:
        yield history.violation("I3", f"the final scan ends at {expected - 1}, but the tail is {final.tail}", expected)


def _on_replicas(history: LogHistory) -> Iterator[Violation]:
    """A position is bound to one slot of one stream; slots of a replica have rising positions."""
    owner: dict[int, tuple[int, int]] = {}
    for replica in history.replicas:
        previous = 0
        for offset, glsn in enumerate(replica.glsns):
            slot = replica.first_slot + offset
            if glsn <= previous:
                where = f"stream {replica.stream} on node {replica.node}"
                yield history.violation("I3", f"{where}: slot {slot} has {glsn} after {previous}", glsn)
            previous = glsn
            seen = owner.setdefault(glsn, (replica.stream, slot))
            if seen != (replica.stream, slot):
                yield history.violation(
                    "I3", f"position {glsn} is slot {seen[1]} of stream {seen[0]} and {slot} of {replica.stream}", glsn
                )
