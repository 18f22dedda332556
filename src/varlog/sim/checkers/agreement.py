"""I8. Prefix agreement: two replicas of a stream agree on every slot both have committed.

With it S4, which makes it so under `cut`: no backup holds more than its primary, and what both hold is equal.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation
from varlog.sim.history import Replica


def check(history: LogHistory) -> Iterator[Violation]:
    groups: dict[tuple[int, int], list[Replica]] = {}
    for replica in history.replicas:
        if replica.state != "failed":
            groups.setdefault((replica.segment, replica.stream), []).append(replica)
    for _, replicas in sorted(groups.items()):
        replicas.sort(key=lambda replica: replica.position)
        for other in replicas[1:]:
            yield from _compare(history, replicas[0], other)


def _compare(history: LogHistory, one: Replica, other: Replica) -> Iterator[Violation]:
    names = f"stream {one.stream} on nodes {one.node} and {other.node}"
    if one.position == 0 and other.durable > one.durable and history.ordering(one.segment) == "cut":
        yield history.violation("I8", f"{names}: the backup holds {other.durable} slots, its primary {one.durable}")
    if one.state == other.state == "finished" and one.durable != other.durable:
        yield history.violation("I8", f"{names}: finished with {one.durable} and {other.durable} slots")
    for what, ours, theirs in (("payload", one.payloads, other.payloads), ("GLSN", one.glsns, other.glsns)):
        first = max(one.first_slot, other.first_slot)
        ours_from, theirs_from = ours[first - one.first_slot :], theirs[first - other.first_slot :]
        for offset, (left, right) in enumerate(zip(ours_from, theirs_from, strict=False)):
            if left != right:
                yield history.violation("I8", f"{names}: slot {first + offset} has {what} {left} and {right}")
                break
