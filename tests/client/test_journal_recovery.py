"""The stories of election and recovery, and of replacing, exactly as the design of the shared journal tells them.

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


@pytest.mark.parametrize("replication", ["broadcast", "chain"])
def test_replacing(tmp_path: Path, replication: str) -> None:
    """A member of the open segment is lost: that is sealed, and its leader goes on under the next epoch with those that
    are well. Then the lost replica is restored elsewhere, and replaced by one change. If none survives, nothing is
    guessed, and people are told.
    """

    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=200, rebuild_ms=300) as cluster, connected(cluster) as client:
            journal = client.journal("wal", replication=replication)
            async with journal, journal.lead(ttl=TIMEOUT_S, name="A") as a:
                assert (await a.append(b"e1")).glsn == 1
                name, members = await replica(client, "wal")
                lost, spare = members[1], next(node for node in range(1, 5) if node not in members)
                await cluster.stop_node(lost)
                assert (await a.append(b"e2")).glsn == 2
                while a.epoch <= name.segment:
                    await asyncio.sleep(0.01)
                assert (await a.append(b"e3")).glsn == 3
                sealed, last = (await journal.info()).chain[name.segment - 1 :]
                assert (sealed.leader, last.leader, last.epoch) == ("A", "A", name.segment + 1)
                assert sorted(last.streams[0].members) == sorted({1, 2, 3, 4} - {lost})
                assert sealed.end == last.base in (2, 3)

                restored = [spare if node == lost else node for node in members]
                while (now := await members_of(journal, name)) != restored:
                    assert now == list(members), "the lost one's name is there until the copy is complete"
                    await asyncio.sleep(0.005)
                peer = await cluster.to_node(spare)
                copy = (await peer.call(Method.LEAD, pb.LeadRequest(replica=name), timeout=TIMEOUT_S)).message
                assert isinstance(copy, pb.ReplicaStatus)
                assert (copy.state, copy.contiguous) == (pb.REPLICA_FINISHED, last.base - 1)
                assert await payloads(journal) == [b"e1", b"e2", b"e3"]

            for node in restored:
                await cluster.stop_node(node)
            while not any("unavailable" in why for why in await troubles(client, name)):
                await asyncio.sleep(0.05)
            assert await members_of(journal, name) == restored
            await cluster.start_node(spare)  # one is enough
            found = [entry.payload async for entry in journal.subscribe(1, 2)]
            assert found == [b"e1"]

    run(story())


async def members_of(journal: varlog.Journal, name: pb.ReplicaId) -> list[int]:
    """Of a segment, as they are now."""
    return list((await journal.info()).chain[name.segment - 1].streams[0].members)


async def troubles(client: varlog.Cluster, name: pb.ReplicaId) -> list[str]:
    (log,) = (await client.status()).logs
    return [stream.trouble for stream in log.streams if stream.segment == name.segment]


async def ended_replicas(client: varlog.Cluster) -> list[varlog.ReplicaStatus]:
    """Of all segments but the last."""
    (log,) = (await client.status()).logs
    last = log.log.chain[-1].epoch
    return [each for stream in log.streams if stream.segment != last for each in stream.replicas]
