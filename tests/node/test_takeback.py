"""A primary that was started again: it takes back what its backups have before it takes appends (S4)."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, Servers, append, batch, read_parts, run, servers

from varlog.base.errors import Unavailable, WrongWriter
from varlog.transport.peer import Peer, Reply
from varlog.wire.batch import Batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records


async def store(peer: Peer, log: pb.LogInfo, slot: int, data: bytes, writer: int) -> pb.ReplicaStatus:
    """As the primary does it."""
    request = pb.StoreRequest(log=log.id, segment=1, stream=1, slot=slot, writer=writer)
    status = (await peer.call(Method.STORE, request, [data], timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def append_when_open(cluster: Servers, node: int, log: pb.LogInfo, data: bytes) -> Reply:
    """A primary that was just started refuses appends until it has heard all its backups."""
    while True:
        try:
            return await append(await cluster.to_node(node), log, data)
        except Unavailable:
            await asyncio.sleep(0.02)


def payloads(parts: list[Reply]) -> list[bytes]:
    found: list[bytes] = []
    for part in parts:
        for record in walk_records(memoryview(part.body)):
            if record.kind == RecordKind.BATCH:
                found += Batch(memoryview(part.body)[record.body : record.body + record.length]).payloads()
    return found


def test_what_only_a_backup_has_keeps_its_slots(tmp_path: Path) -> None:
    """The copy arrived, the primary lost power before its own sync: the batch was never acked, and is in the log."""

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary, backup, other = log.chain[0].streams[0].members
            assert (await append(await cluster.to_node(primary), log, batch(b"a"))).message.glsn == 1
            await cluster.stop_node(primary)
            lost = batch(b"lost by the primary", sequence=1)
            assert (await store(await cluster.to_node(backup), log, 1, lost, writer=1)).contiguous == 2
            await cluster.start_node(primary)
            again = await append_when_open(cluster, primary, log, lost)  # its client sends it again
            assert (again.message.glsn, again.message.slot) == (2, 1)
            assert (await append(await cluster.to_node(primary), log, batch(b"c", sequence=2))).message.glsn == 3
            for node in (primary, backup, other):
                peer = await cluster.to_node(node)
                while len(found := payloads(await read_parts(peer, log, slot=0))) < 3:
                    await asyncio.sleep(0.02)
                assert found == [b"a", b"lost by the primary", b"c"]

    run(story())


def test_no_append_is_taken_before_every_backup_has_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary, backup, _ = log.chain[0].streams[0].members
            await append(await cluster.to_node(primary), log, batch(b"a"))
            await cluster.stop_node(backup)
            await cluster.stop_node(primary)
            await cluster.start_node(primary)
            peer = await cluster.to_node(primary)
            question = pb.ProducerRequest(log=log.id, segment=1, stream=1, producer=b"producer-one-16b")
            for _ in range(5):
                with pytest.raises(Unavailable, match="started again"):
                    await append(peer, log, batch(b"b", sequence=1))
                with pytest.raises(Unavailable, match="started again"):
                    await peer.call(Method.PRODUCER, question, timeout=TIMEOUT_S)
                await asyncio.sleep(0.05)
            await cluster.start_node(backup)
            assert (await append_when_open(cluster, primary, log, batch(b"b", sequence=1))).message.glsn == 2

    run(story())


def test_a_copy_from_an_earlier_life_of_the_primary_comes_too_late(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary, backup, _ = log.chain[0].streams[0].members
            await append(await cluster.to_node(primary), log, batch(b"a"))
            await cluster.stop_node(primary)
            await cluster.start_node(primary)
            await append_when_open(cluster, primary, log, batch(b"b", sequence=1))
            peer = await cluster.to_node(backup)
            with pytest.raises(WrongWriter):
                await store(peer, log, 2, batch(b"a straggler", sequence=2), writer=1)
            assert (await append(await cluster.to_node(primary), log, batch(b"c", sequence=2))).message.slot == 2

    run(story())


def test_a_primary_that_is_sealed_waits_for_nobody_any_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await cluster.create_log(replicas=2)
            primary, backup = log.chain[0].streams[0].members
            await cluster.stop_node(backup)
            await cluster.stop_node(primary)
            await cluster.start_node(primary)
            replica = cluster.nodes[primary].replicas.all()[0]
            while not replica.trouble.startswith("takes no appends yet: node"):
                await asyncio.sleep(0.02)
            peer = await cluster.to_repository()
            await peer.call(Method.SEAL_LOG, pb.SealLogRequest(log=log.id), timeout=TIMEOUT_S)
            while replica.trouble or replica.log.end is None:  # it is finished behind the seal
                await asyncio.sleep(0.02)
            assert replica.log.end == 0

    run(story())
