"""Where replicas go. Pure: the same nodes give the same members.

    zones      as many different ones as there are, for every stream; never refused for lack of them
    nodes      within that, the one with the fewest open streams, for they are what keeps a node busy;
               of those the one that is primary, or leads, least often, then the one with the fewest replicas
    primary    of the members, the one that is primary, or leads, least often; but last one that is shaky, or a poor
               head: with it the segment would end again
    sequencer  of the primaries of a log's streams, the one that grants positions for the fewest logs, with the same
               exceptions: its stream is the first

Nodes without a label share one zone, so that where nobody has one only the load counts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId

FULL_SHARE = 100
"""A volume with less than this part of it free is full,"""
FULL_BYTES = 8 << 20
"""unless so much is free, in which a node with files of the usual size can open a replica."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A connected node, as placement sees it."""

    zone: str = ""
    replicas: int = 0
    """How many it has, of open streams and of ended ones."""
    primaries: int = 0
    """Of how many open streams it is the primary."""
    grants: int = 0
    """For how many logs it grants positions."""
    draining: bool = False
    full: bool = False
    open: int = 0
    """Of how many open streams it is a member."""
    shaky: bool = False
    """It could not open or keep a replica a moment ago, or was away: others come first."""
    poor_head: bool = False
    """It could not go on leading something a moment ago: as a member it is as good as any, but others lead first."""

    @property
    def unfit(self) -> str:
        """Why it gets nothing new; empty if it may."""
        return "drains" if self.draining else "is full" if self.full else ""


def is_full(free_bytes: int, total_bytes: int) -> bool:
    """Whether a volume has no room for new replicas. One that tells no size has."""
    return free_bytes < min(total_bytes // FULL_SHARE, FULL_BYTES)


def place_streams(
    streams: int, replicas: int, nodes: Mapping[NodeId, Candidate], *, granting: bool = False
) -> list[tuple[NodeId, ...]]:
    """Members of each new stream, the primary first; with `granting`, the primary of the first grants positions."""
    if not streams:
        return []
    fit = {number: node for number, node in nodes.items() if not node.unfit}
    if len(fit) < replicas:
        raise Unavailable(_too_few(replicas, nodes))
    counts = {number: (node.open, node.replicas) for number, node in fit.items()}
    primaries = {number: node.primaries for number, node in fit.items()}
    placed: list[tuple[NodeId, ...]] = []
    for _ in range(streams):
        chosen = _choose(replicas, fit, counts, primaries)
        members = sorted(chosen, key=lambda node: (*_risk(fit[node]), primaries[node], counts[node], node))
        primaries[members[0]] += 1
        for node in members:
            counts[node] = (counts[node][0] + 1, counts[node][1] + 1)
        placed.append(tuple(members))
    if granting:
        heads = [fit[members[0]] for members in placed]
        first = min(range(streams), key=lambda index: (*_risk(heads[index]), heads[index].grants))
        placed.insert(0, placed.pop(first))
    return placed


def _risk(head: Candidate) -> tuple[bool, bool]:
    """That what it leads has to go on without it soon."""
    return head.shaky, head.poor_head


def _choose(
    replicas: int,
    fit: Mapping[NodeId, Candidate],
    counts: Mapping[NodeId, tuple[int, int]],
    primaries: Mapping[NodeId, int],
) -> list[NodeId]:
    """One after the other from the zone that has the fewest of them so far."""
    chosen: list[NodeId] = []
    taken = dict.fromkeys((node.zone for node in fit.values()), 0)
    for _ in range(replicas):
        left = (node for node in fit if node not in chosen)
        best = min(
            left,
            key=lambda node: (
                fit[node].shaky,
                taken[fit[node].zone],
                counts[node][0],
                primaries[node],
                counts[node][1],
                node,
            ),
        )
        taken[fit[best].zone] += 1
        chosen.append(best)
    return chosen


def _too_few(replicas: int, nodes: Mapping[NodeId, Candidate]) -> str:
    unfit = [f"node {number} {node.unfit}" for number, node in sorted(nodes.items()) if node.unfit]
    but = f", but {', '.join(unfit)}" if unfit else ""
    return f"{replicas} replicas need {replicas} connected storage nodes; {len(nodes)} are connected{but}"


def zones_of(members: Sequence[NodeId], zones: Mapping[NodeId, str]) -> list[str]:
    """The different zones that a stream lies in, sorted; those without a label count as one."""
    return sorted({zones.get(node, "") for node in members})


def most_zones(replicas: int, zones: Iterable[str]) -> int:
    """In how many zones a stream could lie, given the zones of all nodes that could have it."""
    return min(replicas, len(set(zones)))


def place_replacement(nodes: Mapping[NodeId, Candidate], taken: Collection[str]) -> NodeId | None:
    """Which of the nodes takes the place of a lost member beside others in the zones `taken`; None if there is none.

    One that is fit comes first, for better a copy on a node that is about to leave than one copy less; then one in
    another zone, then the least loaded.
    """
    return min(
        nodes,
        key=lambda number: (
            bool(nodes[number].unfit),
            nodes[number].zone in taken,
            nodes[number].replicas,
            number,
        ),
        default=None,
    )
