"""I14. It gets going again: once faults have stopped, appends and subscriptions proceed within a bound.

What is asked of the log ends, one way or another: nothing hangs.

And every replica that works has heard of all that is committed, and has it on disk; and there are as many of
them as there should be, those of lost nodes rebuilt on others (C5).
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.history import JUNK


def check(history: LogHistory) -> Iterator[Violation]:
    for expected in history.expectations:
        if expected.excuse:
            continue
        limit = expected.healed_time + expected.bound
        if not any(
            append.outcome == "ack"
            and (expected.any_stream or append.stream == expected.stream)
            and append.start >= expected.healed
            and append.end_time is not None
            and append.end_time <= limit
            for append in history.appends
        ):
            yield history.violation(
                "I14",
                f"stream {expected.stream} acked no append between {expected.healed_time:.3f}, when all faults had "
                f"stopped, and {limit:.3f}",
            )
    for operation in history.hanging:
        yield history.violation("I14", f"{describe(operation)}, though nothing keeps it from its end any more")
    yield from _subscriptions(history)
    yield from _replicas(history)
    yield from _copies(history)


def _subscriptions(history: LogHistory) -> Iterator[Violation]:
    if history.final is None:
        return
    for subscription in history.subscriptions:
        if not subscription.must_catch_up:
            continue
        last = subscription.glsns[-1] if subscription.glsns else subscription.first - 1
        due = history.final.tail
        while history.at.get(due) == JUNK:
            due -= 1
        due = due if due > history.unknown_upto else 0
        if subscription.stream:
            pairs = zip(history.final.glsns, history.final.streams, strict=True)
            due = max((glsn for glsn, stream in pairs if stream == subscription.stream), default=0)
        if subscription.error or last < due:
            came = f"ended with {subscription.error}" if subscription.error else f"got no further than {last}"
            yield history.violation("I14", f"{describe(subscription)} {came}, the tail is {due}")


def _replicas(history: LogHistory) -> Iterator[Violation]:
    if history.final is None or not history.expectations:
        return
    ends: dict[int, int] = {}
    for stream, slot in zip(history.final.streams, history.final.slots, strict=True):
        ends[stream] = slot + 1
    for replica in history.replicas:
        due = ends.get(replica.stream, 0)
        if replica.state != "failed" and replica.committed < due:
            yield history.violation(
                "I14",
                f"stream {replica.stream} on node {replica.node} has commits up to slot {replica.committed} on disk "
                f"long after faults stopped; {due} are committed",
            )


def _copies(history: LogHistory) -> Iterator[Violation]:
    for expected in history.expectations:
        well = [each for each in history.replicas if each.stream == expected.stream and each.state != "failed"]
        if not expected.thin and len(well) < expected.replicas:
            nodes = ", ".join(str(replica.node) for replica in well)
            yield history.violation(
                "I14",
                f"stream {expected.stream} has {len(well)} of {expected.replicas} replicas long after faults stopped: "
                f"those of nodes {nodes or 'none'}",
            )
