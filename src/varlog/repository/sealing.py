"""Sealing a segment that its members number by themselves: by so many of them that nothing more can be acknowledged.

    members   1  sealed, has 12       N = 3, W = 2: two that are sealed are enough, as the third alone
              2  sealed, has 10       can acknowledge nothing more. It may have what member 1 has, so that
              3  silent               may have been acknowledged: the segment ends behind slot 11.

If the leader itself answers, it says how far it has acknowledged, and the segment ends there or behind what W
members have. A segment of several streams ends behind the last position of any of them that may have been
acknowledged; what is missing before it in the others is junk, from where all who answered had nothing.

All are asked at once. Enough answers are enough, but every other one can only make the end a nearer one: what lies
between was never acknowledged, and whoever has it may be lost before the others got it. So those that are alive are
given a moment. Who is silent is not: a machine that was cut off and a process that was stopped keep their connections,
so that a question to them hangs, and the next segment waits for the end of this one. What a sealed segment holds does
not change any more: asking again after a failure gives an end that is as right, until one is recorded.
"""

import asyncio
from typing import NamedTuple

from varlog.base.errors import Timeout, Unavailable, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering import leader, sequencer
from varlog.core.ordering.sequencer import Stripes
from varlog.ports import Clock
from varlog.repository.links import NodeLinks
from varlog.runtime.scope import Scope
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SEAL_TIMEOUT_S = 2.0
GRACE_S = 0.2
"""How long after enough answers the rest is waited for, as far as it is alive."""


class StreamEnd(NamedTuple):
    """Where a stream ends."""

    slot: Slot
    junk: Slot | None = None
    """Slots from here to the end were written by nobody."""
    held_by: tuple[NodeId, ...] = ()
    """Members that have everything else, on their disks."""


def stripes_of(segment: pb.SegmentInfo) -> Stripes:
    """Where positions lie that follow from their slots; under `leader` there is one stream."""
    return Stripes(Glsn(segment.base), segment.unit or 1, len(segment.streams))


async def seal_members(links: NodeLinks, clock: Clock, log: pb.LogInfo) -> tuple[dict[StreamId, StreamEnd], int]:
    """Seal the last segment: where its streams end, and one past its last position; `Unavailable` if too few answer."""
    segment = log.chain[-1]
    sealings = [
        Sealing(links, ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id)), segment, stream)
        for stream in segment.streams
    ]
    answers = await asyncio.gather(*(sealing.run(clock) for sealing in sealings), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    acknowledged = [answer for answer in answers if not isinstance(answer, BaseException)]
    stripes = stripes_of(segment)
    until = sequencer.end_of(stripes, acknowledged)
    ends: dict[StreamId, StreamEnd] = {}
    for index, (stream, sealing) in enumerate(zip(segment.streams, sealings, strict=True)):
        end = stripes.slots(index, until)
        ends[StreamId(stream.id)] = sealing.end(end)
    return ends, until


def refuse_unsealable(links: NodeLinks, log: pb.LogInfo) -> None:
    """Raises `Unavailable` if it is clear beforehand that too few members would answer."""
    segment = log.chain[-1]
    for stream in segment.streams if segment.ordering != "cut" else ():
        quorum = leader.seal_quorum(len(stream.members), segment.ack)
        name = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
        silent = {node: why for node in map(NodeId, stream.members) if (why := _why_silent(links, node, name))}
        if len(stream.members) - len(silent) < quorum and stream.state != pb.STREAM_FINALIZED:
            raise Unavailable(
                f"what was acknowledged can be told only by {quorum} of its {len(stream.members)} members, and "
                + "; ".join(f"node {node} {why}" for node, why in silent.items())
            )


def _why_silent(links: NodeLinks, node: NodeId, replica: ReplicaId) -> str:
    """Why a member would not answer; empty if it may."""
    if node not in links.connected():
        return "is not connected"
    row = links.row(node, replica)
    return "has a replica that failed" if row is not None and row.state == pb.REPLICA_FAILED else ""


class Sealing:
    """Of one stream."""

    def __init__(self, links: NodeLinks, name: ReplicaId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> None:
        self._links = links
        self._name = name
        self._members = [NodeId(node) for node in stream.members]
        self._ack = segment.ack
        self._quorum = leader.seal_quorum(len(self._members), self._ack)
        self.tails: dict[NodeId, Slot] = {}
        """Of those that are sealed."""
        self._refusals: dict[NodeId, str] = {}
        self._acknowledged: Slot | None = None
        """By the leader, if that has answered."""
        self._committed = Slot(0)
        """As far as any member knows. Others may have lost the end of what they had: what was not synced behind can
        rot, and is then taken for a write that was torn."""
        self._chained = segment.ordering == "sequencer"
        self._enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is nobody more to wait for."""

    async def run(self, clock: Clock) -> Slot:
        scope = Scope()
        for node in self._members:
            scope.spawn(self._seal(node), name=f"seal {self._name} on {node}")
        try:
            await within(clock, SEAL_TIMEOUT_S, self._enough)
            await self._wait_for_the_rest(clock)
        except VarlogError as error:
            raise Unavailable(self._too_few()) from error
        finally:
            await scope.close()
        return max(self._acknowledged_at_most(), self._committed)

    def _acknowledged_at_most(self) -> Slot:
        if self._chained:
            # What a member of a chain has, all before it have had, whatever their disks have lost since.
            return self.tails[[node for node in self._members if node in self.tails][-1]]
        return leader.end_of(list(self.tails.values()), len(self._members), self._ack, self._acknowledged)

    def end(self, end: Slot) -> StreamEnd:
        """The stream is to end there."""
        junk = sequencer.junk_from(end, self.tails)
        written = end if junk is None else junk
        return StreamEnd(end, junk, tuple(node for node in self._members if self.tails.get(node, -1) >= written))

    async def _wait_for_the_rest(self, clock: Clock) -> None:
        try:
            await within(clock, GRACE_S, self._rest)
        except Timeout:
            pass  # they are counted as having everything

    def _is_awaited(self, node: NodeId) -> bool:
        """It has not answered, and may: it reported a moment ago. Who counts as lost has been silent for longer."""
        return node not in self.tails and node not in self._refusals and node in self._links.connected()

    async def _seal(self, node: NodeId) -> None:
        name = pb.ReplicaId(log=self._name.log, segment=self._name.segment, stream=self._name.stream)
        try:
            status = await self._links.ask(node, Method.SEAL, pb.SealRequest(replica=name))
        except VarlogError as error:
            self._refused(node, error.message)
        else:
            assert isinstance(status, pb.ReplicaStatus)
            self._sealed(node, status)

    def _refused(self, node: NodeId, why: str) -> None:
        self._refusals[node] = why
        self._look()

    def _sealed(self, node: NodeId, status: pb.ReplicaStatus) -> None:
        self.tails[node] = Slot(status.contiguous)
        if status.leads:
            self._acknowledged = Slot(status.committed)
        self._committed = max(self._committed, Slot(status.committed))
        self._look()

    def _look(self) -> None:
        """Is it enough?"""
        if not self._enough.done():
            if len(self.tails) >= self._quorum:
                self._enough.set_result(None)
            elif len(self.tails) + len(self._refusals) == len(self._members):
                self._enough.set_exception(Unavailable("all have answered"))
        if len(self.tails) >= self._quorum and not self._rest.done() and not any(map(self._is_awaited, self._members)):
            self._rest.set_result(None)

    def _too_few(self) -> str:
        why = "; ".join(f"node {node}: {message}" for node, message in sorted(self._refusals.items()))
        return (
            f"{self._quorum} of {len(self._members)} members must be sealed before it is certain what was "
            f"acknowledged; {len(self.tails)} are ({why or 'the others do not answer'})"
        )
