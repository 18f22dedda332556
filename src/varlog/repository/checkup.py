"""What hangs on a node: of which streams it is a member, what its end would mean for them, and whether it may go.

A copy counts as left when its node is connected and has said that it has everything up to the stream's
end, or up to the last cut of one that is open. Nobody who is silent is trusted to have it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from varlog.base.errors import Conflict, Unavailable
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.core.ordering.leader import seal_quorum
from varlog.core.placement import Candidate, place_streams
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks, is_hurt
from varlog.repository.opening import candidates
from varlog.repository.orderer import Orderer
from varlog.repository.reconfigure import settings_of
from varlog.wire.proto import varlog_pb2 as pb

NAMED = 5
"""So many streams are named in a refusal, the others counted."""


class Held(NamedTuple):
    """A stream that a node is a member of."""

    log: pb.LogInfo
    segment: pb.SegmentInfo
    stream: pb.StreamInfo

    @property
    def ended(self) -> bool:
        return self.stream.state == pb.STREAM_FINALIZED

    def replica(self) -> ReplicaId:
        return ReplicaId(LogId(self.log.id), Epoch(self.segment.epoch), StreamId(self.stream.id))


def held_by(catalog: Catalog, node: NodeId) -> Iterator[Held]:
    """All streams that a node is a member of."""
    for log in catalog.logs.values():
        for segment in log.chain:
            for stream in segment.streams:
                if node in stream.members:
                    yield Held(log, segment, stream)


def _copied_to(catalog: Catalog, node: NodeId) -> list[pb.StreamCheck]:
    """Ended streams of which a node is being given a copy, without being a member yet."""
    return [
        pb.StreamCheck(log=log.name, stream=stream.id)
        for log in catalog.logs.values()
        for segment in log.chain
        for stream in segment.streams
        if stream.copy.node == node and node not in stream.members
    ]


def count_streams(catalog: Catalog) -> dict[NodeId, tuple[int, int]]:
    """Of how many open and of how many ended streams each node is a member; those of none are left out."""
    counts: dict[NodeId, tuple[int, int]] = {}
    for log in catalog.logs.values():
        for segment in log.chain:
            for stream in segment.streams:
                ended = stream.state == pb.STREAM_FINALIZED
                for member in stream.members:
                    open_count, ended_count = counts.get(NodeId(member), (0, 0))
                    counts[NodeId(member)] = open_count + (not ended), ended_count + ended
    return counts


class Checkup:
    """Answers for one cluster."""

    def __init__(self, catalog: Catalog, orderer: Orderer, links: NodeLinks, pause_ms: int) -> None:
        """`pause_ms`: how long a node may be away before others take over from it."""
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._pause_ms = pause_ms

    def check(self, node: pb.NodeInfo) -> pb.CheckNodeReply:
        """What stopping it would mean."""
        number = NodeId(node.id)
        others = candidates(self._catalog, self._links)
        others.pop(number, None)
        reply = pb.CheckNodeReply(node=node, pause_ms=self._pause_ms)
        reasons: dict[int, str] = {}
        for held in held_by(self._catalog, number):
            needed = settings_of(held.log).ack  # with fewer no log goes on
            if not held.ended and needed not in reasons:
                reasons[needed] = _no_replacement(needed, others)
            why = "" if held.ended else reasons[needed] or _unsealable(held, others)
            reply.no_replacement = reply.no_replacement or why
            row = self._links.row(number, held.replica())
            reply.streams.add(
                log=held.log.name,
                segment=held.segment.epoch,
                stream=held.stream.id,
                open=not held.ended,
                primary=held.stream.members[0] == number and not held.segment.journal,
                stops=bool(why),
                copies_left=sum(
                    self._is_complete(held, NodeId(each)) for each in held.stream.members if each in others
                ),
                copies_wanted=held.segment.replicas,
                empty=self._is_empty(held),
                stored_bytes=row.stored_bytes if row is not None else 0,
            )
        return reply

    def _is_complete(self, held: Held, node: NodeId) -> bool:
        row = self._links.row(node, held.replica())
        if row is None or is_hurt(row):
            return False
        return row.uncommitted_llsn_offset - 1 + row.uncommitted_llsn_length >= self._end(held)

    def _end(self, held: Held) -> int:
        """Every whole copy has the slots before this one."""
        if held.ended:
            return held.stream.end_slot
        known = self._orderer.order(LogId(held.log.id)).stream(StreamId(held.stream.id))
        return known.committed if known is not None else self._links.reported(held.replica(), held.stream)

    def _is_empty(self, held: Held) -> bool:
        """Whether it has no entry, or has ended and all it had is trimmed."""
        return not self._end(held) or 0 < held.stream.until_glsn <= held.log.trimmed + 1

    def refuse_removal(self, check: pb.CheckNodeReply, *, connected: bool, force: bool) -> None:
        """Raises `Conflict` with the reason why a node has to stay."""
        number = check.node.id
        open_ = [stream for stream in check.streams if stream.open]
        ended = [stream for stream in check.streams if not stream.open]
        alone = [stream for stream in ended if not stream.copies_left]
        copied = _copied_to(self._catalog, NodeId(number))
        why = ""
        if open_:
            why = f"it is a member of {_named(open_, 'open stream')}: `varlog node drain {number}` moves them"
        elif ended and not force:
            why = (
                f"it holds copies of {_named(ended, 'ended stream')}: `varlog node drain {number}` moves them; "
                "--force gives them up if it is lost for good"
            )
        elif ended and connected:
            why = "it is connected: --force is for a node that is lost for good; stop it first"
        elif copied and not (force and not connected):
            why = (
                f"a copy is being made on it of {_named(copied, 'ended stream')}: "
                f"`varlog node drain {number}` moves it on once it is made"
            )
        elif alone:
            why = f"nobody else who is connected has a whole copy of {_named(alone, 'ended stream')}"
        if why:
            raise Conflict(f"node {number} cannot be removed: {why}")


def _no_replacement(replicas: int, others: Mapping[NodeId, Candidate]) -> str:
    """Why a stream that loses a node cannot be replaced on the others; empty if it can."""
    try:
        place_streams(1, replicas, others)
    except Unavailable as error:
        return error.message
    return ""


def _unsealable(held: Held, others: Mapping[NodeId, Candidate]) -> str:
    """Why nobody could tell where a segment ends without a node; empty if those who are left can."""
    members, left = held.stream.members, [node for node in held.stream.members if NodeId(node) in others]
    quorum = seal_quorum(len(members), held.segment.ack)
    if held.segment.ordering == "cut" or len(left) >= quorum:
        return ""
    return f"{quorum} of its members must tell what log {held.log.name!r} has acknowledged; {len(left)} would be left"


def _named(streams: list[pb.StreamCheck], what: str) -> str:
    names = [f"{stream.log}/{stream.stream}" for stream in streams[:NAMED]]
    more = f" and {len(streams) - NAMED} more" if len(streams) > NAMED else ""
    return f"{len(streams)} {what}{'s' * (len(streams) > 1)} ({', '.join(names)}{more})"
