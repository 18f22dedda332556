"""What a stream ends with is shown once two members have it, or all that are left.

    members   1  sealed, has 12       The stream ends behind slot 11, as somebody may have been answered for it.
              2  sealed, has 10       Member 2 is finished first: it takes slots 10 and 11 from member 1, and shows
              3  silent               them. Then comes member 1.

A member that is finished serves all of its replica, and answers those who wait for an append in it. Where one member
alone had everything when the stream ended (`held_by`, in the record), what it answers for would be lost with it; so the
others come first. Nothing waits for that but who wants to know what became of the last appends: the next segment takes
others already.

It is not waited for members that are lost, have failed or lack their replica; nor for those that get no further.
"""

from varlog.base.ids import NodeId, ReplicaId
from varlog.core.ordering.leader import is_safe
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.links import NodeLink, NodeLinks, slots_of
from varlog.wire.proto import varlog_pb2 as pb

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

    def may_finish(self, link: NodeLink, replica: ReplicaId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> bool:
        """Whether a member of an ended stream may show what it has."""
        if segment.ordering == "cut" or is_safe(len(stream.held_by), segment.ack) or link.node not in stream.held_by:
            return True
        others = [NodeId(node) for node in stream.members if node != link.node]
        rows = [row for node in others if (row := self._links.row(node, replica)) is not None]
        return (
            any(row.state == pb.REPLICA_FINISHED for row in rows)
            or all(self._is_out(node, replica) for node in others)
            or self._got_no_further(link, replica, sum(map(slots_of, rows)))
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
