"""How many losses a replication survives, by its ordering. Pure, for people to see before they need it."""

from typing import NamedTuple

from varlog.core.ordering.leader import seal_quorum


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
