"""I9. Subscribers see the log: in order, without gap or repeat. What they see there is I2's concern.

Where nobody can tell any more which positions hold junk, they may still not pass over what somebody saw there.
"""

from bisect import bisect_left
from collections.abc import Iterator
from math import inf

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.checkers.retention import END
from varlog.sim.history import Subscription


def check(history: LogHistory) -> Iterator[Violation]:
    of_stream = _positions_by_stream(history)
    for subscription in history.subscriptions:
        if subscription.stream:
            yield from _one_stream(history, subscription, of_stream.get(subscription.stream, []))
        else:
            yield from _all_streams(history, subscription)
        yield from _passed_over(history, subscription)


def _passed_over(history: LogHistory, subscription: Subscription) -> Iterator[Violation]:
    """Whatever somebody saw between its first position and its last one is among what it got."""
    stop = subscription.glsns[-1] if subscription.glsns else 0
    if _ended_by_itself(subscription) and (subscription.stop or not all(seal.refused for seal in history.seals)):
        stop = subscription.stop or END
    filled = history.filled.get(subscription.stream, [])
    got = set(subscription.glsns)
    for glsn in filled[bisect_left(filled, max(subscription.first, 1)) : bisect_left(filled, stop)]:
        if glsn not in got:
            evidence = f"{describe(subscription)} passes over {glsn}, where somebody saw an entry"
            yield history.violation("I9", evidence, glsn)
            return


def _positions_by_stream(history: LogHistory) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    if history.final is not None:
        for glsn, stream in zip(history.final.glsns, history.final.streams, strict=True):
            positions.setdefault(stream, []).append(glsn)
    return positions


def _all_streams(history: LogHistory, subscription: Subscription) -> Iterator[Violation]:
    expected = max(subscription.first, 1)
    for glsn in subscription.glsns:
        if not history.may_follow(expected, glsn):
            yield history.violation("I9", f"{describe(subscription)} gets {glsn} where {expected} is due")
            return
        expected = glsn + 1
    if subscription.stop and expected > subscription.stop:
        yield history.violation("I9", f"{describe(subscription)} goes beyond its stop {subscription.stop}")
    elif _ended_by_itself(subscription):
        if history.unknown_upto == inf:
            return
        expected = history.after_junk(int(max(expected, history.unknown_upto + 1)))
        end = _due_end(history, subscription)
        if expected < end:
            yield history.violation("I9", f"{describe(subscription)} ends after {expected - 1}, before {end}")


def _due_end(history: LogHistory, subscription: Subscription) -> int:
    """Where it may end: at its stop, or where a sealed log ends."""
    if all(seal.refused for seal in history.seals):
        return subscription.stop
    end = history.final.tail + 1 if history.final is not None else 0
    return min(subscription.stop, end) if subscription.stop else end


def _ended_by_itself(subscription: Subscription) -> bool:
    return subscription.end is not None and not subscription.error and not subscription.left


def _one_stream(history: LogHistory, subscription: Subscription, positions: list[int]) -> Iterator[Violation]:
    """What has been trimmed since is only checked to rise."""
    previous = subscription.first - 1
    for glsn in subscription.glsns:
        if glsn <= previous:
            yield history.violation("I9", f"{describe(subscription)} gets {glsn} after {previous}")
            return
        previous = glsn
    left = [glsn for glsn in subscription.glsns if glsn > history.trimmed]
    if left and history.final is not None:
        start = bisect_left(positions, max(subscription.first, history.trimmed + 1))
        due = positions[start : start + len(left)]
        if left != due:
            wrong = next((pair for pair in zip(left, due, strict=False) if pair[0] != pair[1]), (left[-1], None))
            yield history.violation("I9", f"{describe(subscription)} gets {wrong[0]} where {wrong[1]} is due")
