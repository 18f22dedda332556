"""Keeps every log writable when nodes are lost (S6, W4): the streams they were in end, others take their place.

    a member is away too long, or its replica has failed
        1. choose members for as many new streams as are hurt, and open their replicas
        2. no more cuts for the hurt streams: each ends at its last one
        3. one change of the log's record: these are finalized with these ends, those are new
        4. members that are left seal and finish; who waits for an append there learns what became of it

Streams that are not hurt never stop. Nothing is ended before its replacement is open on every member: with
too few nodes left a stream waits for its own to come back, which is all that can be done.
"""

import asyncio
from collections.abc import Iterable

from varlog.base.errors import Conflict, NoSpace, VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.placement import place_streams
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks
from varlog.repository.opening import open_replicas
from varlog.repository.orderer import Orderer
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 0.1
"""How often it is looked whether something is missing."""
PAUSE_S = 1.0
"""After a log could not be healed, before it is tried again."""


class Healer:
    """Looks after all logs of the cluster."""

    def __init__(
        self, clock: Clock, catalog: Catalog, orderer: Orderer, links: NodeLinks, changing: asyncio.Lock, lost_s: float
    ) -> None:
        """`changing` is held by whoever seals, removes or heals a log."""
        self._clock = clock
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._changing = changing
        self._lost_s = lost_s
        self._absences = Absences(clock, catalog, links, LOOK_S)
        self._not_before: dict[LogId, float] = {}
        self._troubles: dict[LogId, str] = {}

    def trouble(self, log: LogId) -> str:
        """Why a log cannot be healed, for people; empty if it can or need not be."""
        return self._troubles.get(log, "")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            now = self._clock.now()
            self._absences.look()
            for number in list(self._catalog.logs):
                if self._not_before.get(number, 0.0) <= now:
                    await self._look_at(number)

    # ------------------------------------------------------------ one log

    async def _look_at(self, number: LogId) -> None:
        if not self._hurt(number):
            self._troubles.pop(number, None)
            return
        try:
            async with self._changing:
                if self._hurt(number):  # it may have been sealed or removed while we waited
                    await self._heal(number)
        except (Conflict, NoSpace):
            self._put_off(number, "the metadata store does not take the change")
        except VarlogError as error:
            self._put_off(number, error.message)

    def _put_off(self, number: LogId, why: str) -> None:
        self._troubles[number] = f"streams that are hurt cannot be replaced: {why}"
        self._not_before[number] = self._clock.now() + PAUSE_S

    def _hurt(self, number: LogId) -> list[StreamId]:
        """Open streams that can take no more appends as they are."""
        log = self._catalog.logs.get(number)
        if log is None or log.sealed or log.removing or log.ordering != "cut":
            return []
        segment = log.chain[-1]
        return [
            StreamId(stream.id)
            for stream in segment.streams
            if stream.state != pb.STREAM_FINALIZED and self._is_hurt(number, segment, stream)
        ]

    def _is_hurt(self, number: LogId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> bool:
        known = self._orderer.order(number).stream(StreamId(stream.id))
        if known is not None and known.stopped:
            return True
        name = ReplicaId(number, Epoch(segment.epoch), StreamId(stream.id))
        return any(
            self._absences.is_lost(NodeId(node), self._lost_s) or self._has_failed(NodeId(node), name)
            for node in stream.members
        )

    def _has_failed(self, node: NodeId, replica: ReplicaId) -> bool:
        row = self._links.row(node, replica)
        return row is not None and row.state == pb.REPLICA_FAILED

    async def _heal(self, number: LogId) -> None:
        hurt = self._hurt(number)
        log = self._catalog.log(number)
        count = self._wanted(log, hurt)
        first = await self._catalog.reserve_streams(number, count)
        opening = dict.fromkeys((number, StreamId(first + index)) for index in range(count))
        self._links.opening.update(opening)
        try:
            fresh = await self._open_fresh(log, first, count)
            await self._replace(number, hurt, fresh)
        finally:
            for key in opening:
                del self._links.opening[key]
        self._links.mend_all(number)

    async def _replace(self, number: LogId, hurt: list[StreamId], fresh: list[pb.StreamInfo]) -> None:
        """From here on the hurt streams have an end, and the fresh ones are part of the log."""
        ends: dict[StreamId, Slot] = {}
        try:
            for stream in hurt:
                ends[stream] = await self._orderer.finalize(number, stream)
            changed = await self._catalog.change_log(number, lambda copy: _put_in(copy, ends, fresh))
        except (Conflict, NoSpace):
            # After any other error the store may have the change: then they must not go on.
            for stream in hurt:
                self._orderer.resume(number, stream)
            raise
        self._orderer.extend(changed)

    def _wanted(self, log: pb.LogInfo, hurt: Iterable[StreamId]) -> int:
        """How many new streams make the log whole again."""
        ended = dict.fromkeys(hurt)
        open_streams = [
            stream
            for stream in log.chain[-1].streams
            if stream.state != pb.STREAM_FINALIZED and StreamId(stream.id) not in ended
        ]
        return max(0, log.streams - len(open_streams))

    async def _open_fresh(self, log: pb.LogInfo, first: int, count: int) -> list[pb.StreamInfo]:
        """New streams on healthy nodes, open on every member, and not yet part of the log."""
        placed = place_streams(count, log.chain[-1].replicas, self._catalog.load_of(self._links.connected()))
        fresh = [pb.StreamInfo(id=first + index, members=members) for index, members in enumerate(placed)]
        await open_replicas(self._links, log, log.chain[-1], fresh)
        return fresh


def _put_in(log: pb.LogInfo, ends: dict[StreamId, Slot], fresh: list[pb.StreamInfo]) -> None:
    segment = log.chain[-1]
    for stream in segment.streams:
        end = ends.get(StreamId(stream.id))
        if end is not None:
            stream.state = pb.STREAM_FINALIZED
            stream.end_slot = end
    segment.streams.extend(fresh)
