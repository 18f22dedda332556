"""Bugs in storage nodes."""

from collections.abc import Iterator
from typing import Any

from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.core.replica import Verdict, judge_commit
from varlog.node import server as node_server
from varlog.node.copier import Copier
from varlog.node.primary import Primary
from varlog.node.replica import Batches, Done, Replica
from varlog.node.takeback import TakeBack
from varlog.repository.links import NodeLinks
from varlog.sim.bugs.registry import bug, loses_power, swap, under_cut
from varlog.storage.producers import ProducerTable
from varlog.storage.replica_log import ReplicaLog
from varlog.transport.peer import Reply
from varlog.wire.proto import varlog_pb2 as pb


@bug("an append is answered when it is stored and sent to the backups, with the position it will surely get")
def ack_on_replication() -> Iterator[None]:
    synced = Replica._synced

    def synced_and_answer(self: Replica, count: int) -> None:
        synced(self, count)
        for callback in self.on_verdict:
            primary = getattr(callback, "__self__", None)
            if isinstance(primary, Primary):
                guess = (self.log.next_glsn or 1) - self.log.committed
                while primary._waiting and primary._waiting[0].end <= self.log.durable:
                    first = primary._waiting.popleft()
                    primary._waiting_bytes -= first.size
                    primary._reply(first, Glsn(first.slot + guess))

    with swap(Replica, _synced=synced_and_answer):
        yield


@bug(
    "a backup takes what is pushed to it as the next, whether or not something before it was lost",
    under_cut(lambda weather: weather.shape.replicas >= 2 and not weather.network.in_order),
)
def pushed_over_a_gap() -> Iterator[None]:
    plain = Replica.store_at_end

    def store_at_end(self: Replica, slot: Slot, batches: Batches, done: Done | None = None) -> bool:
        return plain(self, min(slot, self.log.appended), batches, done)

    with swap(Replica, store_at_end=store_at_end):
        yield


@bug(
    "a commit that a primary did not pass on is not sent again", under_cut(lambda weather: weather.shape.replicas >= 2)
)
def commits_told_once() -> Iterator[None]:
    with swap(NodeLinks, _send_missed=lambda self, link, replica, row: None):
        yield


@bug("a replica reports what it has taken, not what is synced", under_cut(lambda weather: loses_power(weather, 1)))
def unsynced_tail_reported() -> Iterator[None]:
    add_row = node_server._add_row

    def add_optimistic_row(report: pb.GetReportResponse, replica: Replica) -> None:
        add_row(report, replica)
        report.uncommit_reports[-1].uncommitted_llsn_length = replica.log.appended - replica.log.committed

    def stage_and_tell(self: Replica, slot: Slot, batches: Batches) -> None:
        stage(self, slot, batches)
        self._changed(self)

    stage = Replica._stage
    with swap(node_server, _add_row=add_optimistic_row), swap(Replica, _stage=stage_and_tell):
        yield


@bug("a commit is bound to the next slots, whichever slots it is for", under_cut())
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
    with swap(Replica, advance=advance):
        yield


@bug(
    "a primary that was started again does not ask its backups what it had sent them",
    under_cut(lambda weather: weather.faults.node_crashes + weather.faults.snipes > 0 and weather.shape.replicas >= 2),
)
def primary_asks_nobody() -> Iterator[None]:
    async def run(self: TakeBack) -> None:
        return

    def judge(self: Copier, reply: Reply) -> Slot:
        status = reply.message
        assert isinstance(status, pb.ReplicaStatus)
        return Slot(status.contiguous)

    with swap(TakeBack, run=run), swap(Copier, _judge=judge):
        yield


@bug(
    "what producers have sent is forgotten when a node starts again",
    lambda weather: weather.faults.node_crashes + weather.faults.snipes > 0,
)
def producers_forgotten() -> Iterator[None]:
    plain = ReplicaLog.__init__

    def forgetful(self: ReplicaLog, *arguments: Any) -> None:
        plain(self, *arguments)
        self.producers = ProducerTable()

    with swap(ReplicaLog, __init__=forgetful):
        yield


@bug("bindings are reported as bound on disk before they are", under_cut(lambda weather: loses_power(weather, 1)))
def binding_reported_early() -> Iterator[None]:
    add_row = node_server._add_row

    def add_hasty_row(report: pb.GetReportResponse, replica: Replica) -> None:
        add_row(report, replica)
        report.uncommit_reports[-1].bound_llsn_offset = replica.log.committed + 1

    with swap(node_server, _add_row=add_hasty_row):
        yield
