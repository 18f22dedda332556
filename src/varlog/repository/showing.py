"""What a stream ends with is shown once as many members have it as an acknowledgement needs, or all that are there.

    members   1  sealed, has 12       The stream ends behind slot 11, as somebody may have been answered for it.
              2  sealed, has 10       Member 2 is finished first: it takes slots 10 and 11 from member 1, and shows
              3  silent               them, as W = 2 members have them then. Then comes member 1.

    with W = 3 of five, of which member 1 alone has slot 11: members 2 and 3 take it, and only then it is shown

A member that is finished serves all of its replica, and answers those who wait for an append in it. Where fewer than W
had everything when the stream ended (`held_by`, in the record), what they answer for could be lost with fewer nodes
than what was acknowledged; so the others come first. Nothing waits for that but who wants to know what became of the
last appends: the next segment takes others already.

It is not waited for members that are lost, have failed or lack their replica; nor for those that get no further; nor
for those that are away for a moment, if two have it: under an ordering in which all acknowledge, readers would wait.
"""

from varlog.base.ids import NodeId, ReplicaId
from varlog.core.ordering.leader import is_safe
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.links import NodeLink, NodeLinks, Step, slots_of
from varlog.wire.proto import varlog_pb2 as pb

FEWEST = 2
"""So many are waited for though they are away, as long as these do not count as lost."""
MOST_WAITS = 10
"""So many times as long as a node may be away others are waited for at most, though they get further."""


class Showing:
    """Of all streams that have ended."""

    def __init__(self, clock: Clock, links: NodeLinks, absences: Absences, lost_s: float) -> None:
        """`lost_s`: others count as lost that have been away, or got no further, for so long."""
        self._clock = clock
        self._links = links
        self._absences = absences
        self._lost_s = lost_s

    def next_step(self, link: NodeLink, replica: ReplicaId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> Step:
        """Whether a member of an ended stream may show what it has, or is first to take what it lacks."""
        if segment.ordering == "cut" or is_safe(len(stream.held_by), segment.ack):
            return Step.FINISH
        left = [node for node in map(NodeId, stream.members) if node == link.node or not self._is_out(node, replica)]
        holders = [node for node in left if self._has_all(node, replica, stream)]
        there = [node for node in self._links.connected() if node in left]
        needed = min(segment.ack, len(left), max(len(there), FEWEST))
        if link.node not in holders:
            return Step.FINISH if is_safe(len(holders) + 1, needed) else Step.TAKE
        if is_safe(len(holders), needed):
            return Step.FINISH
        rows = [row for node in stream.members if node != link.node and (row := self._links.row(NodeId(node), replica))]
        return Step.FINISH if self._got_no_further(link, replica, sum(map(slots_of, rows))) else Step.WAIT

    def _has_all(self, node: NodeId, replica: ReplicaId, stream: pb.StreamInfo) -> bool:
        """It has what others would take from it: all but what is to be filled."""
        row = self._links.row(node, replica)
        written = stream.junk_slot if stream.HasField("junk_slot") else stream.end_slot
        return node in stream.held_by or (
            row is not None and (row.state == pb.REPLICA_FINISHED or slots_of(row) >= written)
        )

    def _is_out(self, node: NodeId, replica: ReplicaId) -> bool:
        row = self._links.row(node, replica)
        failed = row is not None and row.state == pb.REPLICA_FAILED
        return failed or self._absences.is_lost(node, self._lost_s) or self._absences.lacks(node, replica)

    def _got_no_further(self, link: NodeLink, replica: ReplicaId, slots: int) -> bool:
        """Whether others have had so many slots for long, while this member was here to take from."""
        now = self._clock.now()
        first, since, had = link.waits.get(replica, (now, now, slots))
        since = now if slots > had else since
        link.waits[replica] = (first, since, max(slots, had))
        return now - since >= self._lost_s or now - first >= MOST_WAITS * self._lost_s
