"""With how many copies a log goes on: as many as are wanted; or as there are nodes for, if these are W at least."""

from typing import NamedTuple

from varlog.base.ids import LogId, NodeId
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks
from varlog.repository.opening import has_no_room
from varlog.repository.reconfigure import Settings
from varlog.wire.proto import varlog_pb2 as pb


class Takers(NamedTuple):
    """How many nodes can take new replicas."""

    fit: int
    steady: int
    """Of them, those that can be counted on."""

    def members(self, wanted: Settings) -> int:
        """Of what is opened next. A node that is not to be counted on is left out, if the others are W."""
        there = self.steady if self.steady >= wanted.ack else self.fit
        return min(wanted.replicas, max(there, wanted.ack))


def takers(catalog: Catalog, links: NodeLinks) -> Takers:
    """As of now, at a glance at every node."""
    fit = [node for node in _with_room(catalog, links) if not catalog.nodes[node].draining]
    return Takers(len(fit), sum(not links.standing.is_shaky(node) for node in fit))


def _with_room(catalog: Catalog, links: NodeLinks) -> list[NodeId]:
    there = (node for node in links.connected() if node in catalog.nodes)
    return [node for node in there if not has_no_room(links.volumes(node))]


def members_for(catalog: Catalog, links: NodeLinks, log: LogId, wanted: Settings, *, urgent: bool) -> int:
    """Of what a log goes on with. If it is urgent, members that drain stay where there are not enough others."""
    there = takers(catalog, links)
    last = catalog.log(log).chain[-1]
    if there.fit < wanted.ack and urgent and last.ordering != "cut":
        members = dict.fromkeys(node for stream in last.streams for node in stream.members)
        drain = [node for node in _with_room(catalog, links) if catalog.nodes[node].draining]
        there = Takers(there.fit + sum(node in members for node in drain), there.steady)
    return there.members(wanted)


def copies_wanted(log: pb.LogInfo, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> int:
    """How many members a stream is to have. What has ended and has nothing to read is not copied any more."""
    ended = stream.state == pb.STREAM_FINALIZED
    if ended and (not stream.end_slot or 0 < stream.until_glsn <= log.trimmed + 1):
        return len(stream.members)
    return min(segment.replicas, log.replicas)
