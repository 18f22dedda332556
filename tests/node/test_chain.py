"""Chain replication under `leader`: each member stores at the next, and an answer means that all behind it have it."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, Servers, read_parts, run, servers

import varlog
from varlog.base.errors import InvalidArgument
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in


def connected(cluster: Servers) -> varlog.Cluster:
    return varlog.connect(f"varlog://{cluster.repository_address}")


async def status(client: varlog.Cluster) -> list[varlog.ReplicaStatus]:
    (log,) = (await client.status()).logs
    return list(log.streams[-1].replicas)


def test_entries_pass_along_the_chain_and_are_acknowledged_when_all_have_them() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=4) as cluster:
            log = await cluster.create_log("orders", ordering="leader", replicas=4, replication="chain")
            acks = await asyncio.gather(*(log.append(b"%d" % number) for number in range(50)))
            assert sorted(ack.glsn for ack in acks) == list(range(1, 51))
            assert await log.tail() == 50
            last = (await log.info()).chain[-1]
            assert (last.ack, last.replication) == (4, "chain")
            while min(each.contiguous for each in await status(cluster)) < 50:
                await asyncio.sleep(0.02)
            assert len([entry async for entry in log.subscribe(1, wait=False)]) == 50
            changed = await log.reconfigure(replication="broadcast")
            assert (changed.chain[-1].replication, changed.chain[-1].ack) == ("broadcast", 3)
            await log.append(b"next")
            assert (await log.reconfigure(replication="chain", replicas=3)).chain[-1].ack == 3
            assert (await log.reconfigure(ordering="cut")).chain[-1].replication == ""
            assert (await log.append(b"last")).glsn == 52

    run(story())


def test_what_makes_no_sense_is_refused() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            with pytest.raises(InvalidArgument):
                await cluster.create_log("orders", replication="chain")
            with pytest.raises(InvalidArgument):
                await cluster.create_log("orders", ordering="leader", replication="ring")
            with pytest.raises(InvalidArgument):
                await cluster.create_log("orders", ordering="leader", replication="chain", ack=4)
            with pytest.raises(InvalidArgument):
                await cluster.create_log("orders", ordering="leader", replication="chain", ack=4, journal=True)

    run(story())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_member_of_a_chain_is_replaced(tmp_path: Path, place: int) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=100) as cluster, connected(cluster) as client:
            log = await client.create_log("orders", ordering="leader", replicas=3, replication="chain")
            await log.append(b"a")
            await cluster.stop_node((await log.info()).chain[-1].streams[0].members[place])
            assert (await log.append(b"b")).glsn == 2
            assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [b"a", b"b"]
            assert (await log.info()).chain[-1].replication == "chain"

    run(story())


def test_nothing_is_acknowledged_that_the_end_of_the_chain_lacks(tmp_path: Path) -> None:
    """The last member is away: the middle one has it, and does not answer. Back again, it is brought up from there."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster, connected(cluster) as client:
            log = await client.create_log("orders", ordering="leader", replicas=3, replication="chain")
            await log.append(b"a")
            info = await log.info()
            last = info.chain[-1].streams[0].members[2]
            await cluster.stop_node(last)
            waits = asyncio.create_task(log.append(b"b"))
            while sum(each.contiguous == 2 for each in await status(client)) < 2:
                await asyncio.sleep(0.02)
            assert not waits.done()
            await cluster.start_node(last)
            assert (await waits).glsn == 2
            peer = await cluster.to_node(last)
            name = pb.ReplicaId(log=info.id, segment=1, stream=1)
            found = (await peer.call(Method.LEAD, pb.LeadRequest(replica=name), timeout=TIMEOUT_S)).message
            assert isinstance(found, pb.ReplicaStatus)
            assert found.contiguous == 2

    run(story())


def test_a_middle_member_that_was_started_again_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster, connected(cluster) as client:
            log = await client.create_log("orders", ordering="leader", replicas=3, replication="chain")
            await log.append(b"a")
            middle = (await log.info()).chain[-1].streams[0].members[1]
            await cluster.stop_node(middle)
            waits = asyncio.create_task(log.append(b"b"))
            await asyncio.sleep(0.1)
            await cluster.start_node(middle)
            assert (await waits).glsn == 2
            assert (await log.append(b"c")).glsn == 3
            assert (await log.info()).chain[-1].epoch == 1

    run(story())


def test_a_middle_member_that_lost_its_end_gets_it_again(tmp_path: Path) -> None:
    """It had passed on what was not on its own disk yet when its power failed: the one behind it has more than it."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=60_000) as cluster, connected(cluster) as client:
            log = await client.create_log("orders", ordering="leader", replicas=3, replication="chain")
            await log.append(b"a")
            first, middle, last = (await log.info()).chain[-1].streams[0].members
            await cluster.stop_node(middle)
            waits = asyncio.create_task(log.append(b"b"))
            while max(each.contiguous for each in await status(client)) < 2:
                await asyncio.sleep(0.02)
            await _pass_on(cluster, pb.LogInfo(id=(await log.info()).id), first, last)
            await cluster.start_node(middle)
            assert (await waits).glsn == 2
            assert (await log.append(b"c")).glsn == 3
            assert (await log.info()).chain[-1].epoch == 1

    run(story())


async def _pass_on(cluster: Servers, log: pb.LogInfo, source: int, target: int) -> None:
    """Store what is at slot 1 of one member at another, as the one between them did in its first life."""
    (part,) = await read_parts(await cluster.to_node(source), log, slot=1, stored=True)
    request = pb.StoreRequest(log=log.id, segment=1, stream=1, slot=1, writer=1)
    peer = await cluster.to_node(target)
    found = (await peer.call(Method.STORE, request, list(batches_in(part.body)), timeout=TIMEOUT_S)).message
    assert isinstance(found, pb.ReplicaStatus)
    assert found.contiguous == 2
