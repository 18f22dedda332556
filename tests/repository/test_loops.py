"""What the repository does all the time, on virtual time: what it costs, what it forgets, what keeps it from it."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.sim.world import Small

from varlog.base.errors import Unavailable
from varlog.base.ids import LogId, NodeId, StreamId
from varlog.core.placement import Candidate
from varlog.ports import Clock
from varlog.repository import healer as healing
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.elections import Elections
from varlog.repository.healer import Healer
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer
from varlog.repository.reconfigure import Reconfigurer
from varlog.repository.roller import Roller
from varlog.sim.host import Process
from varlog.wire.proto import varlog_pb2 as pb


def play(story: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
    small = Small()

    async def main() -> None:
        process = small.host("repository").start(story)
        assert process.main is not None
        await process.main

    small.run(main())


def log(number: int, ordering: str = "cut", **fields: Any) -> pb.LogInfo:
    stream = pb.StreamInfo(id=1, members=[1], state=pb.STREAM_WRITABLE)
    segment = pb.SegmentInfo(epoch=1, ordering=ordering, base=1, replicas=1, ack=1, streams=[stream])
    settings: dict[str, Any] = {"replicas": 1, "ack": 1, "streams": 1, "ordering": ordering}
    return pb.LogInfo(id=number, name=f"log {number}", chain=[segment], **(settings | fields))


class Cluster:
    """One node, and what the loops look at."""

    def __init__(self, *logs: pb.LogInfo) -> None:
        self.logs = {LogId(each.id): each for each in logs}
        self.nodes = {NodeId(1): pb.NodeInfo(id=1)}
        self.here = [NodeId(1)]
        self.stopped: dict[LogId, str] = {}
        self.replaced: list[LogId] = []

    def catalog(self) -> Catalog:
        return cast(Catalog, SimpleNamespace(logs=self.logs, nodes=self.nodes, log=lambda number: self.logs[number]))

    def links(self) -> NodeLinks:
        return cast(
            NodeLinks,
            SimpleNamespace(
                connected=lambda: self.here,
                left_at={},
                row=lambda *_: None,
                lacks=lambda *_: False,
                volumes=lambda _: [],
            ),
        )

    def orderer(self) -> Orderer:
        def order(number: LogId) -> SimpleNamespace:
            return SimpleNamespace(stream=lambda _: SimpleNamespace(stopped=self.stopped.get(number, "")))

        return cast(Orderer, SimpleNamespace(order=order))

    def healer(self, clock: Clock, replace: Callable[..., Coroutine[Any, Any, None]]) -> Healer:
        reconfigurer = cast(Reconfigurer, SimpleNamespace(replace=replace))
        catalog, links = self.catalog(), self.links()
        absences = Absences(clock, catalog, links, healing.LOOK_S)
        return Healer(clock, catalog, self.orderer(), links, reconfigurer, asyncio.Lock(), absences, 1.5)


async def nothing(*_: Any) -> None:
    """Replaces no stream."""


def test_a_log_that_has_all_its_members_costs_no_look_at_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def candidates(*_: Any) -> dict[NodeId, Candidate]:
        counted.append(1)
        return {NodeId(node): Candidate() for node in (1, 2, 3)}

    monkeypatch.setattr(healing, "candidates", candidates)

    async def story(process: Process) -> None:
        cluster = Cluster(
            log(1, "leader"), log(2, "sequencer"), log(3), *(log(number, "leader", replicas=3) for number in (4, 5))
        )
        leaving = cluster.healer(process.clock, nothing)._leaving
        assert [leaving(number) for number in cluster.logs] == [[], [], [], [StreamId(1)], [StreamId(1)]]
        assert len(counted) == 1, "for all that have fewer than they want"

    play(story)


def test_a_log_whose_healing_hangs_keeps_nobody_from_seeing_who_is_lost() -> None:
    async def story(process: Process) -> None:
        cluster = Cluster(log(1), log(2))
        cluster.stopped[LogId(2)] = "it has lost entries"

        async def replace(number: LogId, *_: Any) -> None:
            if number == LogId(2):
                await process.clock.sleep(3)
                raise Unavailable("a node does not answer")
            cluster.replaced.append(number)

        healer = cluster.healer(process.clock, replace)
        process.spawn(healer.watch(), "watch")
        process.spawn(healer.run(), "healer")
        await process.clock.sleep(1)
        cluster.here.clear()
        await process.clock.sleep(8)
        assert LogId(1) in cluster.replaced

    play(story)


def test_elections_forget_a_journal_that_is_removed() -> None:
    async def story(process: Process) -> None:
        journal = log(1, "leader", journal=True)
        cluster = Cluster(journal)
        elections = Elections(
            process.clock, cluster.catalog(), cluster.links(), cast(Reconfigurer, None), asyncio.Lock()
        )
        elections._leases[LogId(1)] = (7, process.clock.now() + 60)
        elections._not_before[LogId(1)] = process.clock.now() + 0.1
        elections._troubles[LogId(1)] = "nobody new can lead it"
        process.spawn(elections.run(), "elections")
        del cluster.logs[LogId(1)]
        await process.clock.sleep(3)
        assert elections._next() > process.clock.now(), "there is nothing to be awake for"
        assert not elections.trouble(LogId(1))
        assert not elections._leases

    play(story)


def test_healer_and_roller_forget_logs_that_are_removed() -> None:
    async def story(process: Process) -> None:
        cluster = Cluster(log(1))
        healer = cluster.healer(process.clock, nothing)
        roller = Roller(process.clock, cluster.catalog(), cluster.links(), cast(Reconfigurer, None), asyncio.Lock())
        healer._put_off(LogId(1), True, "no nodes")
        roller._troubles[LogId(1)], roller._not_before[LogId(1)] = "no nodes", process.clock.now() + 60
        for work in (healer.watch(), healer.run(), roller.run()):
            process.spawn(work, "loop")
        await process.clock.sleep(0.05)
        assert healer.trouble(LogId(1))
        assert roller.trouble(LogId(1))
        del cluster.logs[LogId(1)]
        await process.clock.sleep(1)
        assert (healer._troubles, healer._not_before, roller._troubles, roller._not_before) == ({}, {}, {}, {})

    play(story)
