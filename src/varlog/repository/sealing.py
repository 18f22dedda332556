"""Sealing a segment that its members number by themselves: by so many of them that nothing more can be acknowledged.

    members   1  sealed, has 12       N = 3, W = 2: two that are sealed are enough, as the third alone
              2  sealed, has 10       can acknowledge nothing more. It may have what member 1 has, so that
              3  silent               may have been acknowledged: the segment ends behind slot 11.

If the leader itself answers, it says how far it has acknowledged, and the segment ends there or behind what W
members have. A segment of several streams ends behind the last position of any of them that may have been
acknowledged; what is missing before it in the others is junk, from where all who answered had nothing.

All are asked at once. Enough answers are enough, but every other one can only make the end a nearer one: what lies
between was never acknowledged. So those that are connected are given a moment.

Whoever waits for an append that lies before the end has his answer once the end is recorded, be it on member 1 alone.
So before that the others take what they lack (member 2 slots 10 and 11), until W members have everything, or all of
those that are not lost: who was acknowledged then is not lost with one of them. A member that has been away for as
long as it takes to be replaced counts as lost, and so does one that for so long does not what it is asked to do.

What a sealed segment holds changes only by that. Asking again after a failure gives an end that is as right, until one
is recorded.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from varlog.base.errors import ReplicaFailed, Timeout, Unavailable, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering import leader, sequencer
from varlog.core.ordering.sequencer import Stripes
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.links import NodeLinks
from varlog.runtime.scope import Scope
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SEAL_TIMEOUT_S = 2.0
GRACE_S = 0.2
"""How long after enough answers the rest is waited for."""
AGAIN_S = 0.05
"""After members did not take what they lack, before everybody is asked again."""

Result = TypeVar("Result")


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


class Sealer:
    """Seals segments, and remembers who keeps them from being sealed."""

    def __init__(self, clock: Clock, links: NodeLinks, absences: Absences, lost_s: float) -> None:
        self._clock = clock
        self._links = links
        self._absences = absences
        self._lost_s = lost_s
        self._unable: dict[tuple[NodeId, ReplicaId], tuple[float, int]] = {}
        """Since when a member does not what it is asked to do, and how far it was; -1: it does not answer."""

    async def seal(self, log: pb.LogInfo) -> tuple[dict[StreamId, StreamEnd], int]:
        """Seal the last segment: where its streams end, and one past its last position; else `Unavailable`."""
        until = self._clock.now() + SEAL_TIMEOUT_S
        while True:
            try:
                return await self._try(log)
            except _TooThin:
                if self._clock.now() >= until:
                    raise
            await self._clock.sleep(AGAIN_S)

    async def _try(self, log: pb.LogInfo) -> tuple[dict[StreamId, StreamEnd], int]:
        segment = log.chain[-1]
        names = [ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id)) for stream in segment.streams]
        sealings = [
            Sealing(self, self._links, name, segment, stream)
            for name, stream in zip(names, segment.streams, strict=True)
        ]
        acknowledged = await _all_of([sealing.run(self._clock) for sealing in sealings])
        stripes = stripes_of(segment)
        until = sequencer.end_of(stripes, acknowledged)
        ends = await _all_of(
            [sealing.end(self._clock, stripes.slots(index, until)) for index, sealing in enumerate(sealings)]
        )
        self._unable = {key: since for key, since in self._unable.items() if key[1] not in names}
        return {name.stream: end for name, end in zip(names, ends, strict=True)}, until

    # ------------------------------------------------------------ who counts

    def is_lost(self, node: NodeId, replica: ReplicaId) -> bool:
        """Nobody waits for it any more."""
        row = self._links.row(node, replica)
        if self._absences.is_lost(node, self._lost_s) or self._absences.lacks(node, replica):
            return True
        since, _ = self._unable.get((node, replica), (self._clock.now(), 0))
        return (row is not None and row.state == pb.REPLICA_FAILED) or self._clock.now() - since >= self._lost_s

    def answered(self, node: NodeId, replica: ReplicaId, tail: Slot) -> None:
        """One that has got further may get there."""
        if tail > self._unable.get((node, replica), (0.0, tail))[1]:
            del self._unable[node, replica]

    def failed(self, node: NodeId, replica: ReplicaId, tail: int) -> None:
        self._unable.setdefault((node, replica), (self._clock.now(), tail))


class _TooThin(Unavailable):
    """Too few members have everything, and others may get it."""


class Sealing:
    """Of one stream."""

    def __init__(
        self, sealer: Sealer, links: NodeLinks, name: ReplicaId, segment: pb.SegmentInfo, stream: pb.StreamInfo
    ) -> None:
        self._sealer = sealer
        self._links = links
        self._name = name
        self._members = [NodeId(node) for node in stream.members]
        self._ack = segment.ack
        self._quorum = leader.seal_quorum(len(self._members), self._ack)
        self._tails: dict[NodeId, Slot] = {}
        """Of those that are sealed."""
        self._refusals: dict[NodeId, VarlogError] = {}
        self._acknowledged: Slot | None = None
        """By the leader, if that has answered."""
        self._committed = Slot(0)
        """As far as any member knows. Others may have lost the end of what they had: what was not synced behind can
        rot, and is then taken for a write that was torn."""
        self._chained = segment.ordering == "sequencer"

    # ------------------------------------------------------------ what may have been acknowledged

    async def run(self, clock: Clock) -> Slot:
        """Seal the members; one past the last slot that may have been acknowledged."""
        asked = _Round(self._seal, self._members)
        try:
            await within(clock, SEAL_TIMEOUT_S, asked.until(self._is_enough))
            if self._is_enough():
                await within(clock, GRACE_S, asked.until(lambda: False))
        except Timeout:
            pass  # they are counted as having everything
        finally:
            await asked.close()
        for node in self._members:
            if node not in self._tails:
                self._sealer.failed(node, self._name, -1)
        if not self._is_enough():
            raise Unavailable(self._too_few())
        end = leader.end_of(list(self._tails.values()), len(self._members), self._ack, self._acknowledged)
        return max(end, self._committed)

    async def _seal(self, node: NodeId) -> None:
        try:
            status = await self._ask(node)
        except VarlogError as error:
            self._refusals[node] = error
        else:
            self._sealed(node, status)

    def _sealed(self, node: NodeId, status: pb.ReplicaStatus) -> None:
        tail = self._tails[node] = Slot(status.contiguous)
        self._sealer.answered(node, self._name, tail)
        if status.leads:
            self._acknowledged = Slot(status.committed)
        # What the last one of a chain has, all have had.
        last = self._chained and node == self._members[-1]
        self._committed = max(self._committed, tail if last else Slot(status.committed))

    async def _ask(self, node: NodeId, upto: int = 0, sources: Sequence[NodeId] = ()) -> pb.ReplicaStatus:
        name = pb.ReplicaId(log=self._name.log, segment=self._name.segment, stream=self._name.stream)
        request = pb.SealRequest(replica=name, upto=upto, sources=sources)
        status = await self._links.ask(node, Method.SEAL, request)
        assert isinstance(status, pb.ReplicaStatus)
        return status

    def _is_enough(self) -> bool:
        """To tell what was acknowledged, and to have it where it is not lost with one of them."""
        return len(self._tails) >= max(self._quorum, min(self._ack, sum(map(self._counts, self._members))))

    def _counts(self, node: NodeId) -> bool:
        """It is sealed, or may be soon."""
        failed = isinstance(self._refusals.get(node), ReplicaFailed)
        return node in self._tails or not (failed or self._sealer.is_lost(node, self._name))

    def _too_few(self) -> str:
        why = "; ".join(f"node {node}: {error.message}" for node, error in sorted(self._refusals.items()))
        return (
            f"{self._quorum} of {len(self._members)} members must be sealed before it is certain what was "
            f"acknowledged, and {self._ack} of those that are not lost before anybody is told; "
            f"{len(self._tails)} are ({why or 'the others do not answer'})"
        )

    # ------------------------------------------------------------ where it is to be

    async def end(self, clock: Clock, end: Slot) -> StreamEnd:
        """The stream is to end here: see that enough members have what is before it."""
        junk = sequencer.junk_from(end, self._tails)
        upto = end if junk is None else junk
        if not self._is_held(upto):
            await self._spread(clock, upto)
        return StreamEnd(end, junk, tuple(self._holders(upto)))

    def _holders(self, upto: Slot) -> list[NodeId]:
        return [node for node in self._members if self._tails.get(node, -1) >= upto]

    def _is_held(self, upto: Slot) -> bool:
        """By as many members as acknowledge, or by all that can."""
        holders = self._holders(upto)
        able = [node for node in self._tails if node not in holders and not self._sealer.is_lost(node, self._name)]
        return len(holders) >= min(self._ack, len(holders) + len(able))

    async def _spread(self, clock: Clock, upto: Slot) -> None:
        sources = self._holders(upto)
        short = [node for node in self._tails if node not in sources]
        refusals: dict[NodeId, VarlogError] = {}

        async def take(node: NodeId) -> None:
            try:
                self._tails[node] = Slot((await self._ask(node, upto, sources)).contiguous)
            except VarlogError as error:
                refusals[node] = error

        asked = _Round(take, short)
        try:
            await within(clock, SEAL_TIMEOUT_S, asked.until(lambda: self._is_held(upto)))
        except Timeout:
            pass  # they go on from where they are when they are asked again
        finally:
            await asked.close()
        if not self._is_held(upto):
            for node in short:
                self._sealer.failed(node, self._name, self._tails[node])
            why = "; ".join(f"node {node}: {error.message}" for node, error in sorted(refusals.items()))
            raise _TooThin(f"too few members have slots up to {upto} yet ({why or 'they are taking them'})")


class _Round:
    """The same is asked of several members at once."""

    def __init__(self, ask: Callable[[NodeId], Coroutine[Any, Any, None]], nodes: Sequence[NodeId]) -> None:
        self._scope = Scope()
        self._left = len(nodes)
        self._turn: asyncio.Future[None] | None = None
        for node in nodes:
            self._scope.spawn(self._run(ask(node)), name=f"seal on {node}")

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._left -= 1
        if self._turn is not None and not self._turn.done():  # it is when nobody waits any more
            self._turn.set_result(None)

    async def until(self, enough: Callable[[], bool]) -> None:
        """It is enough, or all have answered."""
        while self._left and not enough():
            self._turn = asyncio.get_running_loop().create_future()
            try:
                await self._turn
            finally:
                self._turn = None

    async def close(self) -> None:
        await self._scope.close()


async def _all_of(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Of all, once all have ended; or the first error."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
