"""What the repository does all the time, on virtual time: what it costs, what it forgets, what keeps it from it."""

from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.sim.world import Small

from varlog.base.errors import Unavailable
from varlog.base.ids import LogId, NodeId, StreamId
from varlog.ports import Clock
from varlog.repository import elections as electing
from varlog.repository import healer as healing
from varlog.repository.absences import Absences
from varlog.repository.catalog import Catalog
from varlog.repository.changes import AT_ONCE, Changes
from varlog.repository.copies import Takers
from varlog.repository.elections import Elections
from varlog.repository.healer import Healer
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer
from varlog.repository.reconfigure import Reconfigurer
from varlog.repository.roller import Roller
from varlog.repository.standing import Standing
from varlog.runtime.scope import Scope
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
        self.changes = Changes()

    def catalog(self) -> Catalog:
        return cast(Catalog, SimpleNamespace(logs=self.logs, nodes=self.nodes, log=lambda number: self.logs[number]))

    def links(self, clock: Clock) -> NodeLinks:
        return cast(
            NodeLinks,
            SimpleNamespace(
                connected=lambda: self.here,
                left_at={},
                row=lambda *_: None,
                lacks=lambda *_: False,
                volumes=lambda _: [],
                standing=Standing(clock),
            ),
        )

    def orderer(self) -> Orderer:
        def order(number: LogId) -> SimpleNamespace:
            return SimpleNamespace(stream=lambda _: SimpleNamespace(stopped=self.stopped.get(number, "")))

        return cast(Orderer, SimpleNamespace(order=order))

    def healer(self, clock: Clock, replace: Callable[..., Coroutine[Any, Any, None]]) -> Healer:
        reconfigurer = cast(Reconfigurer, SimpleNamespace(replace=replace))
        catalog, links = self.catalog(), self.links(clock)
        absences = Absences(clock, catalog, links, healing.LOOK_S)
        return Healer(clock, catalog, self.orderer(), links, Scope(), reconfigurer, self.changes, absences, 1.5)


async def nothing(*_: Any) -> None:
    """Replaces no stream."""


def test_a_log_takes_others_in_once_there_are_nodes_that_can_be_counted_on() -> None:
    async def story(process: Process) -> None:
        cluster = Cluster(
            log(1, "leader"), log(2, "sequencer"), log(3), *(log(number, "leader", replicas=3) for number in (4, 5))
        )
        healer = cluster.healer(process.clock, nothing)
        healer._takers = Takers(fit=3, steady=1)
        assert [healer._leaving(number) for number in cluster.logs] == [[], [], [], [], []]
        healer._takers = Takers(fit=3, steady=2)
        assert [healer._leaving(number) for number in cluster.logs] == [[], [], [], [StreamId(1)], [StreamId(1)]]

    play(story)


def test_a_log_whose_healing_hangs_keeps_nobody_from_seeing_who_is_lost() -> None:
    async def story(process: Process) -> None:
        cluster = Cluster(log(1), log(2))
        cluster.stopped[LogId(2)] = "it has lost entries"

        async def replace(number: LogId, *_: Any, members: int) -> None:
            if number == LogId(2):
                await process.clock.sleep(3)
                raise Unavailable("a node does not answer")
            cluster.replaced.append(number)

        healer = cluster.healer(process.clock, replace)
        process.spawn(healer.run(), "healer")
        await process.clock.sleep(1)
        cluster.here.clear()
        await process.clock.sleep(8)
        assert LogId(1) in cluster.replaced

    play(story)


class Work:
    """How logs are healed, or leave: each takes its time, and fails if it is to."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._clock = process.clock
        self._cluster = cluster
        self.seconds: dict[LogId, float] = {}
        self.failing: dict[LogId, None] = {}
        self.begun: list[tuple[float, LogId]] = []
        self.done: list[tuple[float, LogId]] = []
        self.most = 0
        """At once."""
        self.healer = cluster.healer(process.clock, self._replace)
        process.spawn(self.healer.run(), "healer")

    async def _replace(self, number: LogId, ending: list[StreamId], *_: Any, members: int) -> None:
        self.begun.append((self._clock.now(), number))
        self.most = max(self.most, len(self.begun) - len(self.done))
        await self._clock.sleep(self.seconds.get(number, 0.2))
        self.done.append((self._clock.now(), number))
        if number in self.failing:
            raise Unavailable("too few members answer")
        self._cluster.stopped.pop(number, None)
        (stream,) = self._cluster.logs[number].chain[-1].streams
        stream.members[:] = [max(self._cluster.nodes)]

    def tries(self, number: int) -> list[float]:
        return [at for at, each in self.begun if each == number]

    def seconds_in_all(self) -> float:
        return self.done[-1][0] - self.begun[0][0]


@pytest.mark.parametrize("rounds", [1, 5])
def test_what_a_death_has_hurt_is_healed_together(rounds: int) -> None:
    """As many as may be healed at once, in the time that one takes."""
    count = rounds * healing.HEALED_AT_ONCE

    async def story(process: Process) -> None:
        cluster = Cluster(*map(log, range(1, count + 1)))
        cluster.stopped = dict.fromkeys(cluster.logs, "it has lost entries")
        work = Work(process, cluster)
        while len(work.done) < count:
            await process.clock.sleep(0.01)
        assert not cluster.stopped
        assert work.most == healing.HEALED_AT_ONCE < AT_ONCE, "others who change a log find a place"
        assert work.seconds_in_all() < rounds * 0.21

    play(story)


def test_a_log_that_cannot_be_healed_is_put_off_by_itself() -> None:
    async def story(process: Process) -> None:
        cluster = Cluster(*map(log, (1, 2, 3)))
        cluster.stopped = dict.fromkeys(cluster.logs, "it has lost entries")
        work = Work(process, cluster)
        work.failing[LogId(2)] = None
        await process.clock.sleep(4.5)
        assert [len(work.tries(number)) for number in (1, 3)] == [1, 1]
        tries = work.tries(2)
        assert len(tries) == 4
        pauses = [after - before - 0.2 for before, after in pairwise(tries)]
        assert all(healing.PAUSE_S <= pause < healing.PAUSE_S + 2 * healing.LOOK_S for pause in pauses)
        assert work.healer.trouble(LogId(2))
        assert not work.healer.trouble(LogId(1))

    play(story)


def test_logs_that_hang_whenever_they_are_tried_leave_room_for_those_that_can_be_healed() -> None:
    many = 3 * healing.HEALED_AT_ONCE

    async def story(process: Process) -> None:
        cluster = Cluster(*map(log, range(1, many + 2)))
        fresh = LogId(many + 1)
        cluster.stopped = {number: "it has lost entries" for number in cluster.logs if number != fresh}
        work = Work(process, cluster)
        work.failing = dict.fromkeys(cluster.stopped)
        work.seconds = dict.fromkeys(cluster.stopped, 5.0)
        while len(work.begun) < 2 * many:
            await process.clock.sleep(0.1)
        assert work.most == healing.HEALED_AT_ONCE, "when each was tried for the first time"
        since = process.clock.now()
        cluster.stopped[fresh] = "it has lost entries"
        await process.clock.sleep(1)
        (begun,) = work.tries(fresh)
        assert begun - since < 2 * healing.LOOK_S

    play(story)


def draining(*logs: pb.LogInfo) -> Cluster:
    """Two nodes, of which the first is to be left."""
    cluster = Cluster(*logs)
    cluster.nodes[NodeId(1)].draining = True
    cluster.nodes[NodeId(2)] = pb.NodeInfo(id=2)
    cluster.here = [NodeId(1), NodeId(2)]
    return cluster


def test_streams_leave_one_log_at_a_time_once_nothing_is_hurt_any_more() -> None:
    async def story(process: Process) -> None:
        cluster = draining(*map(log, (1, 2, 3, 4)))
        cluster.stopped[LogId(4)] = "it has lost entries"
        work = Work(process, cluster)
        await process.clock.sleep(3)
        assert [number for _, number in work.done] == [4, 1, 2, 3]
        assert work.most == 1

    play(story)


def test_what_is_hurt_does_not_wait_for_a_log_that_hangs_as_it_leaves_a_node() -> None:
    async def story(process: Process) -> None:
        cluster = draining(*map(log, (1, 2)))
        work = Work(process, cluster)
        work.seconds[LogId(1)] = 60.0
        await process.clock.sleep(1)
        assert [number for _, number in work.begun] == [1]
        cluster.stopped[LogId(2)] = "it has lost entries"
        await process.clock.sleep(1)
        assert [number for _, number in work.done] == [2]

    play(story)


def test_streams_leave_though_others_are_hurt_for_good_and_hang_in_turns() -> None:
    """There is no moment in which none of them is being tried."""

    async def story(process: Process) -> None:
        cluster = draining(*map(log, (1, 2, 3)))
        cluster.stopped = {LogId(number): "it has lost entries" for number in (1, 2)}
        work = Work(process, cluster)
        work.failing = dict.fromkeys(cluster.stopped)
        work.seconds = {LogId(1): 3.0, LogId(2): 5.0}
        await process.clock.sleep(10)
        assert LogId(3) in [number for _, number in work.done]

    play(story)


def test_a_journal_whose_election_hangs_keeps_no_other_from_being_led(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(electing, "members_for", lambda *_, **__: 1)

    async def story(process: Process) -> None:
        journals = [log(number, "leader", journal=True) for number in (1, 2)]
        for journal in journals:
            journal.chain[-1].leader.id = 7
        cluster = Cluster(*journals)
        ended: list[LogId] = []

        async def next_segment(number: LogId, *_: Any, **__: Any) -> None:
            if number == LogId(1):
                await process.clock.sleep(60)
            cluster.logs[number].chain[-1].leader.id = 0
            ended.append(number)

        elections = Elections(
            process.clock,
            cluster.catalog(),
            cluster.links(process.clock),
            Scope(),
            cast(Reconfigurer, SimpleNamespace(next_segment=next_segment)),
            cluster.changes,
        )
        elections._leases = {number: (7, process.clock.now() + 0.1) for number in cluster.logs}
        process.spawn(elections.run(), "elections")
        await process.clock.sleep(1)
        assert ended == [2]

    play(story)


def test_elections_forget_a_journal_that_is_removed() -> None:
    async def story(process: Process) -> None:
        journal = log(1, "leader", journal=True)
        cluster = Cluster(journal)
        clock, nobody = process.clock, cast(Reconfigurer, None)
        elections = Elections(clock, cluster.catalog(), cluster.links(clock), Scope(), nobody, cluster.changes)
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
        clock, nobody = process.clock, cast(Reconfigurer, None)
        roller = Roller(clock, cluster.catalog(), cluster.links(clock), nobody, cluster.changes)
        healer._put_off(LogId(1), True, "no nodes")
        roller._troubles[LogId(1)], roller._not_before[LogId(1)] = "no nodes", process.clock.now() + 60
        for work in (healer.run(), roller.run()):
            process.spawn(work, "loop")
        await process.clock.sleep(0.05)
        assert healer.trouble(LogId(1))
        assert roller.trouble(LogId(1))
        del cluster.logs[LogId(1)]
        await process.clock.sleep(1)
        assert (healer._troubles, healer._not_before, roller._troubles, roller._not_before) == ({}, {}, {}, {})

    play(story)
