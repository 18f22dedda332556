"""Rot in a replica: found by a scrub or by whoever reads it, reported, and repaired from the other copies."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.node.test_takeback import payloads
from tests.repository.test_healer import healed, log_info
from tests.repository.test_rebuilder import fill, seal, status
from tests.servers import TIMEOUT_S, Servers, append, batch, read_parts, run, servers

import varlog
from varlog.base.errors import Corrupt
from varlog.wire.batch import MAGIC, check_batch, encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

DATA = "00000000000000000000.data"


def folders(cluster: Servers, node: int) -> list[Path]:
    return sorted((cluster.folder / f"node{node}" / "replicas").glob("1.1.1*"))


def flip(cluster: Servers, node: int, content: bytes) -> None:
    (folder,) = folders(cluster, node)
    data = (folder / DATA).read_bytes()
    with (folder / DATA).open("r+b") as file:
        file.seek(data.index(content))
        file.write(b"X")


async def scrub(cluster: Servers, node: int) -> pb.NodeInfo:
    peer = await cluster.to_repository()
    answer = (await peer.call(Method.SCRUB_NODE, pb.ScrubNodeRequest(node_id=node), timeout=TIMEOUT_S)).message
    peer.close()
    assert isinstance(answer, pb.NodeInfo)
    return answer


async def node_until(cluster: Servers, node: int, enough: Callable[[pb.ScrubStatus], bool]) -> pb.ScrubStatus:
    while True:
        found = next(each for each in (await status(cluster)).nodes if each.id == node)
        if enough(found.scrub):
            return found.scrub
        await asyncio.sleep(0.02)


async def trouble_until(cluster: Servers, enough: Callable[[str], bool]) -> str:
    while not enough(trouble := (await status(cluster)).logs[0].streams[0].trouble):
        await asyncio.sleep(0.02)
    return trouble


async def finished(cluster: Servers, log: pb.LogInfo) -> None:
    await seal(cluster, log)
    while any(each.state != pb.REPLICA_FINISHED for each in (await status(cluster)).logs[0].streams[0].replicas):
        await asyncio.sleep(0.02)


async def read(cluster: Servers, node: int, log: pb.LogInfo, slot: int = 0) -> list[bytes]:
    return payloads(await read_parts(await cluster.to_node(node), log, slot=slot))


def test_rot_in_an_ended_stream_is_found_and_made_anew_in_its_place(tmp_path: Path) -> None:
    """Also where there is no other node that could take it."""

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log)
            await finished(cluster, log)
            victim = members[1]
            flip(cluster, victim, sent[8])
            before = await scrub(cluster, victim)
            assert not before.scrub.found
            counted = await node_until(cluster, victim, lambda scrub: scrub.repaired > 0)
            assert (counted.found, counted.repaired) == (1, 1)
            await trouble_until(cluster, lambda trouble: not trouble)
            assert await read(cluster, victim, log) == sent
            stream = (await log_info(cluster)).chain[0].streams[0]
            assert list(stream.members) == members
            assert not stream.HasField("copy")
            (folder,) = folders(cluster, victim)
            assert folder.name.startswith("1.1.1."), "another folder, by the number of the copy"
            await cluster.stop_node(victim)
            await cluster.start_node(victim)
            assert await read(cluster, victim, log) == sent

    run(story())


def test_who_reads_finds_rot_for_all_and_an_open_stream_is_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            victim = log.chain[0].streams[0].members[0]
            sent = await fill(cluster, log)
            flip(cluster, victim, sent[8])
            with pytest.raises(Corrupt):
                await read(cluster, victim, log, slot=8)
            await healed(cluster, 2)
            counted = await node_until(cluster, victim, lambda scrub: scrub.repaired > 0)
            assert counted.found == 1
            assert await read(cluster, victim, log) == sent
            assert (await log_info(cluster)).chain[0].streams[0].members[0] == victim
            peer = await cluster.to_node(victim)
            again = await append(peer, log, batch(sent[2], sent[2], sequence=1))
            assert again.message.slot == 2, "it knows what it had before"

    run(story())


async def subscription_names_the_range(cluster: Servers) -> None:
    async with varlog.connect(f"varlog://{cluster.repository_address}") as connected:
        subscription = aiter(connected.log("orders").subscribe(start=1))
        assert [(await anext(subscription)).glsn for _ in range(8)] == list(range(1, 9))
        with pytest.raises(Corrupt) as raised:
            await anext(subscription)
    assert "damaged: slots 8 to 9 (positions 9 to 10)" in raised.value.message
    assert raised.value.message.endswith("(stream 1 cannot be read from position 9 on up to 40)")


def test_of_the_only_copy_the_rest_stays_readable_and_the_range_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            log = await cluster.create_log(replicas=1)
            sent = await fill(cluster, log)
            await finished(cluster, log)
            flip(cluster, 1, sent[8])
            await scrub(cluster, 1)
            trouble = await trouble_until(cluster, lambda trouble: "unavailable" in trouble)
            assert "slots 8 to 9 (positions 9 to 10) are unavailable" in trouble
            assert await read(cluster, 1, log, slot=10) == sent[10:]
            await subscription_names_the_range(cluster)
            (damage,) = (await status(cluster)).logs[0].streams[0].replicas[0].damage
            assert (damage.slot, damage.end_slot, damage.glsn, damage.end_glsn) == (8, 10, 9, 11)
            await cluster.stop_node(1)
            await cluster.start_node(1)
            # it is not opened again
            await trouble_until(cluster, lambda trouble: "slots 0 to 39 (positions 1 to 40) are unavailable" in trouble)

    run(story())


async def forge(cluster: Servers, node: int, payload: bytes) -> None:
    """Put another batch in the place of one, with checksums that are right."""
    await cluster.stop_node(node)
    (folder,) = folders(cluster, node)
    data = bytearray((folder / DATA).read_bytes())
    for at in range(0, len(data), 8):
        if data[at : at + 4] == MAGIC:
            header = check_batch(memoryview(data)[at:])
            if payload in data[at : at + header.total_bytes]:
                other = bytes(reversed(payload))
                forged = encode_batch(
                    [other, other], producer=header.producer, sequence=header.sequence, time_us=header.time_us
                )
                data[at : at + len(forged)] = forged
                break
    (folder / DATA).write_bytes(data)
    await cluster.start_node(node)


def test_a_replica_that_differs_from_all_others_is_made_anew_though_its_checksums_are_right(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            victim = log.chain[0].streams[0].members[2]
            sent = await fill(cluster, log)
            await finished(cluster, log)
            await forge(cluster, victim, sent[8])
            assert (await read(cluster, victim, log))[8] == bytes(reversed(sent[8]))
            for node in (1, 2, 3):
                await scrub(cluster, node)
            await node_until(cluster, victim, lambda scrub: scrub.repaired > 0)
            assert await read(cluster, victim, log) == sent

    run(story())


def test_of_two_that_differ_none_is_believed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await cluster.create_log(replicas=2)
            sent = await fill(cluster, log)
            await finished(cluster, log)
            await forge(cluster, 2, sent[8])
            for node in (1, 2):
                await scrub(cluster, node)
            trouble = await trouble_until(cluster, lambda trouble: "differ" in trouble)
            assert "differ in slots 8 to 9 (positions 9 to 10), and both match their checksums" in trouble
            assert (await read(cluster, 2, log))[8] != (await read(cluster, 1, log))[8] == sent[8]
            assert not (await log_info(cluster)).chain[0].streams[0].HasField("copy")

    run(story())


def test_two_who_meet_the_same_damage_have_it_looked_at_once_and_scrubs_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await cluster.create_log(replicas=2)
            await fill(cluster, log, 5)
            await finished(cluster, log)
            node = log.chain[0].streams[0].members[0]
            flip(cluster, node, b"entry 3")
            [replica] = cluster.nodes[node].replicas.all()
            scrubber = cluster.nodes[node]._scrubber
            for _ in range(2):
                scrubber.suspect(replica)
            assert len(scrubber._scope) == 1
            told = await node_until(cluster, node, lambda scrub: scrub.repaired > 0)
            assert told.found == 1
            before = (await scrub(cluster, node)).scrub.passes
            await node_until(cluster, node, lambda scrub: scrub.passes > before)

    run(story())
