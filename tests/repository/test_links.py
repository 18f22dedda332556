"""Reports of replicas that lack nothing are counted and left; whatever is unusual about one is put right."""

import asyncio
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from varlog.base.errors import Timeout
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.core.ordering.cut import Cut
from varlog.ports import MetadataStore
from varlog.repository import links as links_module
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLink, NodeLinks
from varlog.repository.orderer import Orderer
from varlog.runtime.clock import RealClock
from varlog.runtime.scope import Scope
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def record(*, trimmed: int = 0, ended: bool = False) -> pb.LogInfo:
    state = pb.STREAM_FINALIZED if ended else pb.STREAM_WRITABLE
    stream = pb.StreamInfo(id=1, members=[1, 2], state=state)
    segment = pb.SegmentInfo(epoch=1, ordering="cut", base=1, streams=[stream])
    return pb.LogInfo(id=1, name="log", chain=[segment], trimmed=trimmed, next_stream=2)


class Node:
    """The connection of one, and what was asked of it."""

    def __init__(self) -> None:
        self.context: object = None
        self.asked: list[Method] = []
        self.silent = 0
        """So many times it does not answer."""

    def on_close(self, _: object) -> None:
        pass

    def notify(self, method: Method, _: object) -> None:
        self.asked.append(method)

    async def call(self, method: Method, _: object, *, timeout: float) -> None:
        self.asked.append(method)
        if self.silent:
            self.silent -= 1
            raise Timeout("it takes long")


class Links(NodeLinks):
    """Counts how often a report is compared with what should be."""

    compared = 0

    def _compare(self, link: NodeLink, replica: ReplicaId, row: pb.LogStreamUncommitReport) -> None:
        self.compared += 1
        super()._compare(link, replica, row)


class Stage:
    def __init__(self) -> None:
        self.catalog = SimpleNamespace(logs={1: record()}, gone={}, directory_version=0, log=lambda _: record())
        self.orderer = Orderer(cast(MetadataStore, None), RealClock(), lambda _: None)
        self.orderer.add(self.catalog.logs[1])
        self.links = Links(RealClock(), Scope(), cast(Catalog, self.catalog), self.orderer, 3.0)
        self.nodes = {number: Node() for number in (1, 2)}
        for number, node in self.nodes.items():
            self.links.register(NodeId(number), cast(Peer, node), 1)
        self.sequence = 0

    async def report(self, node: int, tail: int, committed: int = 0, **fields: Any) -> None:
        self.sequence += 1
        row = pb.LogStreamUncommitReport(
            log_id=1,
            segment=1,
            log_stream_id=1,
            uncommitted_llsn_offset=committed + 1,
            uncommitted_llsn_length=tail - committed,
            bound_llsn_offset=1,
            state=fields.pop("state", pb.REPLICA_OPEN),
            **fields,
        )
        report = pb.GetReportResponse(storage_node_id=node, boot=1, sequence=self.sequence, uncommit_reports=[row])
        self.links.report(cast(Peer, self.nodes[node]), report)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_what_is_usual_is_counted_and_not_compared_again() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.report(1, 1)
        assert stage.links.compared == 1
        for tail in (2, 3, 4):
            await stage.report(1, tail)
            await stage.report(2, tail)
        assert stage.links.compared == 2
        cut = stage.orderer.order(LogId(1)).next_cut()
        assert cut is not None
        assert cut.high_watermark == 4
        assert (stage.nodes[1].asked, stage.nodes[2].asked) == ([], [])

    asyncio.run(main())


def test_a_change_of_the_record_and_of_the_replica_are_noticed_at_the_next_report() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.report(1, 1)
        stage.catalog.logs[1] = record(trimmed=1)
        await stage.report(1, 1)
        assert stage.nodes[1].asked == [Method.TRIM]
        await stage.report(1, 1)
        assert stage.nodes[1].asked == [Method.TRIM] * 2, "it is asked until it has done it"
        await stage.report(1, 1, trimmed_glsn=1)
        compared = stage.links.compared
        await stage.report(1, 1, trimmed_glsn=1)
        assert stage.links.compared == compared
        await stage.report(1, 1, trimmed_glsn=1, state=pb.REPLICA_SEALED)
        await stage.report(1, 1, trimmed_glsn=1, leads=pb.LEADS_WAITING)
        assert stage.links.compared == compared + 2
        assert stage.nodes[1].asked[2:] == [Method.LEAD]

    asyncio.run(main())


def test_who_lacks_something_asks_those_first_that_have_everything_and_last_those_that_are_away() -> None:
    """A leader that was lost is named first in the record, and may take all the time that there is to ask."""

    async def main() -> None:
        links = Stage().links
        stream = pb.StreamInfo(id=1, members=[5, 1, 3, 2], held_by=[2])
        assert links._sources(NodeId(3), stream) == [2, 1, 5]

    asyncio.run(main())


def test_a_log_that_is_gone_is_dropped_though_its_replica_was_usual() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.report(1, 1)
        del stage.catalog.logs[1]
        stage.catalog.gone[1] = {NodeId(1): 1}
        await stage.report(1, 1)
        assert stage.nodes[1].asked == [Method.DROP]

    asyncio.run(main())


def test_a_node_is_asked_to_drop_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have done so behind the deadline, and report nothing of the replica that would have it asked again."""
    monkeypatch.setattr(links_module, "MEND_PAUSE_S", 0.001)

    async def main() -> None:
        stage = Stage()
        forgotten = asyncio.get_running_loop().create_future()

        async def forget_gone(logs: list[LogId], node: NodeId) -> None:
            forgotten.set_result((logs, node))

        stage.catalog.forget_gone = forget_gone
        del stage.catalog.logs[1]
        stage.catalog.gone[1] = {NodeId(1): 1}
        stage.nodes[1].silent = 2
        await stage.report(1, 1)
        assert await asyncio.wait_for(forgotten, 5.0) == ([1], 1)
        assert stage.nodes[1].asked == [Method.DROP] * 3

    asyncio.run(main())


def test_a_commit_that_a_usual_replica_missed_is_sent_again() -> None:
    async def main() -> None:
        stage = Stage()
        order = stage.orderer.order(LogId(1))
        await stage.report(1, 2)
        await stage.report(2, 2)
        cut: Cut | None = order.next_cut()
        assert cut is not None
        order.plan(cut)
        order.apply(cut)
        await stage.report(2, 2, missed_commits=True)
        assert stage.nodes[2].asked == [Method.ADVANCE]
        await stage.report(1, 2, committed=2)
        assert stage.nodes[1].asked == []

    asyncio.run(main())


def test_a_report_that_a_forwarded_one_has_overtaken_is_a_sign_of_life() -> None:
    async def main() -> None:
        stage = Stage()
        stage.links.forwarded(pb.GetReportResponse(storage_node_id=1, boot=1, sequence=9))
        for link in stage.links._links.values():
            link.last_report = -inf
        for boot in (0, 1):
            assert stage.links.connected() == []
            overtaken = pb.GetReportResponse(storage_node_id=1, boot=boot, sequence=8)
            stage.links.report(cast(Peer, stage.nodes[1]), overtaken)
        assert stage.links.connected() == [1]

    asyncio.run(main())


def test_when_something_was_sent_is_forgotten_of_replicas_that_a_node_has_no_more() -> None:
    async def main() -> None:
        stage = Stage()
        link = stage.links._links[NodeId(1)]
        gone, there = (ReplicaId(LogId(1), Epoch(1), StreamId(stream)) for stream in (7, 1))
        for sent in (link.sent_at, link.history_at):
            sent.update({gone: 1.0, there: 1.0})
        await stage.report(1, 1)
        assert list(link.sent_at) == [gone, there], "that one did not name all it has"
        row = pb.LogStreamUncommitReport(log_id=1, segment=1, log_stream_id=1, uncommitted_llsn_offset=1)
        report = pb.GetReportResponse(storage_node_id=1, boot=1, sequence=9, complete=True, uncommit_reports=[row])
        stage.links.report(cast(Peer, stage.nodes[1]), report)
        assert (list(link.sent_at), list(link.history_at)) == ([there], [there])

    asyncio.run(main())


def test_nothing_is_dropped_once_it_is_not_known_what_the_store_has() -> None:
    """A replica that was opened for a change of unknown outcome may be part of the log."""

    async def main() -> None:
        stage = Stage()
        stage.catalog.logs[1].next_stream = 10
        stage.catalog.logs[1].chain[0].streams[0].id = 2
        await stage.report(1, 0)
        assert stage.nodes[1].asked == [Method.DROP], "else it is: this one never became part of it"
        stage.links.stop()
        await stage.report(2, 0)
        assert stage.nodes[2].asked == []

    asyncio.run(main())


def test_a_log_that_is_gone_is_forgotten_of_a_node_that_lists_nothing_of_it_only_after_another_start() -> None:
    """Within one life it may be making a replica that it does not list yet: a copy runs to its end by itself."""

    async def main() -> None:
        stage = Stage()
        forgotten: list[tuple[list[LogId], NodeId]] = []

        async def forget_gone(logs: list[LogId], node: NodeId) -> None:
            forgotten.append((logs, node))

        stage.catalog.forget_gone = forget_gone
        stage.catalog.gone = {LogId(log): {NodeId(1): boot} for log, boot in ((5, 1), (6, 1), (7, 2))}
        stage.links.creating[LogId(6)] = None

        async def list_all(boot: int, sequence: int) -> None:
            report = pb.GetReportResponse(storage_node_id=1, boot=boot, sequence=sequence, complete=True)
            stage.links.report(cast(Peer, stage.nodes[1]), report)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        await list_all(1, 1)
        assert forgotten == []
        stage.nodes[1] = Node()
        stage.links._links.pop(NodeId(1))
        stage.links.register(NodeId(1), cast(Peer, stage.nodes[1]), 2)
        await list_all(2, 1)
        assert forgotten.pop() == ([5], 1), "6 is being made, and 7 went in this life"
        stage.links.creating.clear()
        del stage.catalog.gone[LogId(5)]
        await list_all(2, 2)
        assert forgotten == [([6], 1)]

    asyncio.run(main())
