"""A journal in a chain: its leader, a client, stores at the first member alone, and commits what all members have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, Servers, run, servers

import varlog
from varlog.base.errors import WrongWriter
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def connected(cluster: Servers) -> varlog.Cluster:
    return varlog.connect(f"varlog://{cluster.repository_address}")


@asynccontextmanager
async def led_chain(
    folder: Path, **settings: int
) -> AsyncIterator[tuple[Servers, varlog.Cluster, varlog.Journal, varlog.JournalLeader]]:
    async with (
        servers(folder, **settings) as cluster,
        connected(cluster) as client,
        client.journal("wal", replication="chain") as journal,
        journal.lead() as leader,
    ):
        yield cluster, client, journal, leader


async def tails(client: varlog.Cluster) -> list[int]:
    (log,) = (await client.status()).logs
    return [each.contiguous for each in log.streams[-1].replicas]


async def members(journal: varlog.Journal) -> list[int]:
    return list((await journal.info()).chain[-1].streams[0].members)


def test_events_pass_along_the_chain_and_are_acknowledged_when_all_have_them() -> None:
    async def story() -> None:
        async with (
            varlog.local_cluster(nodes=3) as cluster,
            cluster.journal("wal", replication="chain") as journal,
            journal.lead() as leader,
        ):
            acks = await asyncio.gather(*(leader.append(b"%d" % number) for number in range(50)))
            assert sorted(ack.glsn for ack in acks) == list(range(1, 51))
            while await tails(cluster) != [50, 50, 50]:  # as reported
                await asyncio.sleep(0.02)
            assert await journal.tail() == 50
            last = (await journal.info()).chain[-1]
            assert (last.ack, last.replication) == (3, "chain")
            assert len([entry async for entry in journal.subscribe(1, wait=False)]) == 50

    run(story())


def test_it_is_switched_between_chain_and_broadcast_while_it_is_led() -> None:
    async def story() -> None:
        async with (
            varlog.local_cluster(nodes=3) as cluster,
            cluster.journal("wal") as journal,
            journal.lead() as leader,
        ):
            for number, replication in enumerate(("chain", "broadcast", "chain"), 1):
                assert (await journal.reconfigure(replication=replication)).chain[-1].replication == replication
                assert (await leader.append(b"event")).glsn == number

    run(story())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_member_is_replaced(tmp_path: Path, place: int) -> None:
    async def story() -> None:
        async with led_chain(tmp_path, nodes=4, lost_ms=100) as (cluster, _, journal, leader):
            await leader.append(b"a")
            await cluster.stop_node((await members(journal))[place])
            assert (await leader.append(b"b")).glsn == 2
            assert [entry.payload async for entry in journal.subscribe(1, wait=False)] == [b"a", b"b"]
            assert (await journal.info()).chain[-1].replication == "chain"

    run(story())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_acknowledged_while_a_member_is_away_and_it_goes_on_when_it_is_back(
    tmp_path: Path, place: int
) -> None:
    async def story() -> None:
        async with led_chain(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, journal, leader):
            await leader.append(b"a")
            away = (await members(journal))[place]
            await cluster.stop_node(away)
            waits = asyncio.create_task(leader.append(b"b"))
            while sum(tail == 2 for tail in await tails(client)) < place:  # those before it have it
                await asyncio.sleep(0.02)
            assert not waits.done()
            await cluster.start_node(away)
            assert (await waits).glsn == 2
            assert (await leader.append(b"c")).glsn == 3
            assert (await journal.info()).chain[-1].epoch == 2  # that of the election: no other has begun

    run(story())


def test_members_pass_on_for_their_leader_alone(tmp_path: Path) -> None:
    """One who was replaced, or never led, gets nothing into the chain, wherever it begins."""

    async def story() -> None:
        async with led_chain(tmp_path, nodes=3) as (cluster, _, journal, leader):
            await leader.append(b"a")
            info = await journal.info()
            last = info.chain[-1]
            for node in await members(journal):
                peer = await cluster.to_node(node)
                request = pb.StoreRequest(log=info.id, segment=last.epoch, stream=last.streams[0].id, slot=1, writer=1)
                with pytest.raises(WrongWriter):
                    await peer.call(Method.STORE, request, timeout=5.0)

    run(story())


def test_the_next_leader_goes_on_in_a_chain() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal", replication="chain") as journal:
            for number in (1, 2, 3):
                async with journal.lead() as leader:
                    assert (await leader.append(b"event")).glsn == number
            assert {segment.replication for segment in (await journal.info()).chain} == {"chain"}

    run(story())


def test_where_nobody_leads_yet_nothing_is_passed_on(tmp_path: Path) -> None:
    """Members would ask each other for ever, in the name of nobody."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            connected(cluster) as client,
            client.journal("wal", replicas=2, replication="chain") as journal,
        ):
            assert [node._replicas.roles.relays for node in cluster.nodes.values()] == [{}, {}]
            async with journal.lead() as leader:
                await leader.append(b"a")
                assert [len(node._replicas.roles.relays) for node in cluster.nodes.values()] == [1, 1]

    run(story())


def test_each_member_passes_on_once_however_often_its_node_registers(tmp_path: Path) -> None:
    async def story() -> None:
        async with led_chain(tmp_path, nodes=3) as (cluster, _, journal, leader):
            await leader.append(b"a")
            for restart in (1, 2):
                await cluster.stop_repository()
                await cluster.start_repository()
                assert (await leader.append(b"b")).glsn == 1 + restart
                for node in cluster.nodes.values():
                    while not node.connected:
                        await asyncio.sleep(0.01)
            epoch = (await journal.info()).chain[-1].epoch
            passing = [
                len(replica.on_group)
                for node in cluster.nodes.values()
                for replica in node.replicas.all()
                if replica.id.segment == epoch
            ]
            assert sorted(passing) == [0, 1, 1]

    run(story())


def test_the_tail_is_known_while_a_member_is_away(tmp_path: Path) -> None:
    """What all have acknowledged the others were told."""

    async def story() -> None:
        async with led_chain(tmp_path, nodes=3, lost_ms=60_000) as (cluster, _, journal, leader):
            await leader.append(b"a")
            first, second, last = await members(journal)
            for node in (first, second):
                while await committed(cluster, journal, node) < 1:
                    await asyncio.sleep(0.01)
            await cluster.stop_node(last)
            assert await journal.tail() == 1
            assert [entry.payload async for entry in journal.subscribe(1, wait=False)] == [b"a"]

    run(story())


def test_those_behind_a_member_that_was_started_again_hear_of_what_is_committed(tmp_path: Path) -> None:
    """It has bound everything already, so hearing of it changes nothing there; but it is the only one who can tell."""

    async def story() -> None:
        async with led_chain(tmp_path, nodes=3, lost_ms=60_000) as (cluster, _, journal, leader):
            first, second, last = await members(journal)
            for node in (second, last):  # as if they had crashed before it was on their disks
                for replica in cluster.nodes[node].replicas.all():
                    replica._bind_released = lambda: None  # type: ignore[method-assign]
            await leader.append(b"a")
            while not any(replica.log.bound for replica in cluster.nodes[first].replicas.all()):
                await asyncio.sleep(0.01)  # on its disk
            for node in (first, second, last):
                await cluster.stop_node(node)
            for node in (last, second, first):
                await cluster.start_node(node)
            nodes = (first, second, last)
            for _ in range(3000):
                found = [await committed(cluster, journal, node) for node in nodes]
                if min(found) == 1:
                    break
                await asyncio.sleep(0.01)
            assert found == [1, 1, 1]

    run(story())


async def committed(cluster: Servers, journal: varlog.Journal, node: int) -> int:
    info = await journal.info()
    last = info.chain[-1]
    name = pb.ReplicaId(log=info.id, segment=last.epoch, stream=last.streams[0].id)
    peer = await cluster.to_node(node)
    found = (await peer.call(Method.LEAD, pb.LeadRequest(replica=name), timeout=5.0)).message
    peer.close()
    assert isinstance(found, pb.ReplicaStatus)
    return found.committed


def test_stores_that_nobody_waits_for_any_more_are_not_kept(tmp_path: Path) -> None:
    """As long as the member behind is away they come again and again, each until its time is up."""

    async def story() -> None:
        async with led_chain(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, journal, leader):
            await leader.append(b"a")
            first, *_, last = await members(journal)
            await cluster.stop_node(last)
            waits = asyncio.create_task(leader.append(b"b"))
            while sum(tail == 2 for tail in await tails(client)) < 2:
                await asyncio.sleep(0.02)
            record = await (await cluster.to_repository()).call(
                Method.GET_LOG, pb.GetLogRequest(name="wal"), timeout=TIMEOUT_S
            )
            assert isinstance(record.message, pb.LogInfo)
            segment = record.message.chain[-1]
            peer = await cluster.to_node(first)
            question = pb.StoreRequest(
                log=record.message.id, segment=segment.epoch, stream=segment.streams[0].id, writer=segment.leader.id
            )
            for _ in range(10):
                with pytest.raises(varlog.Timeout):
                    await peer.call(Method.STORE, question, timeout=0.02)
            (relay,) = (
                each for id_, each in cluster.nodes[first].replicas.roles.relays.items() if id_[1] == segment.epoch
            )
            assert len(relay._waiting) < 5
            await cluster.start_node(last)
            assert (await waits).glsn == 2

    run(story())
