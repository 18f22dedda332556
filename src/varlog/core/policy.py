"""How many copies acknowledge, and how many losses that survives, by the ordering. Pure.

W of N copies acknowledge. Under `leader`, by broadcast, those are any W of a segment's members. Where all members of
a segment acknowledge, W says with how few copies a log goes on while there are no nodes for N.
"""

from typing import NamedTuple

from varlog.core.ordering.leader import BROADCAST, seal_quorum


def all_acknowledge(ordering: str, replication: str) -> bool:
    """Whether an entry is in the log when every member of its segment has it."""
    return ordering != "leader" or (replication or BROADCAST) != BROADCAST


class Losses(NamedTuple):
    """So many of a stream's members may be lost at once."""

    appends: int
    """Before an append waits until other members take over."""
    sealing: int
    """Before nobody can tell what was acknowledged, so that no others can take over by themselves."""
    data: int
    """Before something acknowledged may be gone."""


def survives(ordering: str, members: int, ack: int) -> Losses:
    """Under `cut` the repository knows where a stream ends; else enough of its members must tell."""
    if ordering == "cut":
        return Losses(appends=0, sealing=members, data=members - 1)
    return Losses(appends=members - ack, sealing=members - seal_quorum(members, ack), data=ack - 1)
