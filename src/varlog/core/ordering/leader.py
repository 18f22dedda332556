"""The `leader` ordering: one writer numbers the entries of a segment, and what W of its N members have is committed.

    member 1   =========|====        slots it has synced, without a gap
    member 2   =========|==
    member 3   ======   |
                        ^ committed: with W = 2, the second longest
    position of a slot: the segment's base + slot

There is one writer in the life of a segment, so every member has a beginning of the same sequence and nothing
has to be compared. A new writer is a new segment. Before it begins, the old segment is sealed on so many members
that no W of the others are left to acknowledge anything (`seal_quorum`), and ends behind the last slot that may
have been acknowledged (`end_of`): one that W members have, counting those that stay silent as having it. If the
leader itself is sealed it knows better, for it acknowledges nothing more.
"""

from collections.abc import Iterable, Sequence

from varlog.base.ids import Slot
from varlog.base.invariant import invariant

BROADCAST = "broadcast"
"""The leader stores at all members at once."""
CHAIN = "chain"
"""It stores at the second, that at the third, and so on: each byte leaves a node once. All members acknowledge."""


def default_ack(members: int) -> int:
    """A majority: any minority may be lost, for appends and for sealing alike."""
    return members // 2 + 1


def seal_quorum(members: int, ack: int) -> int:
    """How many members must be sealed before it is certain that nothing more is acknowledged."""
    return members - ack + 1


def committed(tails: Iterable[Slot], ack: int) -> Slot:
    """How far `ack` members have everything; `tails` are those of all members that are known."""
    ordered = sorted(tails, reverse=True)
    return ordered[ack - 1] if len(ordered) >= ack else Slot(0)


def end_of(tails: Sequence[Slot], members: int, ack: int, acknowledged: Slot | None = None) -> Slot:
    """One past the last slot that may have been acknowledged; `tails` are those of the members that are sealed.

    `acknowledged`: what the leader itself has, if it is among them. Nobody else acknowledges, so nothing beyond
    that counts but what is on enough members anyway.
    """
    silent = members - len(tails)
    invariant(len(tails) >= seal_quorum(members, ack), "too few are sealed to tell", sealed=len(tails), ack=ack)
    if acknowledged is not None:
        return max(acknowledged, committed(tails, ack))
    return sorted(tails, reverse=True)[ack - silent - 1]


def is_safe(holders: int, ack: int) -> bool:
    """Whether what so many members hold may be answered for once its segment has ended: it is as safe as what was
    acknowledged before, which is on `ack` of them. What was on its way then may be on one alone.
    """
    return holders >= ack


def tail_between(tails: Sequence[Slot], members: int, ack: int) -> tuple[Slot, Slot]:
    """How far a segment is committed at least, and how far something may have been acknowledged.

    `tails` are those of the members that answer, at least as many as a seal needs. Where nobody is silent both are
    the same; else who wants to know asks again until the first has reached what was the second.
    """
    return committed(tails, ack), end_of(tails, members, ack)
