"""Nodes are lost: streams they were in end at their last cut, and others take their place."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, Servers, append, batch, run, servers

import varlog
from varlog.base.errors import NotFound, Sealed, Unavailable
from varlog.transport.peer import Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def log_info(cluster: Servers, name: str = "orders") -> pb.LogInfo:
    peer = await cluster.to_repository()
    try:
        info = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name=name), timeout=TIMEOUT_S)).message
    finally:
        peer.close()
    assert isinstance(info, pb.LogInfo)
    return info


async def healed(cluster: Servers, streams: int) -> list[pb.StreamInfo]:
    """The streams, once there are so many in all."""
    while len(found := (await log_info(cluster)).chain[-1].streams) < streams:
        await asyncio.sleep(0.05)
    return list(found)


async def ask(cluster: Servers, node: int, log: pb.LogInfo, data: bytes) -> Reply:
    """What a member of a stream that has ended says about an append; it may not have heard of the end yet."""
    while True:
        try:
            return await append(await cluster.to_node(node), log, data)
        except (NotFound, Unavailable):
            await asyncio.sleep(0.02)


def test_a_lost_primary_is_replaced_and_what_was_sent_is_settled(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4) as cluster:
            log = await cluster.create_log()
            primary, backup, other = log.chain[0].streams[0].members
            assert (await append(await cluster.to_node(primary), log, batch(b"a", b"b"))).message.glsn == 1
            await cluster.stop_node(primary)
            old, new = await healed(cluster, 2)
            assert (old.state, old.end_slot) == (pb.STREAM_FINALIZED, 2)
            assert (new.state, new.id) == (pb.STREAM_WRITABLE, 2)
            assert primary not in new.members
            assert len(set(new.members)) == 3
            for node in (backup, other):
                assert (await ask(cluster, node, log, batch(b"a", b"b"))).message.glsn == 1, "it is in the log"
                with pytest.raises(Sealed):
                    await ask(cluster, node, log, batch(b"c", sequence=1))
            peer = await cluster.to_node(new.members[0])
            assert (await append(peer, log, batch(b"c"), stream=2)).message.glsn == 3
            await cluster.start_node(primary)  # with its data: it is told where its replica ends
            assert (await ask(cluster, primary, log, batch(b"a", b"b"))).message.glsn == 1
            assert len((await log_info(cluster)).chain[-1].streams) == 2

    run(story())


@pytest.mark.parametrize("ordering", ["sequencer", "leader"])
def test_a_node_that_is_started_again_and_again_leads_no_more_and_keeps_its_copy(tmp_path: Path, ordering: str) -> None:
    """Else the log went on to another segment each time."""

    async def story() -> None:
        async with (
            servers(tmp_path, lost_ms=60_000) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering=ordering, replicas=3)
            shaky = (await log.info()).chain[0].streams[0].members[0]
            for _ in range(3):
                await log.append(b"a")
                address = cluster.nodes[shaky].address
                await cluster.stop_node(shaky)
                await cluster.start_node(shaky, listen=address)
                while len((await log_info(cluster)).chain) == 1:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            await log.append(b"b")
            first, second = (await log_info(cluster)).chain
            members = second.streams[0].members
            assert members[0] != shaky
            assert sorted(members) == sorted(first.streams[0].members)

    run(story())


def test_callers_notice_nothing_but_a_pause(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            log = await connected.create_log("orders", replicas=3, streams=2)
            members = [stream.members for stream in (await log_info(cluster)).chain[0].streams]
            sent: dict[int, bytes] = {}

            async def writer(number: int) -> None:
                for count in range(150):
                    payload = f"{number}.{count}".encode()
                    sent[(await log.append(payload, timeout=30)).glsn] = payload
                    await asyncio.sleep(0.01)

            writers = [asyncio.create_task(writer(number)) for number in range(8)]
            await asyncio.sleep(0.3)
            await cluster.stop_node(members[0][0])
            await asyncio.gather(*writers)
            found = {entry.glsn: bytes(entry.payload) async for entry in log.subscribe(stop=await log.tail() + 1)}
            assert found == sent
            while True:  # those who write may be done before the last stream that ended is replaced
                streams = (await log_info(cluster)).chain[-1].streams
                hurt = [stream.state for stream in streams if members[0][0] in stream.members]
                if all(state == pb.STREAM_FINALIZED for state in hurt):
                    break
                await asyncio.sleep(0.02)
            assert sum(stream.state == pb.STREAM_WRITABLE for stream in streams) == 2

    run(story())


def test_with_too_few_nodes_a_stream_waits_for_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log(ack=3)
            primary, backup, _ = log.chain[0].streams[0].members
            await cluster.stop_node(backup)
            waiting = asyncio.ensure_future(append(await cluster.to_node(primary), log, batch(b"a"), timeout=30))
            await asyncio.sleep(2.5)
            assert not waiting.done()
            assert len((await log_info(cluster)).chain[-1].streams) == 1
            await cluster.start_node(backup)
            assert (await waiting).message.glsn == 1

    run(story())


def test_a_repository_that_restarts_knows_what_has_ended(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4) as cluster:
            log = await cluster.create_log()
            primary = log.chain[0].streams[0].members[0]
            await append(await cluster.to_node(primary), log, batch(b"a"))
            await cluster.stop_node(primary)
            _, new = await healed(cluster, 2)
            await cluster.stop_repository()
            await cluster.start_repository()
            peer = await cluster.to_node(new.members[0])
            assert (await append(peer, log, batch(b"b"), stream=new.id)).message.glsn == 2
            await cluster.start_node(primary)
            with pytest.raises(Sealed):
                await ask(cluster, primary, log, batch(b"c", sequence=1))
            assert len((await log_info(cluster)).chain[-1].streams) == 2

    run(story())


def test_a_named_producer_goes_on_in_sequence_on_another_stream(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            log = await connected.create_log("orders", replicas=3, streams=1)
            async with log.producer(id="etl", linger=0) as producer:
                acks = [await (await producer.send_batch([b"%d" % number], sequence=number)) for number in range(3)]
            await cluster.stop_node((await log_info(cluster)).chain[0].streams[0].members[0])
            await healed(cluster, 2)
            async with log.producer(id="etl", linger=0) as producer:
                await producer.open()
                assert producer.next_sequence == 3
                again = [await (await producer.send_batch([b"%d" % number], sequence=number)) for number in range(3)]
                assert again == acks, "they are in the log already, in a stream that has ended"
                more = await (await producer.send_batch([b"3"], sequence=3))
                assert (more.glsn, more.stream) == (4, 2)
            found = [bytes(entry.payload) async for entry in log.subscribe(stop=await log.tail() + 1)]
            assert found == [b"0", b"1", b"2", b"3"]

    run(story())


def test_a_named_producer_that_comes_back_to_a_stream_goes_on_behind_what_it_sent_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            log = await connected.create_log("orders", replicas=3, streams=2)
            acks = []
            for stream in (1, 2):
                async with log.producer(id="etl", stream=stream, linger=0) as producer:
                    await producer.open()
                    for _ in range(2):
                        number = producer.next_sequence
                        acks.append(await (await producer.send_batch([b"%d" % number], sequence=number)))
            assert [ack.stream for ack in acks] == [1, 1, 2, 2]
            await log.reconfigure(streams=1)  # the second ends
            async with log.producer(id="etl", stream=1, linger=0) as producer:
                await producer.open()
                assert producer.next_sequence == 4
                again = [await (await producer.send_batch([b"%d" % number], sequence=number)) for number in (2, 3)]
                assert again == acks[2:]
                assert (await (await producer.send_batch([b"4"], sequence=4))).glsn == 5
            found = [bytes(entry.payload) async for entry in log.subscribe(stop=await log.tail() + 1)]
            assert found == [b"0", b"1", b"2", b"3", b"4"]

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_a_named_producer_moves_though_the_next_stream_is_lost_before_it_heard_of_it(
    tmp_path: Path, ordering: str
) -> None:
    """That stream knows nothing of the producer, which does not mean that somebody else uses the name."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=500) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("moved", ordering=ordering, replicas=2, streams=1)
            async with log.producer(id="etl", linger=0) as producer:
                assert (await (await producer.send(b"a"))).glsn == 1
                await log.reconfigure(roll=True)
                primary = (await log.info()).chain[-1].streams[0].members[0]
                await cluster.stop_node(primary)
                assert (await (await producer.send(b"b"))).glsn == 2
                assert producer.next_sequence == 2

    run(story())


def test_a_log_that_cannot_be_healed_holds_nobody_else_up(tmp_path: Path) -> None:
    """What was acknowledged in it only the lost node can tell. Others leave a node that drains nevertheless."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            stuck = await connected.create_log("stuck", ordering="leader", replicas=1)
            (lost,) = (await stuck.info()).chain[0].streams[0].members
            await cluster.stop_node(lost)
            while not (await connected.status()).logs[0].trouble:
                await asyncio.sleep(0.02)
            other = await connected.create_log("other", replicas=1)
            (leaving,) = (await other.info()).chain[0].streams[0].members
            await connected.drain_node(leaving)
            while leaving in (await other.info()).chain[-1].streams[-1].members:
                await asyncio.sleep(0.02)
            assert (await other.append(b"a")).glsn == 1
            assert (await connected.status()).logs[0].trouble

    run(story())
