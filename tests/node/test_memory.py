"""What a node keeps in memory does not grow with the time it runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.servers import Servers, append, batch, run, servers

import varlog
from varlog.base.errors import VarlogError
from varlog.core.replica import ReplicaState
from varlog.node.replica import Replica
from varlog.node.waiters import FEW, Waiters
from varlog.storage.replica_log import ReplicaLog, Run
from varlog.transport.request import Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_who_waits_no_longer_is_forgotten() -> None:
    async def story() -> None:
        waiters = Waiters()
        patient = waiters.add()
        for _ in range(1000):
            waiters.add().cancel()
            assert len(waiters) <= FEW
        waiters.wake()
        assert patient.done()
        assert not waiters

    run(story())


def replicas(cluster: Servers) -> list[Replica]:
    return [replica for node in cluster.nodes.values() for replica in node.replicas.all()]


def callbacks(cluster: Servers) -> int:
    """Who wants to hear of the end of a connection between nodes."""
    known = [known for node in cluster.nodes.values() for known in node._pool._places.values()]
    peers = [each.peer for each in known if each.peer is not None]
    return sum(len(peer._on_close) for peer in peers)


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_of_segments_that_have_ended_nothing_is_kept(tmp_path: Path, ordering: str) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3, heartbeat_ms=20) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering=ordering, replicas=3)
            most = 0
            for number in range(6):
                await log.append(bytes(10_000))
                await log.reconfigure(roll=True)
                while sum(each.state is ReplicaState.FINISHED for each in replicas(cluster)) < 3 * (number + 1):
                    await asyncio.sleep(0.01)
                await log.append(b"next")  # by now its members are connected
                most = max(most, callbacks(cluster)) if number < 2 else most
                assert callbacks(cluster) <= most
            ended = [each for each in replicas(cluster) if each.state is ReplicaState.FINISHED]
            assert not any(each._recent or each._recent_bytes or each.last_store for each in ended)
            assert not any(each.log._writer.recent for each in ended)

    run(story())


def test_an_append_that_comes_again_and_again_is_kept_as_often_as_somebody_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=60_000) as cluster:
            log = await cluster.create_log(replicas=2)
            primary, backup = log.chain[0].streams[0].members
            await cluster.stop_node(backup)
            peer = await cluster.to_node(primary)
            for _ in range(20):
                with pytest.raises(VarlogError):
                    await append(peer, log, batch(b"a"), timeout=0.05)
            [each] = cluster.nodes[primary].replicas.roles._primaries.values()
            assert len(each._repeated) < 5
            await cluster.start_node(backup)
            assert (await append(peer, log, batch(b"a"))).message.glsn == 1

    run(story())


def test_nothing_is_read_for_a_reader_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not taken would lie in memory, for each stream that it asked for."""
    read, sent = [], []
    plain_read, plain_part = ReplicaLog.read, Request.part

    async def counted_read(self: ReplicaLog, *arguments: Any) -> Run:
        read.append(1)
        return await plain_read(self, *arguments)

    async def counted_part(self: Request, *arguments: Any, **more: Any) -> None:
        await plain_part(self, *arguments, **more)
        sent.append(1)

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            log = await cluster.create_log(replicas=1)
            peer = await cluster.to_node(1)
            for number in range(40):
                await append(peer, log, batch(bytes(100_000), sequence=number))
            monkeypatch.setattr(ReplicaLog, "read", counted_read)
            monkeypatch.setattr(Request, "part", counted_part)
            request = pb.ReadRequest(log=log.id, segment=1, stream=1, slot=0, part_bytes=100_000)
            async with peer.stream(Method.READ, request, window_bytes=1 << 20, timeout=60.0) as parts:
                while len(sent) < 10:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                assert len(read) == len(sent) < 20
                assert len([part async for part in parts]) >= 40

    run(story())
