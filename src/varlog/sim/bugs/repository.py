"""Bugs in the repository: cuts, ends, trims, copies."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from varlog.base.errors import OutcomeUnknown
from varlog.base.ids import LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.cut import Cut, LogOrder, StreamOrder
from varlog.core.ordering.leader import default_ack
from varlog.core.retention import Marks
from varlog.metadata.election import FencedStore, HeldLeadership
from varlog.ports import Transaction
from varlog.repository import opening, retention, service
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.gathering import Gatherer
from varlog.repository.orderer import Orderer, Planned
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.retention import Retention
from varlog.sim.bugs.registry import bug, overlapping_cuts_are_cut_off, swap, under_cut
from varlog.sim.weather import Weather
from varlog.storage.verify import Verification
from varlog.storage.writer import Writer
from varlog.transport.peer import Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def _members_are_awaited(weather: Weather) -> bool:
    """By a repository that knows nothing yet. A log that may go on with fewer copies leaves a stream that was hurt
    behind, before it is seen to be."""
    shape, faults = weather.shape, weather.faults
    all_count = shape.replicas > 1 and (shape.ack or default_ack(shape.replicas)) == shape.replicas
    return all_count and bool(faults.repository_crashes and faults.node_crashes)


@bug("a member that has not reported does not hold its stream back", under_cut(_members_are_awaited))
def missing_report_ignored() -> Iterator[None]:
    def ready_end(self: StreamOrder) -> Slot:
        if self.stopped or self.finalized or not self.tails:
            return self.committed
        return max(self.committed, min(self.tails.values()))

    with swap(StreamOrder, ready_end=ready_end):
        yield


@bug("a cut is announced while it is being persisted", under_cut())
def cut_announced_early() -> Iterator[None]:
    plain = Orderer._persist

    async def announce_and_persist(self: Orderer, planned: Planned) -> None:
        self._announce([cut for _, cut in planned.cuts])
        await plain(self, planned)

    with swap(Orderer, _persist=announce_and_persist):
        yield


@bug("a cut is announced though one before it is still being persisted", under_cut(overlapping_cuts_are_cut_off))
def cut_announced_out_of_turn() -> Iterator[None]:
    plain = Orderer._commit
    planned: list[tuple[Transaction, list[Cut]]] = []
    persist = Orderer._persist

    async def remember(self: Orderer, new: Planned) -> None:
        planned.append((new.transaction, [cut for _, cut in new.cuts]))
        await persist(self, new)

    async def commit_and_announce(self: Orderer, transaction: Transaction) -> None:
        await plain(self, transaction)
        for index, (mine, cuts) in enumerate(planned):
            if mine is transaction:
                del planned[index]
                self._announce(cuts)
                return

    with swap(Orderer, _persist=remember, _commit=commit_and_announce):
        yield


@bug(
    "a cut whose transaction was not answered is taken to be persisted",
    under_cut(lambda weather: weather.shape.shared_store and weather.shape.streams > 1 and weather.faults.outages > 0),
)
def unanswered_cut_announced() -> Iterator[None]:
    plain = Orderer._commit

    async def commit(self: Orderer, transaction: Transaction) -> None:
        try:
            await plain(self, transaction)
        except OutcomeUnknown:
            return

    with swap(Orderer, _commit=commit):
        yield


@bug(
    "a leader takes over every cut it finds, also one without the one before it",
    under_cut(overlapping_cuts_are_cut_off),
)
def stray_cut_taken() -> Iterator[None]:
    def is_stray(self: LogOrder, cut: Cut) -> bool:
        return False

    with swap(LogOrder, is_stray=is_stray):
        yield


@bug(
    "a repository that no longer leads goes on writing",
    lambda weather: weather.shape.repositories > 1,
)
def deposed_leader_writes() -> Iterator[None]:
    async def commit(self: FencedStore, transaction: Transaction) -> bool:
        return await self._store.commit(transaction)

    async def never(self: HeldLeadership) -> None:
        await asyncio.get_running_loop().create_future()

    with swap(FencedStore, commit=commit), swap(HeldLeadership, wait_lost=never):
        yield


@bug(
    "a follower numbers the reports it forwards by its own clock, so that old ones look new",
    lambda weather: weather.shape.repositories > 1,
)
def forwarded_as_new() -> Iterator[None]:
    plain = Gatherer._joined

    def joined(self: Gatherer) -> pb.ForwardedReports:
        message = plain(self)
        for report in message.reports:
            report.sequence = int(self._world.clock.now() * 1000)
        return message

    with swap(Gatherer, _joined=joined):
        yield


@bug("the history of cuts is dropped before any member has it on disk", under_cut())
def history_dropped_early() -> Iterator[None]:
    def bound_end(self: StreamOrder) -> Slot:
        return self.committed

    with swap(StreamOrder, bound_end=bound_end):
        yield


@bug(
    "a trim is answered when it is recorded, before the members have it",
    lambda weather: weather.shape.trims > 0,
)
def trim_answered_early() -> Iterator[None]:
    plain = opening.all_or_first_error

    async def nobody_waits(calls: list[Coroutine[Any, Any, None]], what: str) -> None:
        if not what.startswith("the trim point"):
            await plain(calls, what)
            return
        for call in calls:
            task = asyncio.get_running_loop().create_task(call)
            task.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    with swap(service, all_or_first_error=nobody_waits):
        yield


@bug("what a log need not keep is trimmed before it is archived", lambda weather: weather.shape.retain_archived)
def archive_ignored() -> Iterator[None]:
    with swap(retention, _free=lambda log: retention.MOST):
        yield


@bug(
    "once anything is too old, all that is there goes",
    lambda weather: weather.shape.retain_seconds > 4 and weather.shape.chaos_seconds > 5 and weather.worst_clock < 0.01,
)
def trimmed_beyond_the_point() -> Iterator[None]:
    plain = Retention._older_in

    async def older_in(self: Retention, log: pb.LogInfo, segment: pb.SegmentInfo, oldest_us: int) -> int:
        point = await plain(self, log, segment, oldest_us)
        return self._positions.tail(log) if point > log.trimmed else point

    with swap(Retention, _older_in=older_in):
        yield


@bug(
    "of what is too much only the last bytes are kept",
    lambda weather: weather.shape.retain_bytes > 0 and weather.shape.payload_bytes > 100 and not weather.shape.trims,
)
def too_little_kept() -> Iterator[None]:
    plain = Retention._marks

    async def marks(self: Retention, log: pb.LogInfo, segment: pb.SegmentInfo) -> list[Marks]:
        return [[(glsn, size << 32) for glsn, size in each] for each in await plain(self, log, segment)]

    with swap(Retention, _marks=marks):
        yield


@bug("whoever archives has the last word, whatever was archived meanwhile", lambda weather: weather.shape.archivers > 1)
def archive_recorded_blindly() -> Iterator[None]:
    def record_archive(log: pb.LogInfo, request: pb.RecordArchiveRequest) -> None:
        log.archive.CopyFrom(request.archive)
        log.archived = request.archived

    with swap(service, record_archive=record_archive):
        yield


@bug("the tail is answered from a copy that is refreshed now and then", lambda weather: weather.shape.tails > 0)
def stale_tail() -> Iterator[None]:
    copies: dict[tuple[service.Service, int], tuple[float, int]] = {}

    def tail(self: service.Service, request: Request) -> None:
        now = self._world.clock.now()
        log = request.message.log
        copied = copies.get((self, log))
        if copied is None or now - copied[0] > 1.0:
            copied = copies[self, log] = (now, self._orderer.order(log).high_watermark)
        known = self._catalog.log(log)
        request.reply(pb.TailReply(tail=copied[1], trimmed=known.trimmed, segment=known.chain[-1].epoch))

    with swap(service.Service, tail=tail):
        yield


@bug(
    "a log's end is recorded without waiting for the cut that is being made",
    under_cut(lambda weather: weather.shape.seals),
)
def end_before_the_last_cut() -> Iterator[None]:
    async def finalize(self: Orderer, log: LogId, stream: StreamId) -> Slot:
        return self.order(log).finalize(stream)

    with swap(Orderer, finalize=finalize):
        yield


@bug(
    "a node that registers again is taken for one that does not drain",
    lambda weather: weather.shape.drains and weather.shape.nodes > weather.shape.replicas,
)
def drain_forgotten() -> Iterator[None]:
    plain = Catalog.register

    async def register(self: Catalog, request: pb.RegisterRequest) -> pb.NodeInfo:
        for node in self.nodes.values():
            if node.incarnation == request.incarnation:
                node.draining = False
        return await plain(self, request)

    with swap(Catalog, register=register):
        yield


@bug(
    "a node is a member as soon as it has begun to copy, and nobody looks whether it has anything",
    lambda weather: weather.shape.rebuilds and weather.shape.nodes > weather.shape.replicas > 1,
)
def half_copy_counts() -> Iterator[None]:
    async def advance(self: Rebuilder, name: ReplicaId, stream: pb.StreamInfo) -> bool:
        sources = [node for node in self._survey.sources(name, stream) if node != stream.copy.replaces]
        if sources:
            await self._links.ask(NodeId(stream.copy.node), Method.COPY, self._request(name, stream, sources))
            trimmed = self._catalog.log(name.log).trimmed
            await self._swap_in(name, stream, pb.ReplicaStatus(trimmed_glsn=trimmed))
        return False

    with swap(Rebuilder, _advance=advance), swap(Absences, lacks=lambda self, node, replica: False):
        yield


@bug(
    "the files of a copy are never synced, but for the last",
    lambda weather: weather.shape.rebuilds and weather.shape.file_bytes < 1 << 20 and weather.shape.payload_bytes > 100,
)
def copy_not_synced() -> Iterator[None]:
    async def settle(self: Writer) -> None:
        self._unsettled = False

    with swap(Writer, _settle=settle):
        yield


def _rots(weather: Weather) -> bool:
    return weather.faults.cold_rot > 0


@bug("a scrub passes over what does not match its checksum", _rots)
def rot_passed_over() -> Iterator[None]:
    with swap(Verification, _suspect=lambda self, slot, what: None):
        yield
