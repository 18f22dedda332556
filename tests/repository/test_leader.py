"""Logs under the `leader` ordering, on real servers in this process: commits, lost leaders, live switches."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.repository.test_reconfigure import Load, check_chain
from tests.servers import TIMEOUT_S, Servers, append, batch, read_parts, run, servers

import varlog
from varlog.base.errors import InvalidArgument, NotLeader, Sealed, Unavailable, WrongWriter
from varlog.base.ids import NodeId, ReplicaId
from varlog.client.outlet import producer_id
from varlog.ports.disk import DiskFailed
from varlog.repository.freshness import Freshness
from varlog.repository.healer import Healer
from varlog.repository.links import CALL_TIMEOUT_S, NodeLinks
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def create(cluster: Servers, replicas: int = 3, ack: int = 0) -> pb.LogInfo:
    peer = await cluster.to_repository()
    request = pb.CreateLogRequest(name="orders", ordering="leader", replicas=replicas, streams=1, ack=ack)
    log = (await peer.call(Method.CREATE_LOG, request, timeout=TIMEOUT_S)).message
    assert isinstance(log, pb.LogInfo)
    return log


async def next_segment(log: varlog.Log, epoch: int) -> varlog.LogDescription:
    """The log, once it has got so far."""
    while (info := await log.info()).chain[-1].epoch < epoch:
        await asyncio.sleep(0.02)
    return info


def replica(log: pb.LogInfo, segment: int = 1) -> pb.ReplicaId:
    return pb.ReplicaId(log=log.id, segment=segment, stream=log.chain[segment - 1].streams[0].id)


def test_entries_are_numbered_by_the_leader_and_readable_everywhere() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            log = await cluster.create_log("orders", ordering="leader")
            acks = [await log.append(b"%d" % number) for number in range(5)]
            assert [ack.glsn for ack in acks] == [1, 2, 3, 4, 5]
            assert (await log.append_batch([b"a", b"b"])).last == 7
            assert await log.tail() == 7
            assert [entry.payload async for entry in log.subscribe(6, stop=8)] == [b"a", b"b"]
            await log.trim(3)
            with pytest.raises(varlog.Trimmed):
                await log.read(3)
            assert await log.seal() == 8
            assert await log.tail() == 7
            with pytest.raises(Sealed):
                await log.append(b"late")

    run(story())


def test_a_stopped_backup_does_not_hold_up_appends(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster)
            leader, backup, _ = log.chain[0].streams[0].members
            peer = await cluster.to_node(leader)
            assert (await append(peer, log, batch(b"a"))).message.glsn == 1
            await cluster.stop_node(backup)
            assert (await append(peer, log, batch(b"b", sequence=1))).message.glsn == 2
            await cluster.start_node(backup)
            while True:  # it catches up by itself
                part = (await read_parts(await cluster.to_node(backup), log, slot=0))[0].message
                assert isinstance(part, pb.ReadPart)
                if part.status.committed == 2:
                    break
                await asyncio.sleep(0.02)

    run(story())


def test_a_lost_leader_is_replaced_and_what_it_acknowledged_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=100) as cluster:
            log = await create(cluster)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                load = Load(handle)
                await load.some()
                await cluster.stop_node(log.chain[0].streams[0].members[0])
                await next_segment(handle, 2)
                await load.some()
                await load.stop()
                info = await handle.info()
                check_chain(info, len(info.chain))

    run(story())


def test_with_three_nodes_the_log_goes_on_with_two_and_takes_the_third_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=100) as cluster:
            log = await create(cluster)
            leader = log.chain[0].streams[0].members[0]
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                await handle.append(b"a")
                await cluster.stop_node(leader)
                thin = await next_segment(handle, 2)
                assert sorted(thin.chain[-1].streams[0].members) == [node for node in (1, 2, 3) if node != leader]
                await handle.append(b"b")
                await cluster.start_node(leader)
                whole = await next_segment(handle, 3)
                assert len(whole.chain[-1].streams[0].members) == whole.replicas == 3
                await handle.append(b"c")
                assert [entry.payload async for entry in handle.subscribe(1, wait=False)] == [b"a", b"b", b"c"]

    run(story())


@asynccontextmanager
async def thin(folder: Path) -> AsyncIterator[tuple[Servers, varlog.Log]]:
    """A log of three copies that goes on with two, in segment 2: there are no more nodes."""
    async with servers(folder, nodes=3, lost_ms=100) as cluster:
        log = await create(cluster)
        async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
            handle = client.log("orders")
            await handle.append(b"a")
            await cluster.stop_node(log.chain[0].streams[0].members[0])
            await next_segment(handle, 2)
            yield cluster, handle


def copies(info: varlog.LogDescription) -> list[int]:
    """Of every segment."""
    return [len(segment.streams[0].members) for segment in info.chain]


def test_a_log_with_fewer_members_than_wanted_rolls_all_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        async with thin(tmp_path) as (_, log):
            await log.reconfigure(roll_bytes=1 << 20)
            await log.append(bytes(2 << 20))
            info = await next_segment(log, 3)
            assert (copies(info), info.replicas) == ([3, 2, 2], 3)
            info = await log.reconfigure(roll=True)
            assert (copies(info), info.replicas) == ([3, 2, 2, 2], 3)
            assert (await log.append(b"b")).glsn == 3

    run(story())


def test_copies_that_are_asked_for_and_cannot_be_had_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with thin(tmp_path) as (cluster, log):
            for too_much in (
                {"replicas": 3},
                {"replicas": 3, "roll": True},
                {"ack": 3, "roll": True},
                {"ack": 3},
                {"ordering": "cut", "ack": 3},
                {"members": list(cluster.nodes)},
                {"members": list(cluster.nodes), "roll": True},
            ):
                with pytest.raises(Unavailable, match="3 replicas need 3 connected"):
                    await log.reconfigure(**too_much)
            info = await log.info()
            assert (copies(info), info.replicas) == ([3, 2], 3)

    run(story())


def test_what_is_no_matter_of_segments_changes_with_fewer_members_than_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        async with thin(tmp_path) as (_, log):
            for same in ({"pin": ["atomic_batch"]}, {"ack": 2}, {"streams": 1}, {"ordering": "leader"}):
                info = await log.reconfigure(**same)
                assert (copies(info), info.replicas) == ([3, 2], 3)
            assert info.pinned == ("atomic_batch",)

    run(story())


def test_fewer_copies_are_wanted_though_there_are_no_more_already(tmp_path: Path) -> None:
    async def story() -> None:
        async with thin(tmp_path) as (_, log):
            info = await log.reconfigure(replicas=2)
            assert (copies(info), info.replicas) == ([3, 2, 2], 2)

    run(story())


def test_a_leader_that_was_started_again_does_not_continue(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster)
            leader = log.chain[0].streams[0].members[0]
            assert (await append(await cluster.to_node(leader), log, batch(b"a"))).message.glsn == 1
            await cluster.stop_node(leader)
            await cluster.start_node(leader)
            request = pb.LeadRequest(replica=replica(log), base=1)
            peer = await cluster.to_node(leader)
            with pytest.raises(WrongWriter):
                await peer.call(Method.LEAD, request, timeout=TIMEOUT_S)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                await next_segment(client.log("orders"), 2)  # nobody waits for a loss that is none
                assert (await client.log("orders").append(b"b")).glsn == 2

    run(story())


def test_a_sealed_leader_can_acknowledge_nothing(tmp_path: Path) -> None:
    """The old one does not hear of its end: only the other members were sealed."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster)
            leader, *backups = log.chain[0].streams[0].members
            await cluster.stop_repository()
            peer = await cluster.to_node(leader)
            assert (await append(peer, log, batch(b"a"))).message.glsn == 1
            tails = []
            for backup in backups:
                other = await cluster.to_node(backup)
                sealed = await other.call(Method.SEAL, pb.SealRequest(replica=replica(log)), timeout=TIMEOUT_S)
                assert isinstance(sealed.message, pb.ReplicaStatus)
                tails.append(sealed.message.contiguous)
            assert max(tails) == 1, "two had what was acknowledged: the leader and one of them"
            with pytest.raises(varlog.Timeout):
                await append(peer, log, batch(b"b", sequence=1), timeout=0.5)

    run(story())


def test_appends_go_on_without_the_repository(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lease_ms=1000) as cluster:
            log = await create(cluster)
            peer = await cluster.to_node(log.chain[0].streams[0].members[0])
            assert (await append(peer, log, batch(b"a"))).message.glsn == 1
            await cluster.stop_repository()
            await asyncio.sleep(1.2)  # longer than the lease
            assert (await append(peer, log, batch(b"b", sequence=1))).message.glsn == 2

    run(story())


def test_a_running_log_is_switched_there_and_back() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=4) as cluster:
            log = await cluster.create_log("orders", streams=2)
            load = Load(log)
            for ordering in ("leader", "cut", "leader", "leader", "cut"):
                await load.some(30)
                info = await log.reconfigure(ordering=ordering, roll=True)
                assert info.chain[-1].ordering == info.ordering == ordering
            await load.some(30)
            await load.stop()
            check_chain(await log.info(), 6)

    run(story())


def test_policies_that_make_no_sense_are_refused() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            for ack, streams in ((1, 1), (4, 1), (2, 2)):
                with pytest.raises(InvalidArgument):
                    await cluster.create_log("orders", ordering="leader", replicas=3, ack=ack, streams=streams)
            log = await cluster.create_log("orders", ordering="leader", replicas=3, ack=3)
            await log.append(b"x")
            assert (await log.info()).chain[0].ack == 3
            with pytest.raises(Unavailable):
                await log.reconfigure(replicas=4)

    run(story())


def test_a_backup_that_lacks_what_was_trimmed_makes_the_leader_ask_for_another_segment(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster)
            leader, backup, other = log.chain[0].streams[0].members
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                await handle.append(b"a")
                await cluster.stop_node(backup)
                for _ in range(12):  # more than the leader keeps in memory
                    await handle.append_batch([bytes(1 << 20)] * 1)
                for node in (leader, other):  # those that are there trim at once
                    peer = await cluster.to_node(node)
                    await peer.call(Method.TRIM, pb.TrimRequest(replica=replica(log), upto=12), timeout=TIMEOUT_S)
                await cluster.start_node(backup)
                info = await next_segment(handle, 2)
                assert info.chain[1].base == 14
                await handle.append(b"b")
                assert [entry.payload async for entry in handle.subscribe(14, wait=False)] == [b"b"]

    run(story())


def test_nobody_goes_on_behind_a_batch_that_is_not_decided(tmp_path: Path) -> None:
    """The old leader has it alone and does not hear of its end: what it tells of the producer must not count it."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster:
            log = await create(cluster)
            leader, *backups = log.chain[0].streams[0].members
            peer = await cluster.to_node(leader)
            name = producer_id("etl")
            assert (await append(peer, log, batch(b"a", producer=name))).message.glsn == 1
            for backup in backups:
                other = await cluster.to_node(backup)
                await other.call(Method.SEAL, pb.SealRequest(replica=replica(log)), timeout=TIMEOUT_S)
            lost = asyncio.create_task(append(peer, log, batch(b"lost", producer=name, sequence=1)))
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                info = await next_segment(handle, 2)
                assert info.chain[0].end == 2
                async with handle.producer(id="etl") as producer:
                    assert producer.next_sequence == 1
                    await (await producer.send_batch([b"b"]))
                assert [entry.payload async for entry in handle.subscribe(1, wait=False)] == [b"a", b"b"]
            with pytest.raises(Sealed):
                await lost

    run(story())


@pytest.mark.parametrize("place", [0, 1])
def test_a_member_that_lost_its_replica_is_replaced(tmp_path: Path, place: int) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=200) as cluster:
            log = await create(cluster)
            peer = await cluster.to_node(log.chain[0].streams[0].members[place])
            await peer.call(Method.DROP, pb.DropRequest(replica=replica(log)), timeout=TIMEOUT_S)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                await next_segment(client.log("orders"), 2)
                assert (await client.log("orders").append(b"x")).glsn <= 2

    run(story())


@pytest.mark.parametrize("ordering", ["leader", "sequencer"])
def test_members_change_with_the_segment_and_never_inside_one(tmp_path: Path, ordering: str) -> None:
    """What a quorum of the old members had acknowledged could not be told by the new ones."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=100) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering=ordering, replicas=3, streams=1)
            await log.append(b"a")
            before = (await log.info()).chain[0].streams[0].members
            await cluster.stop_node(before[-1])
            while before[-1] in (info := await log.info()).chain[-1].streams[0].members:
                await asyncio.sleep(0.02)
            assert [segment.epoch for segment in info.chain] == [1, 2]
            assert info.chain[0].streams[0].members == before
            assert (await log.append(b"b")).glsn == 2

    run(story())


def test_a_node_that_is_back_with_an_empty_disk_is_another(tmp_path: Path) -> None:
    """What the old one had acknowledged counts as lost with it: the new one is no member until it is made one."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=100) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering="leader", replicas=3)
            assert (await log.append(b"a")).glsn == 1
            before = (await log.info()).chain[0].streams[0].members
            address = cluster.nodes[before[-1]].address
            await cluster.stop_node(before[-1])
            shutil.rmtree(tmp_path / f"node{before[-1]}")
            back = await cluster.start_node(before[-1], listen=address)
            assert [replica.id for replica in back.replicas.all()] == []
            info = await next_segment(log, 2)
            assert info.chain[0].streams[0].members == before
            assert before[-1] not in info.chain[1].streams[0].members
            assert sorted(node.id for node in await client.nodes()) == [1, 2, 3, 4, 5]
            assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [b"a"]

    run(story())


def test_a_repository_that_may_have_lost_the_lead_tells_no_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader that it knows may be an old one, which has answered: another leads, and has been appended to."""

    async def unsure(self: Freshness) -> None:
        raise NotLeader("this repository no longer leads; ask another")

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await create(cluster)
            peer = await cluster.to_repository()
            question = pb.TailRequest(log=log.id)
            assert (await peer.call(Method.TAIL, question, timeout=TIMEOUT_S)).message.tail == 0
            monkeypatch.setattr(Freshness, "confirmed", unsure)
            with pytest.raises(NotLeader):
                await peer.call(Method.TAIL, question, timeout=TIMEOUT_S)

    run(story())


def test_a_tail_is_waited_for_while_the_leader_is_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=200) as cluster:
            log = await create(cluster)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                await handle.append(b"a")
                await cluster.stop_node(log.chain[0].streams[0].members[0])
                asked = await (await cluster.to_repository()).call(
                    Method.TAIL, pb.TailRequest(log=log.id), timeout=TIMEOUT_S
                )
                assert asked.message.tail == 1
                check = await client.check_node(log.chain[0].streams[0].members[1])
                assert not any(stream.empty for stream in check.streams if stream.segment == 1)

    run(story())


def test_a_leader_that_stands_still_is_not_waited_for_once_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had asked for the tail before gets it as soon as appends go on, not when the question has had its time."""
    plain = NodeLinks.lead

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await create(cluster)

            async def still(
                self: NodeLinks, node: NodeId, replica: ReplicaId, timeout_s: float = CALL_TIMEOUT_S
            ) -> pb.ReplicaStatus:
                if replica.segment == 1:
                    await asyncio.sleep(timeout_s)
                    raise varlog.Timeout("it stands still")
                return await plain(self, node, replica, timeout_s)

            monkeypatch.setattr(NodeLinks, "lead", still)
            peer = await cluster.to_repository()
            question = pb.TailRequest(log=log.id)
            asked = asyncio.create_task(peer.call(Method.TAIL, question, timeout=TIMEOUT_S))
            await asyncio.sleep(0.05)
            assert not asked.done()
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                await client.log("orders").reconfigure(roll=True)
                tail = (await asyncio.wait_for(asked, CALL_TIMEOUT_S / 2)).message
                assert (tail.tail, tail.segment) == (0, 2)

    run(story())


def test_appends_to_a_leader_that_was_started_again_wait_for_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=1) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering="leader", replicas=1)
            await log.append(b"first")
            await cluster.stop_repository()  # nobody says which segment follows
            address = cluster.nodes[1].address
            await cluster.stop_node(1)
            starting = asyncio.create_task(cluster.start_node(1, listen=address))
            with pytest.raises((Unavailable, varlog.Timeout, varlog.OutcomeUnknown)):
                await log.append(b"in vain", timeout=3.0)
            later = asyncio.create_task(log.append(b"later"))
            await asyncio.sleep(0.3)
            await cluster.start_repository()
            await starting
            ack = await later
            assert (await log.read(ack.glsn)).payload == b"later"

    run(story())


def test_a_leader_that_has_failed_tells_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has told another what is committed, which shows it, and then could not take it in itself (I10)."""
    plain = Healer._look_at_all
    monkeypatch.setattr(Healer, "_look_at_all", lambda _: None)

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            record = await create(cluster, replicas=2, ack=2)
            log = client.log("orders")
            leading, other = (
                next(iter(cluster.nodes[member].replicas.all())) for member in record.chain[0].streams[0].members
            )
            monkeypatch.setattr(leading, "_bind_released", lambda: None)
            appending = asyncio.create_task(log.append(b"one"))
            while not other.log.committed:
                await asyncio.sleep(0.01)
            leading.fail(DiskFailed("an input or output error"))
            for _ in range(8):  # whichever is asked first, the other one is not left for a tail that nobody tells
                assert (await log.read(1)).payload == b"one"
            with pytest.raises((Unavailable, varlog.Timeout)):
                await log.tail(timeout=1.0)
            monkeypatch.setattr(Healer, "_look_at_all", plain)
            assert await log.tail() == 1
            assert (await appending).glsn == 1

    run(story())


def test_nothing_is_opened_to_follow_what_nobody_can_seal(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await create(cluster, replicas=1)
            [member] = log.chain[0].streams[0].members
            next(iter(cluster.nodes[member].replicas.all())).fail(DiskFailed("an input or output error"))
            while f"node {member} has a replica that failed" not in (await client.status()).logs[0].trouble:
                await asyncio.sleep(0.02)
            peer = await cluster.to_repository()
            known = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S)).message
            assert known.next_stream == log.next_stream, "no attempt has cost a stream"

    run(story())
