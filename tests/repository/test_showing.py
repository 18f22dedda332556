"""What few members have when their stream ends is shown when as many have it as acknowledge, or all that are left."""

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.repository.test_leader import create as create_led
from tests.repository.test_leader import replica
from tests.repository.test_sequencer import all_of, create, ended, ends, record, roll, write
from tests.servers import TIMEOUT_S, Servers, append, batch, run, servers

import varlog
from varlog.base.errors import NoSpace
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.cut import ReportGate
from varlog.core.ordering.journal import Tenure
from varlog.node.replica import Batches
from varlog.repository.links import NodeLink, Step
from varlog.repository.showing import MOST_WAITS, Showing
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LOST_S = 2.0


async def lose_the_leader(cluster: Servers) -> tuple[pb.LogInfo, int, int]:
    """Two entries are acknowledged, the leader is away, the repository too: who has both of them, and who lacks one.

    Who has both was not told that the second is committed, or it would rightly show it.
    """
    log = await create_led(cluster)
    leader, has, lacks = log.chain[0].streams[0].members
    await cluster.stop_repository()  # or it would mind that a member is sealed
    peer = await cluster.to_node(leader)
    assert (await append(peer, log, batch(b"a"))).message.glsn == 1
    await sealed_by_hand(cluster, log, lacks)
    [deaf] = cluster.nodes[has].replicas.all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deaf, "hear", lambda *_, **__: None)
        assert (await append(peer, log, batch(b"b", sequence=1))).message.glsn == 2
        await cluster.stop_node(leader)
    return log, has, lacks


async def sealed_by_hand(cluster: Servers, log: pb.LogInfo, node: int) -> None:
    peer = await cluster.to_node(node)
    await peer.call(Method.SEAL, pb.SealRequest(replica=replica(log, len(log.chain))), timeout=TIMEOUT_S)


async def state(cluster: Servers, log: pb.LogInfo, node: int) -> int:
    peer = await cluster.to_node(node)
    reply = await peer.call(Method.LEAD, pb.LeadRequest(replica=replica(log, len(log.chain))), timeout=TIMEOUT_S)
    assert isinstance(reply.message, pb.ReplicaStatus)
    return reply.message.state


class Settling:
    """A node that goes on settling only when it is told to, or refuses."""

    def __init__(self, cluster: Servers, node: int, *, refuses: bool = False) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()
        roles = cluster.nodes[node].replicas.roles
        plain = roles.settle

        async def settle(*arguments: Any) -> None:
            self.asked.set()
            await self.go_on.wait()
            await plain(*arguments)

        async def refuse(*_: Any) -> NoReturn:
            raise NoSpace("the volume is full")

        roles.settle = refuse if refuses else settle  # type: ignore[method-assign, assignment]


class Taking:
    """A node that takes what belongs to the end of a stream only when it is told to."""

    def __init__(self, cluster: Servers, log: pb.LogInfo, node: int) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()
        name = replica(log, len(log.chain))
        taking = cluster.nodes[node].replicas.find(name.log, name.segment, name.stream)
        plain = taking.store

        async def store(slot: Slot, batches: Batches, *, settle: bool) -> None:
            if settle:
                self.asked.set()
                await self.go_on.wait()
            await plain(slot, batches, settle=settle)

        taking.store = store  # type: ignore[method-assign]


async def payloads(cluster: Servers, end: int) -> list[bytes]:
    async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
        return [entry.payload async for entry in client.log("orders").subscribe(1, end)]


def test_those_that_lack_something_take_it_before_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlog.node.leader.RELEASE_IDLE_S", TIMEOUT_S)  # nobody hears what the leader committed last

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000, heartbeat_ms=20) as cluster:
            log, has, lacks = await lose_the_leader(cluster)
            settling = Settling(cluster, lacks)
            await cluster.start_repository()
            first = await ended(cluster)
            assert (first.end, list(first.streams[0].held_by)) == (3, [has])
            await settling.asked.wait()
            reading = asyncio.create_task(payloads(cluster, 3))
            await asyncio.sleep(0.3)  # many heartbeats
            assert await state(cluster, log, has) == pb.REPLICA_SEALED
            assert not reading.done(), "it would be lost with one node"
            settling.go_on.set()
            assert await reading == [b"a", b"b"]
            while await state(cluster, log, has) != pb.REPLICA_FINISHED:
                await asyncio.sleep(0.02)
            assert await state(cluster, log, lacks) == pb.REPLICA_FINISHED

    run(story())


def test_as_many_take_it_as_an_acknowledgement_needs(tmp_path: Path) -> None:
    """Three of five: two silent ones and one that has it may have acknowledged it, and no two may lose it again."""

    async def story() -> None:
        async with servers(tmp_path, nodes=6, lost_ms=60_000, heartbeat_ms=20) as cluster:
            log = await create_led(cluster, replicas=5, ack=3)
            leader, silent, has, *lack = log.chain[0].streams[0].members
            await cluster.stop_repository()
            peer = await cluster.to_node(leader)
            assert (await append(peer, log, batch(b"a"))).message.glsn == 1
            await cluster.stop_node(silent)
            for node in (has, *lack):
                while await tail(cluster, log, node) < 1:
                    await asyncio.sleep(0.01)
            for node in lack:
                await sealed_by_hand(cluster, log, node)
            doubtful = asyncio.create_task(append(peer, log, batch(b"b", sequence=1)))
            while await tail(cluster, log, has) < 2:
                await asyncio.sleep(0.01)
            await cluster.stop_node(leader)
            await asyncio.gather(doubtful, return_exceptions=True)
            settling = [Settling(cluster, node) for node in lack]
            await cluster.start_repository()
            first = await ended(cluster)
            assert (first.end, list(first.streams[0].held_by)) == (3, [has])
            reading = asyncio.create_task(payloads(cluster, 3))
            for each, node in zip(settling, lack, strict=True):
                await each.asked.wait()
                await asyncio.sleep(0.2)  # many heartbeats
                assert [await state(cluster, log, other) for other in (has, *lack)] == [pb.REPLICA_SEALED] * 3
                assert not reading.done(), "fewer than three have it"
                each.go_on.set()
                while await tail(cluster, log, node) < 2:
                    await asyncio.sleep(0.01)
            assert await reading == [b"a", b"b"]
            while {await state(cluster, log, node) for node in (has, *lack)} != {pb.REPLICA_FINISHED}:
                await asyncio.sleep(0.02)

    run(story())


def test_those_that_get_no_further_are_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=500, heartbeat_ms=20) as cluster:
            log, has, lacks = await lose_the_leader(cluster)
            Settling(cluster, lacks, refuses=True)
            await cluster.start_repository()
            assert list((await ended(cluster)).streams[0].held_by) == [has]
            assert await payloads(cluster, 3) == [b"a", b"b"]
            assert await state(cluster, log, lacks) == pb.REPLICA_SEALED

    run(story())


def test_who_is_away_for_a_moment_is_not_waited_for_if_two_have_it(tmp_path: Path) -> None:
    """Though three acknowledge: readers would wait, too."""

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=600_000, heartbeat_ms=20) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            *have, away = log.chain[0].streams[0].members
            await write(cluster, log, 1, members=3)
            await write(cluster, log, 2, members=2)
            await cluster.stop_node(away)
            sealed = await roll(cluster)
            assert (sealed.end, list(sealed.streams[0].held_by)) == (3, have)
            assert await payloads(cluster, 3) == [b"1", b"2"]

    run(story())


def test_who_is_away_for_a_moment_is_waited_for_by_one_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=600_000, heartbeat_ms=20) as cluster:
            log = await create(cluster, streams=1)
            head, last = log.chain[0].streams[0].members
            await write(cluster, log, 1)
            await write(cluster, log, 2, members=1)
            await cluster.stop_node(last)
            sealed = await roll(cluster)
            assert (sealed.end, list(sealed.streams[0].held_by)) == (3, [head])
            reading = asyncio.create_task(payloads(cluster, 3))
            await asyncio.sleep(0.3)  # many heartbeats
            assert await state(cluster, log, head) == pb.REPLICA_SEALED
            assert not reading.done(), "it would be lost with one node"
            await cluster.start_node(last)
            assert await reading == [b"1", b"2"]

    run(story())


class Slow:
    """The clock, the links and the absences of a stream with two members, of which the second takes slot after slot."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slots = 0
        self.showing = Showing(self, self, self, LOST_S)  # type: ignore[arg-type]
        self._link = NodeLink(NodeId(1), None, 1, 0.0, ReportGate())  # type: ignore[arg-type]
        self._stream = pb.StreamInfo(id=1, members=[1, 2], end_slot=1000, held_by=[1])

    def now(self) -> float:
        return self.seconds

    def connected(self) -> list[NodeId]:
        return [NodeId(1), NodeId(2)]

    def row(self, node: NodeId, _: ReplicaId) -> pb.LogStreamUncommitReport:
        slots = self.slots if node == 2 else 1000
        return pb.LogStreamUncommitReport(
            uncommitted_llsn_offset=1, uncommitted_llsn_length=slots, state=pb.REPLICA_SEALED
        )

    def is_lost(self, _: NodeId, __: float) -> bool:
        return False

    def lacks(self, _: NodeId, __: ReplicaId) -> bool:
        return False

    def next_step(self) -> Step:
        """Of the member that has everything."""
        replica = ReplicaId(LogId(1), Epoch(1), StreamId(1))
        return self.showing.next_step(self._link, replica, pb.SegmentInfo(ordering="leader", ack=2), self._stream)


def test_who_gets_further_is_waited_for_but_not_for_ever() -> None:
    slow = Slow()
    while slow.seconds < MOST_WAITS * LOST_S:
        assert slow.next_step() is Step.WAIT
        slow.seconds += LOST_S / 2
        slow.slots += 1
    assert slow.next_step() is Step.FINISH


def test_who_gets_no_further_is_waited_for_as_long_as_one_who_is_away() -> None:
    slow = Slow()
    for _ in range(3):
        assert slow.next_step() is Step.WAIT
        slow.seconds += LOST_S / 2
        slow.slots += 1
    assert slow.next_step() is Step.WAIT
    slow.seconds += LOST_S
    assert slow.next_step() is Step.FINISH


def test_those_that_are_lost_are_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=200) as cluster:
            log = await create(cluster, streams=1)
            head, last = log.chain[0].streams[0].members
            await write(cluster, log, 1)
            await write(cluster, log, 2, members=1)
            await cluster.stop_node(last)
            first = await ended(cluster)
            assert (first.end, list(first.streams[0].held_by)) == (3, [head])
            assert await payloads(cluster, 3) == [b"1", b"2"]

    run(story())


def test_what_lies_before_the_end_of_another_stream_is_on_two_members_before_it_is_shown(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster:
            log = await create(cluster)
            for glsn in (1, 3):
                await write(cluster, log, glsn)
            await write(cluster, log, 2, members=1)
            head, last = log.chain[0].streams[1].members
            settling = Settling(cluster, last)
            sealed = await roll(cluster)
            assert (sealed.end, ends(sealed)) == (4, [(2, None), (1, None)])
            assert [list(each.held_by) for each in sealed.streams] == [list(sealed.streams[0].members), [head]]
            reading = asyncio.create_task(all_of(cluster, {1: b"1", 2: b"2", 3: b"3"}, 3))
            await settling.asked.wait()
            await asyncio.sleep(0.1)
            assert not reading.done()
            settling.go_on.set()
            await reading

    run(story())


def test_the_leader_of_a_journal_acknowledges_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it cannot give its members what they lack, as it keeps too little."""
    plain = Tenure.after

    def after(self: Tenure[Any], slot: Slot, most_bytes: int, until: Slot | None = None) -> tuple[Slot, list[bytes]]:
        return plain(self, slot, most_bytes) if until is None else (slot, [])

    monkeypatch.setattr(Tenure, "after", after)

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=60_000, heartbeat_ms=20) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
            client.journal("orders", replicas=3) as journal,
            journal.lead() as leader,
        ):
            assert (await leader.append(b"a")).glsn == 1
            log = await record(cluster)
            has, lacks, silent = log.chain[-1].streams[0].members
            await cluster.stop_repository()
            await cluster.stop_node(silent)
            await sealed_by_hand(cluster, log, lacks)
            settling = Settling(cluster, lacks)
            doubtful = asyncio.create_task(leader.append(b"b", timeout=30))
            while (await tail(cluster, log, has)) < 2:
                await asyncio.sleep(0.01)
            await cluster.start_repository()
            await settling.asked.wait()
            later = asyncio.create_task(leader.append(b"c", timeout=30))
            await asyncio.sleep(0.3)
            assert not doubtful.done(), "it is on one member alone"
            settling.go_on.set()
            assert ((await doubtful).glsn, (await later).glsn) == (2, 3)

    run(story())


def test_the_leader_of_a_journal_gives_what_it_sent_where_the_one_who_had_it_is_lost(tmp_path: Path) -> None:
    """Else all that it appends from then on would wait until that one is back."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=60_000, heartbeat_ms=20) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
            client.journal("orders", replicas=3) as journal,
            journal.lead(ttl=60.0) as leader,
        ):
            assert (await leader.append(b"a")).glsn == 1
            log = await record(cluster)
            has, lacks, silent = log.chain[-1].streams[0].members
            await cluster.stop_repository()
            await cluster.stop_node(silent)
            await sealed_by_hand(cluster, log, lacks)
            settling = Settling(cluster, lacks)
            taking = Taking(cluster, log, lacks)
            doubtful = [asyncio.create_task(leader.append(b"b%d" % each, timeout=60)) for each in range(3)]
            while await tail(cluster, log, has) < 4:
                await asyncio.sleep(0.01)
            await cluster.start_repository()
            await settling.asked.wait()
            [stream] = (await record(cluster)).chain[len(log.chain) - 1].streams
            assert (stream.end_slot, list(stream.held_by)) == (4, [has])
            await cluster.stop_node(has)
            later = asyncio.create_task(leader.append(b"c", timeout=60))
            await taking.asked.wait()
            await asyncio.sleep(0.1)
            assert not any(each.done() for each in (*doubtful, later)), "nobody who is there has it"
            taking.go_on.set()
            assert [ack.glsn for ack in await asyncio.gather(*doubtful, later)] == [2, 3, 4, 5]
            assert (await tail(cluster, log, lacks)) == 4, "and nothing that is not in the log"
            settling.go_on.set()
            assert await payloads(cluster, 6) == [b"a", b"b0", b"b1", b"b2", b"c"]

    run(story())


async def tail(cluster: Servers, log: pb.LogInfo, node: int) -> int:
    peer = await cluster.to_node(node)
    reply = await peer.call(Method.LEAD, pb.LeadRequest(replica=replica(log, len(log.chain))), timeout=TIMEOUT_S)
    assert isinstance(reply.message, pb.ReplicaStatus)
    return reply.message.contiguous
