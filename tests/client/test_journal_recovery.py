"""The story of a leader election and recovery, exactly as the design of the shared journal tells it.

member 1   e1  e2  e3      A, who leads epoch 2, has had e1 acknowledged. e2 is on W = 2 of 3 members, e3 on one;
member 2   e1  e2          whether A has told anybody of e2 nobody knows. A dies. B, who waits, is elected under
member 3   e1              epoch 3: the members are sealed, and those that answer tell where epoch 2 ended.
"""

import asyncio
from pathlib import Path

import pytest
from tests.client.test_journal import connected, die, payloads, replica
from tests.servers import TIMEOUT_S, Servers, run, servers

import varlog
from varlog.base.errors import Sealed, WrongWriter
from varlog.node.replica import Replica
from varlog.node.roles import Roles
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def store(
    cluster: Servers, node: int, name: pb.ReplicaId, writer: int, slot: int, event: bytes, *, base: int = 0
) -> None:
    """As a leader does."""
    request = pb.StoreRequest(log=name.log, segment=name.segment, stream=name.stream, writer=writer, slot=slot)
    request.base = base
    peer = await cluster.to_node(node)
    await peer.call(Method.STORE, request, [encode_batch([event])], timeout=TIMEOUT_S)


async def leader_id(cluster: Servers) -> int:
    peer = await cluster.to_repository()
    log = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name="wal"), timeout=TIMEOUT_S)).message
    assert isinstance(log, pb.LogInfo)
    return log.chain[-1].leader.id


@pytest.mark.parametrize(
    ("silent", "recovered"),
    [
        (None, [b"e1", b"e2"]),  # all tell: e3 is on one member, and was never acknowledged
        (0, [b"e1", b"e2"]),  # e2 may have been: the silent one may have it, too
        (1, [b"e1", b"e2", b"e3"]),  # so may e3, if the silent one has it
        (2, [b"e1", b"e2", b"e3"]),
    ],
)
def test_election_and_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: int | None, recovered: list[bytes]
) -> None:
    settling = asyncio.Event()
    plain = Roles.settle

    async def settle_later(self: Roles, of: Replica, request: pb.FinishRequest) -> None:
        await settling.wait()
        await plain(self, of, request)

    monkeypatch.setattr(Roles, "settle", settle_later)

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=60_000) as cluster, connected(cluster) as client:
            await client.journal("wal").__aenter__()
            await client.log("wal").reconfigure(members=[1, 2, 3])
            journal = client.journal("wal")
            a = await journal.lead(ttl=0.8, name="A").__aenter__()
            while True:  # until it leads on the first three
                name, members = await replica(client, "wal")
                if sorted(members) == [1, 2, 3]:
                    break
                await journal.reconfigure(members=[1, 2, 3])
            assert (await a.append(b"e1")).glsn == 1
            writer = await leader_id(cluster)
            assert a._leadership._segment is not None
            await a._leadership._segment.release(TIMEOUT_S)
            await a._leadership._segment.close()  # it has sent this, and no more is heard of it
            await die(a)
            for node in members[:2]:
                await store(cluster, node, name, writer, 1, b"e2")
            await store(cluster, members[0], name, writer, 2, b"e3")
            with pytest.raises(WrongWriter):
                await store(cluster, members[2], name, writer + 1, 1, b"not A")
            if silent is not None:
                await cluster.stop_node(members[silent])

            b = await journal.lead(ttl=5.0, name="B").__aenter__()
            info = await journal.info()
            assert [each.leader for each in info.chain][-2:] == ["A", "B"]
            assert info.chain[-2].end == info.chain[-1].base == len(recovered) + 1
            assert (await b.append(b"b")).glsn == len(recovered) + 1, "acknowledged before anything is settled"
            alive = members[0] if silent != 0 else members[1]
            with pytest.raises(Sealed):
                await store(cluster, alive, name, writer, 3 if alive == members[0] else 2, b"late")
            settling.set()
            if silent is not None:
                await cluster.start_node(members[silent])
            assert await payloads(journal) == [*recovered, b"b"]
            with pytest.raises(varlog.Fenced):
                await a.append(b"late")
            while any(each.state != "finished" for each in await ended_replicas(client)):
                await asyncio.sleep(0.02)

    run(story())


async def ended_replicas(client: varlog.Cluster) -> list[varlog.ReplicaStatus]:
    """Of all segments but the last."""
    (log,) = (await client.status()).logs
    last = log.log.chain[-1].epoch
    return [each for stream in log.streams if stream.segment != last for each in stream.replicas]
