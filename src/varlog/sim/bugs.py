"""Planted bugs: the test of the test. Each breaks one rule that the design stands on, by patching production classes.

Production code has no hooks for this. `planted(name)` is a context manager under which a seed is run;
`tests/sim/test_teeth.py` says how many seeds each takes to be caught. A bug is written here the way it
would be written by mistake: small, plausible, and right in fair weather.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from varlog.base.errors import InvalidArgument, OutcomeUnknown
from varlog.base.ids import Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.base.ranges import Binding
from varlog.client.session import Flight, Session
from varlog.client.writer import Carried, StreamWriter
from varlog.core.merge import Merge
from varlog.core.ordering import leader as leader_ordering
from varlog.core.ordering.cut import Cut, LogOrder, StreamOrder
from varlog.core.replica import ReplicaState, Verdict, judge_commit
from varlog.metadata.election import FencedStore, HeldLeadership
from varlog.node import server as node_server
from varlog.node.copier import Copier
from varlog.node.primary import Primary
from varlog.node.replica import Batches, Done, Replica
from varlog.node.replicas import Replicas
from varlog.node.takeback import TakeBack
from varlog.node.verbs import Verbs
from varlog.ports import Transaction
from varlog.repository import opening, service
from varlog.repository.catalog import Catalog
from varlog.repository.gathering import Gatherer
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer, Planned
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.survey import Survey
from varlog.runtime.scope import Scope
from varlog.sim.weather import Weather
from varlog.storage.producers import ProducerTable
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.verify import Verification
from varlog.storage.writer import Writer
from varlog.transport.peer import Peer, Reply, Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


@dataclass(frozen=True, slots=True)
class Bug:
    """What is wrong, in words, and how it is done."""

    description: str
    plant: Callable[[], AbstractContextManager[None]]
    shows: Callable[[Weather], bool]
    """Whether a seed with this weather can show it at all."""


BUGS: dict[str, Bug] = {}


def find(name: str) -> Bug:
    if name not in BUGS:
        raise InvalidArgument(f"there is no planted bug {name!r}; known are {', '.join(sorted(BUGS))}")
    return BUGS[name]


def planted(name: str) -> AbstractContextManager[None]:
    """The named bug, for as long as the context lasts."""
    return find(name).plant()


def _bug(
    description: str, shows: Callable[[Weather], bool] = lambda _: True
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a generator function, named after the bug, as a context manager."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS[plant.__name__] = Bug(description, contextmanager(plant), shows)
        return plant

    return register


@contextmanager
def _swap(owner: Any, **members: Any) -> Iterator[None]:
    """Members of a class or module are others for a while."""
    with ExitStack() as stack:
        for name, other in members.items():
            before = vars(owner)[name]
            setattr(owner, name, other)
            stack.callback(setattr, owner, name, before)
        yield


def _loses_power(weather: Weather, replicas: int) -> bool:
    faults = weather.faults
    return faults.power_loss > 0 and faults.node_crashes + faults.snipes > 0 and weather.shape.replicas >= replicas


def _leaves_last_words(weather: Weather) -> bool:
    """Primaries die, what they sent last arrives late, and their streams are not replaced before they are back."""
    faults, shape = weather.faults, weather.shape
    dies = faults.node_crashes + faults.snipes > 0 and shape.replicas >= 2
    return dies and weather.network.stragglers > 0 and shape.lost_ms >= 300


def _overlapping_cuts_are_cut_off(weather: Weather) -> bool:
    """Several cuts are under way at once, of several streams, and leaders lose the lead."""
    faults, shape = weather.faults, weather.shape
    ends = faults.repository_crashes + faults.failing_commits + faults.snipes + faults.outages > 0
    return ends and shape.shared_store and shape.streams * shape.logs > 1


# ---------------------------------------------------------------- node


@_bug("an append is answered when it is stored and sent to the backups, with the position it will surely get")
def ack_on_replication() -> Iterator[None]:
    synced = Replica._synced

    def synced_and_answer(self: Replica, waiting: list[Any]) -> None:
        synced(self, waiting)
        for callback in self.on_verdict:
            primary = getattr(callback, "__self__", None)
            if isinstance(primary, Primary):
                guess = (self.log.next_glsn or 1) - self.log.committed
                while primary._waiting and primary._waiting[0].end <= self.log.durable:
                    first = primary._waiting.popleft()
                    primary._waiting_bytes -= first.size
                    primary._reply(first, Glsn(first.slot + guess))

    with _swap(Replica, _synced=synced_and_answer):
        yield


@_bug(
    "a backup takes what is pushed to it as the next, whether or not something before it was lost",
    lambda weather: weather.shape.replicas >= 2 and not weather.network.in_order,
)
def pushed_over_a_gap() -> Iterator[None]:
    plain = Replica.store_at_end

    def store_at_end(self: Replica, slot: Slot, batches: Batches, done: Done | None = None) -> bool:
        return plain(self, min(slot, self.log.appended), batches, done)

    with _swap(Replica, store_at_end=store_at_end):
        yield


@_bug("a commit that a primary did not pass on is not sent again", lambda weather: weather.shape.replicas >= 2)
def commits_told_once() -> Iterator[None]:
    with _swap(NodeLinks, _send_missed=lambda self, link, replica, row: None):
        yield


@_bug("a replica reports what it has taken, not what is synced", lambda weather: _loses_power(weather, 1))
def unsynced_tail_reported() -> Iterator[None]:
    add_row = node_server._add_row

    def add_optimistic_row(report: pb.GetReportResponse, replica: Replica) -> None:
        add_row(report, replica)
        report.uncommit_reports[-1].uncommitted_llsn_length = replica.log.appended - replica.log.committed

    def stage_and_tell(self: Replica, slot: Slot, batches: Batches) -> None:
        stage(self, slot, batches)
        self._changed(self)

    stage = Replica._stage
    with _swap(node_server, _add_row=add_optimistic_row), _swap(Replica, _stage=stage_and_tell):
        yield


@_bug("a commit is bound to the next slots, whichever slots it is for")
def commit_out_of_turn() -> Iterator[None]:
    def advance(self: Replica, binding: Binding, high_watermark: int) -> None:
        if self._failure is not None:
            return
        log = self.log
        verdict = judge_commit(log.committed, log.durable, log.next_glsn, binding)
        if verdict is Verdict.MISSED and log.committed + binding.count <= log.durable:
            self._apply(Binding(log.committed, binding.glsn, binding.count), high_watermark)
        else:
            plain(self, binding, high_watermark)

    plain = Replica.advance
    with _swap(Replica, advance=advance):
        yield


@_bug(
    "a primary that was started again does not ask its backups what it had sent them",
    lambda weather: weather.faults.node_crashes + weather.faults.snipes > 0 and weather.shape.replicas >= 2,
)
def primary_asks_nobody() -> Iterator[None]:
    async def run(self: TakeBack) -> None:
        return

    def judge(self: Copier, reply: Reply) -> Slot:
        status = reply.message
        assert isinstance(status, pb.ReplicaStatus)
        return Slot(status.contiguous)

    with _swap(TakeBack, run=run), _swap(Copier, _judge=judge):
        yield


@_bug("a backup takes what was on its way from an earlier life of its primary", _leaves_last_words)
def older_writer_taken() -> Iterator[None]:
    with _swap(Verbs, _shut_out=lambda self, replica, writer: None):
        yield


@_bug(
    "what producers have sent is forgotten when a node starts again",
    lambda weather: weather.faults.node_crashes + weather.faults.snipes > 0,
)
def producers_forgotten() -> Iterator[None]:
    plain = ReplicaLog.__init__

    def forgetful(self: ReplicaLog, *arguments: Any) -> None:
        plain(self, *arguments)
        self.producers = ProducerTable()

    with _swap(ReplicaLog, __init__=forgetful):
        yield


@_bug("bindings are reported as bound on disk before they are", lambda weather: _loses_power(weather, 1))
def binding_reported_early() -> Iterator[None]:
    add_row = node_server._add_row

    def add_hasty_row(report: pb.GetReportResponse, replica: Replica) -> None:
        add_row(report, replica)
        report.uncommit_reports[-1].bound_llsn_offset = replica.log.committed + 1

    with _swap(node_server, _add_row=add_hasty_row):
        yield


# ---------------------------------------------------------------- repository


@_bug(
    "a member that has not reported does not hold its stream back",
    lambda weather: weather.shape.replicas > 1,
)
def missing_report_ignored() -> Iterator[None]:
    def ready_end(self: StreamOrder) -> Slot:
        if self.stopped or not self.tails:
            return self.committed
        return max(self.committed, min(self.tails.values()))

    with _swap(StreamOrder, ready_end=ready_end):
        yield


@_bug("a cut is announced while it is being persisted")
def cut_announced_early() -> Iterator[None]:
    plain = Orderer._persist

    async def announce_and_persist(self: Orderer, planned: Planned) -> None:
        self._announce([cut for _, cut in planned.cuts])
        await plain(self, planned)

    with _swap(Orderer, _persist=announce_and_persist):
        yield


@_bug("a cut is announced though one before it is still being persisted", _overlapping_cuts_are_cut_off)
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

    with _swap(Orderer, _persist=remember, _commit=commit_and_announce):
        yield


@_bug(
    "a cut whose transaction was not answered is taken to be persisted",
    lambda weather: weather.shape.shared_store and weather.shape.streams > 1 and weather.faults.outages > 0,
)
def unanswered_cut_announced() -> Iterator[None]:
    plain = Orderer._commit

    async def commit(self: Orderer, transaction: Transaction) -> None:
        try:
            await plain(self, transaction)
        except OutcomeUnknown:
            return

    with _swap(Orderer, _commit=commit):
        yield


@_bug("a leader takes over every cut it finds, also one without the one before it", _overlapping_cuts_are_cut_off)
def stray_cut_taken() -> Iterator[None]:
    def is_stray(self: LogOrder, cut: Cut) -> bool:
        return False

    with _swap(LogOrder, is_stray=is_stray):
        yield


@_bug(
    "a repository that no longer leads goes on writing",
    lambda weather: weather.shape.repositories > 1,
)
def deposed_leader_writes() -> Iterator[None]:
    async def commit(self: FencedStore, transaction: Transaction) -> bool:
        return await self._store.commit(transaction)

    async def never(self: HeldLeadership) -> None:
        await asyncio.get_running_loop().create_future()

    with _swap(FencedStore, commit=commit), _swap(HeldLeadership, wait_lost=never):
        yield


@_bug(
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

    with _swap(Gatherer, _joined=joined):
        yield


@_bug("the history of cuts is dropped once one member has it on disk")
def history_dropped_early() -> Iterator[None]:
    def bound_end(self: StreamOrder) -> Slot:
        return max(self.bound.values(), default=Slot(0))

    with _swap(StreamOrder, bound_end=bound_end):
        yield


@_bug(
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

    with _swap(service, all_or_first_error=nobody_waits):
        yield


@_bug("the tail is answered from a copy that is refreshed now and then", lambda weather: weather.shape.tails > 0)
def stale_tail() -> Iterator[None]:
    copies: dict[tuple[service.Service, int], tuple[float, int]] = {}

    def tail(self: service.Service, request: Request) -> None:
        now = self._world.clock.now()
        log = request.message.log
        copied = copies.get((self, log))
        if copied is None or now - copied[0] > 1.0:
            copied = copies[self, log] = (now, self._orderer.order(log).high_watermark)
        request.reply(pb.TailReply(tail=copied[1], trimmed=self._catalog.log(log).trimmed))

    with _swap(service.Service, tail=tail):
        yield


@_bug("a log's end is recorded without waiting for the cut that is being made", lambda weather: weather.shape.seals)
def end_before_the_last_cut() -> Iterator[None]:
    async def finalize(self: Orderer, log: LogId, stream: StreamId) -> Slot:
        return self.order(log).finalize(stream)

    with _swap(Orderer, finalize=finalize):
        yield


@_bug(
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

    with _swap(Catalog, register=register):
        yield


@_bug(
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

    with _swap(Rebuilder, _advance=advance), _swap(Survey, _lacks=lambda self, node, name: False):
        yield


@_bug(
    "the files of a copy are never synced, but for the last",
    lambda weather: weather.shape.rebuilds and weather.shape.file_bytes < 1 << 20 and weather.shape.payload_bytes > 100,
)
def copy_not_synced() -> Iterator[None]:
    async def settle(self: Writer) -> None:
        self._unsettled = False

    with _swap(Writer, _settle=settle):
        yield


def _rots(weather: Weather) -> bool:
    return weather.faults.cold_rot > 0


@_bug("a scrub passes over what does not match its checksum", _rots)
def rot_passed_over() -> Iterator[None]:
    with _swap(Verification, _suspect=lambda self, slot, what: None):
        yield


# ---------------------------------------------------------------- client


@_bug("an append that was not answered is sent again under a new identity")
def retry_with_new_identity() -> Iterator[None]:
    plain = StreamWriter._transmit

    def transmit(self: StreamWriter, peer: Peer, session: Session[Carried], flight: Flight[Carried]) -> None:
        if flight.unknown:
            flight.batch.stamp(self._world.random.randbytes(16), 0)
        plain(self, peer, session, flight)

    with _swap(StreamWriter, _transmit=transmit):
        yield


@_bug(
    "the merge goes on with what is there when a stream is late",
    lambda weather: weather.shape.streams > 1 and weather.shape.subscribers > 0,
)
def merge_does_not_wait() -> Iterator[None]:
    plain = Merge.take

    def take(self: Merge[Any]) -> list[Any]:
        if self._fronts and self.next not in self._fronts and len(self._fronts) < len(self._queues):
            self.next = Glsn(min(self._fronts))
        return plain(self)

    with _swap(Merge, take=take):
        yield


# ---------------------------------------------------------------- the leader


def _is_led(weather: Weather) -> bool:
    """Whether a leader has others beside it, so that there is a quorum to get wrong."""
    return weather.shape.ordering == "leader" and weather.shape.replicas > 1


@_bug("a leader answers when its own disk has an entry", _is_led)
def leader_acks_alone() -> Iterator[None]:
    def committed(tails: Iterable[Slot], ack: int) -> Slot:
        return max(tails)

    with _swap(leader_ordering, committed=committed):
        yield


@_bug("a segment ends by the word of one member, however many there are", _is_led)
def seal_quorum_too_small() -> Iterator[None]:
    def seal_quorum(members: int, ack: int) -> int:
        return 1

    def end_of(tails: Sequence[Slot], members: int, ack: int) -> Slot:
        return max(tails)

    with _swap(leader_ordering, seal_quorum=seal_quorum, end_of=end_of):
        yield


@_bug("what silent members may have is not counted when a segment ends", _is_led)
def silent_members_have_nothing() -> Iterator[None]:
    def end_of(tails: Sequence[Slot], members: int, ack: int) -> Slot:
        return leader_ordering.committed(tails, ack)

    with _swap(leader_ordering, end_of=end_of):
        yield


@_bug("a leader that was started again goes on with its segment", _is_led)
def restarted_leader_goes_on() -> Iterator[None]:
    plain = Replicas._take_role

    def take_role(self: Replicas, replica: Replica, scope: Scope, *, new: bool) -> None:
        plain(self, replica, scope, new=new or replica.spec.ordering == "leader")

    with _swap(Replicas, _take_role=take_role):
        yield


@_bug("a seal is answered before what was taken earlier is durable", _is_led)
def seal_overtakes_stores() -> Iterator[None]:
    async def seal(self: Replica) -> None:
        if self.state is ReplicaState.OPEN:
            self.log.stage_seal()
            self._want_sync()

    with _swap(Replica, seal=seal):
        yield


@_bug("a member is finished without what it lacks before the end", _is_led)
def finished_without_settling() -> Iterator[None]:
    async def settle(self: Replicas, replica: Replica, base: Glsn, end: Slot, sources: Sequence[int]) -> None:
        replica.release(base, end)

    plain = Replica.finish

    async def finish(self: Replica, end: Slot) -> None:
        await plain(self, min(end, self.log.durable))

    with _swap(Replicas, settle=settle), _swap(Replica, finish=finish):
        yield
