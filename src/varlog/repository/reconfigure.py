"""Reconfigure: the one act behind every change of a log (design: *Reconfigure*).

    replace        some streams end, others take their place, inside the segment      a lost or draining node,
                                                                                       more or fewer streams
    next_segment   the segment ends, the next begins where it ended                    other members, replication,
                                                                                       ordering; a roll
    seal           the segment ends, and the log with it                               for good

Each goes the same way: what comes next is opened on all its members first; then what ends gets no more
positions; then one change of the log's record says where it ended and what follows. That change is the moment:
before it nobody is told of anything, after it nothing can be taken back. Members learn of their end by being
compared with the record (`links`), however often they or we are restarted.

Whoever calls has his turn at the log (`changes`), so there is one at a time; against another repository the
record itself is the judge, as every write of one that no longer leads is refused.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from varlog.base.errors import Unavailable
from varlog.base.ids import LogId, NodeId, StreamId
from varlog.core.ordering.leader import BROADCAST
from varlog.core.placement import Candidate, place_streams
from varlog.core.policy import all_acknowledge
from varlog.ports import Clock
from varlog.repository.catalog import REFUSED, Catalog
from varlog.repository.links import NodeLinks
from varlog.repository.opening import candidates, open_replicas
from varlog.repository.orderer import Orderer
from varlog.repository.sealing import StreamEnd, refuse_unsealable, seal_members
from varlog.wire.proto import varlog_pb2 as pb


@dataclass(frozen=True, slots=True)
class Settings:
    """What a segment is made of."""

    ordering: str
    replicas: int
    ack: int
    """Where all members acknowledge, the fewest there may be."""
    streams: int
    unit: int = 0
    """Under `sequencer`: positions that go to one stream before the next has its turn."""
    replication: str = BROADCAST
    """Under `leader`: who stores at the members."""
    journal: bool = False
    """Under `leader`: it is a client that leads."""


Change = Callable[[pb.LogInfo, dict[StreamId, StreamEnd], int], None]
"""Works on a copy of a log's record, given where the streams end, and one past the last position of the log."""
Note = Callable[[pb.LogInfo], None]
"""What else is to be in the record from the same moment on, or not at all."""


def nothing(_: pb.LogInfo) -> None:
    """No note."""


class Reconfigurer:
    """Ends and begins streams and segments."""

    def __init__(self, clock: Clock, catalog: Catalog, orderer: Orderer, links: NodeLinks) -> None:
        self._clock = clock
        self._catalog = catalog
        self._orderer = orderer
        self._links = links

    async def replace(
        self, number: LogId, ending: list[StreamId], count: int, *, members: int = 0, also: Note = nothing
    ) -> None:
        """End some streams of the last segment, and add others to it; with so many `members`, if that is given."""
        log = self._catalog.log(number)
        segment = log.chain[-1]
        there = members or segment.replicas
        async with self._opened(log, segment, count, there, self._candidates(), ending) as fresh:
            for new in fresh:
                new.from_glsn = self._orderer.order(number).high_watermark + 1

            def change(changed: pb.LogInfo, ends: dict[StreamId, StreamEnd], until: int) -> None:
                _end_streams(changed.chain[-1], ends, until)
                changed.chain[-1].streams.extend(fresh)
                also(changed)

            await self._end(number, ending, change)

    async def next_segment(
        self,
        number: LogId,
        wanted: Settings,
        nodes: Collection[NodeId] = (),
        *,
        members: int = 0,
        stay: bool = False,
        leader: pb.JournalLeader | None = None,
        also: Note = nothing,
    ) -> None:
        """End the last segment, and go on with another; on some of the `nodes`, if any are given.

        With `members`, this segment has so many, though more replicas are wanted. With `stay`, if there are too few
        nodes for it, it may stay on those that drain and have it. `leader`, of a journal, is who leads it from here
        on, one without an id being nobody; else the same goes on. What is no journal any more no client leads.
        """
        log = self._catalog.log(number)
        refuse_unsealable(self._links, log)
        there = members or wanted.replicas
        segment = pb.SegmentInfo(
            epoch=log.chain[-1].epoch + 1,
            ordering=wanted.ordering,
            replicas=wanted.replicas,
            ack=there if all_acknowledge(wanted.ordering, wanted.replication) else wanted.ack,
            unit=wanted.unit,
            replication=wanted.replication,
            journal=wanted.journal,
        )
        leads = leader if leader is not None else log.chain[-1].leader
        if leads.id and wanted.journal:
            segment.leader.CopyFrom(leads)
        free = self._candidates(nodes, number)
        free = staying(free, log, there) if stay else free
        ending = open_streams(log)
        async with self._opened(log, segment, wanted.streams, there, free, ending) as fresh:

            def change(changed: pb.LogInfo, ends: dict[StreamId, StreamEnd], until: int) -> None:
                _end_segment(changed.chain[-1], ends, until)
                segment.base = until
                segment.created_us = self._clock.wall_us()  # nothing that is in the one before it was sent later
                for new in fresh:
                    new.from_glsn = until
                segment.streams.extend(fresh)
                changed.chain.append(segment)
                changed.ordering, changed.replicas, changed.ack = wanted.ordering, wanted.replicas, wanted.ack
                changed.streams, changed.unit = wanted.streams, wanted.unit
                changed.replication, changed.journal = wanted.replication, wanted.journal
                also(changed)

            await self._end(number, ending, change)

    async def seal(self, number: LogId) -> pb.LogInfo:
        """The log ends here, for good."""

        def change(changed: pb.LogInfo, ends: dict[StreamId, StreamEnd], until: int) -> None:
            _end_segment(changed.chain[-1], ends, until)
            changed.sealed = True

        await self._end(number, open_streams(self._catalog.log(number)), change)
        return self._catalog.log(number)

    # ------------------------------------------------------------ the steps

    def _candidates(self, nodes: Collection[NodeId] = (), ending: LogId | None = None) -> dict[NodeId, Candidate]:
        """Those that are connected; of the given ones all must be. `ending`: a log whose open streams all end."""
        free = candidates(self._catalog, self._links, ending)
        away = [str(node) for node in nodes if node not in free]
        if away:
            raise Unavailable(f"node {', '.join(away)} is not connected; `varlog node ls` lists those that are")
        return {node: candidate for node, candidate in free.items() if not nodes or node in nodes}

    @asynccontextmanager
    async def _opened(
        self,
        log: pb.LogInfo,
        segment: pb.SegmentInfo,
        count: int,
        members: int,
        free: dict[NodeId, Candidate],
        ending: list[StreamId],
    ) -> AsyncIterator[list[pb.StreamInfo]]:
        """New streams in the place of others, open on all their members; nobody drops them as long as it is not
        decided what they are. `free` is what there is to choose from in this very moment."""
        number = LogId(log.id)
        granting = segment.ordering == "sequencer"
        placed = place_streams(count, members, free, granting=granting)
        with self._catalog.coming.counted(number, placed, ending, journal=segment.journal, granting=granting):
            first = await self._catalog.reserve_streams(number, count)
            opening = dict.fromkeys((number, StreamId(first + index)) for index in range(count))
            self._links.opening.update(opening)
            try:
                fresh = [pb.StreamInfo(id=first + index, members=members) for index, members in enumerate(placed)]
                await open_replicas(self._links, log, segment, fresh)
                yield fresh
            finally:
                for key in opening:
                    del self._links.opening[key]
        self._links.mend_all(number)

    async def _end(self, number: LogId, ending: list[StreamId], change: Change) -> None:
        """From here on the old streams have an end, and what comes next is part of the log."""
        if self._catalog.log(number).chain[-1].ordering == "cut":
            await self._end_by_cut(number, ending, change)
        else:
            ends, until = await seal_members(self._links, self._clock, self._catalog.log(number))
            changed = await self._catalog.change_log(number, lambda log: change(log, ends, until))
            self._orderer.extend(changed)
        self._links.mend_all(number)
        self._links.begin_to_lead(number)

    async def _end_by_cut(self, number: LogId, ending: list[StreamId], change: Change) -> None:
        """The end is the last cut."""
        order = self._orderer.order(number)
        ends: dict[StreamId, StreamEnd] = {}
        try:
            for stream in ending:
                ends[stream] = StreamEnd(await self._orderer.finalize(number, stream))
            until = order.high_watermark + 1
            changed = await self._catalog.change_log(number, lambda log: change(log, ends, until))
        except REFUSED:
            # After any other error the store may have the change: then they must not go on.
            for stream in ending:
                self._orderer.resume(number, stream)
            raise
        self._orderer.extend(changed)


def staying(free: dict[NodeId, Candidate], log: pb.LogInfo, wanted: int) -> dict[NodeId, Candidate]:
    """The candidates; where too few of them are fit, those that drain and are members of the last segment count, too.

    Under `cut` a stream whose node drains simply goes on. One whose leader was started again cannot.
    """
    if log.chain[-1].ordering == "cut" or sum(not node.unfit for node in free.values()) >= wanted:
        return free
    there = [node for stream in log.chain[-1].streams for node in stream.members]
    return {node: replace(each, draining=each.draining and node not in there) for node, each in free.items()}


def settings_of(log: pb.LogInfo) -> Settings:
    """What the next segment of a log is made of, if nobody says otherwise."""
    replication = log.replication or BROADCAST
    return Settings(
        log.ordering, log.replicas, log.ack or log.replicas, log.streams, log.unit, replication, log.journal
    )


def open_streams(log: pb.LogInfo) -> list[StreamId]:
    """Those that take appends."""
    if log.sealed or log.removing:
        return []
    return [StreamId(stream.id) for stream in log.chain[-1].streams if stream.state != pb.STREAM_FINALIZED]


def _end_streams(segment: pb.SegmentInfo, ends: dict[StreamId, StreamEnd], until: int) -> None:
    for stream in segment.streams:
        end = ends.get(StreamId(stream.id))
        if end is not None:
            stream.state = pb.STREAM_FINALIZED
            stream.end_slot = end.slot
            if end.junk is not None:
                stream.junk_slot = end.junk
            stream.held_by.extend(end.held_by)
            stream.until_glsn = until


def _end_segment(segment: pb.SegmentInfo, ends: dict[StreamId, StreamEnd], until: int) -> None:
    _end_streams(segment, ends, until)
    segment.state = pb.SEGMENT_SEALED
    segment.end = until
