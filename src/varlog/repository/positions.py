"""How far logs and their streams are, as far as the repository knows without asking anybody."""

from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.core.ordering.sequencer import first_open
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer
from varlog.repository.sealing import stripes_of
from varlog.wire.proto import varlog_pb2 as pb


class Positions:
    """By the cuts where there are any, else by what members have reported: never more than there is."""

    def __init__(self, orderer: Orderer, links: NodeLinks) -> None:
        self._orderer = orderer
        self._links = links

    def tail(self, log: pb.LogInfo) -> int:
        """The last committed GLSN; where members number entries, as far as they have told it."""
        segment = log.chain[-1]
        if log.sealed:
            return segment.end - 1
        if segment.ordering == "cut":
            return self._orderer.order(LogId(log.id)).high_watermark
        tails = [
            self._links.reported(ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id)), stream)
            for stream in segment.streams
        ]
        return first_open(stripes_of(segment), tails) - 1

    def committed(self, replica: ReplicaId, stream: pb.StreamInfo) -> int:
        """Slots of a stream that have their positions."""
        known = self._orderer.order(replica.log).stream(replica.stream)
        if known is not None:
            return known.committed
        return stream.end_slot if stream.state == pb.STREAM_FINALIZED else self._links.reported(replica, stream)
