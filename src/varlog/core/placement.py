"""Where replicas go. Pure: the same nodes and loads give the same members."""

from collections.abc import Collection, Mapping, Sequence

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId


def place_streams(streams: int, replicas: int, load: Mapping[NodeId, int]) -> list[tuple[NodeId, ...]]:
    """Members of each new stream, the primary first.

    `load` is how many replicas each usable node has. Every stream takes the least loaded nodes, and
    among those the primary is the one that is primary least often so far, so work is spread as well.
    """
    if len(load) < replicas:
        raise Unavailable(f"{replicas} replicas need {replicas} connected storage nodes; {len(load)} are connected")
    counts = dict(load)
    primaries = dict.fromkeys(load, 0)
    placed: list[tuple[NodeId, ...]] = []
    for _ in range(streams):
        chosen: Sequence[NodeId] = sorted(counts, key=lambda node: (counts[node], primaries[node], node))[:replicas]
        members = sorted(chosen, key=lambda node: (primaries[node], counts[node], node))
        primaries[members[0]] += 1
        for node in members:
            counts[node] += 1
        placed.append(tuple(members))
    return placed


def place_replacement(
    load: Mapping[NodeId, int], others: Collection[NodeId], zones: Mapping[NodeId, str]
) -> NodeId | None:
    """Who takes the place of a lost member beside `others`; None if nobody can.

    A node in a zone that none of them is in comes first, then the least loaded. Nodes without a zone share none.
    """
    taken = [zones.get(node, "") for node in others]

    def rank(node: NodeId) -> tuple[bool, int, NodeId]:
        zone = zones.get(node, "")
        return bool(zone) and zone in taken, load[node], node

    return min((node for node in load if node not in others), key=rank, default=None)
