"""Journals, on real servers in this process: election, takeover, what becomes of appends when a segment ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, Servers, batch, run, servers

import varlog
from varlog.base.errors import WrongWriter
from varlog.client import journal_leader
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def led_by(journal: varlog.Journal, name: str) -> varlog.LogDescription:
    """The journal, once it is."""
    while (info := await journal.info()).chain[-1].leader != name:
        await asyncio.sleep(0.01)
    return info


async def payloads(journal: varlog.Journal) -> list[bytes]:
    return [entry.payload async for entry in journal.subscribe(1, wait=False)]


async def replica(cluster: varlog.Cluster, name: str) -> tuple[pb.ReplicaId, list[int]]:
    info = await cluster.log(name).info()
    last = info.chain[-1]
    return pb.ReplicaId(log=info.id, segment=last.epoch, stream=last.streams[0].id), list(last.streams[0].members)


def connected(cluster: Servers) -> varlog.Cluster:
    return varlog.connect(f"varlog://{cluster.repository_address}")


@asynccontextmanager
async def led(
    folder: Path, nodes: int = 3, ttl: float = TIMEOUT_S, **settings: int
) -> AsyncIterator[tuple[Servers, varlog.Cluster, varlog.Journal, varlog.JournalLeader]]:
    """Servers, and a journal that is led."""
    async with servers(folder, nodes, **settings) as cluster, connected(cluster) as client:
        journal = client.journal("wal")
        async with journal, journal.lead(ttl=ttl) as leader:
            yield cluster, client, journal, leader


async def die(leader: varlog.JournalLeader) -> None:
    """Give no more word, and go on believing."""
    await leader._leadership._scope.close()


def test_events_are_appended_by_the_leader_and_read_by_everybody() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal") as journal:
            async with journal.lead(name="me") as leader:
                acks = await asyncio.gather(*(leader.append(b"%d" % number) for number in range(50)))
                assert [ack.glsn for ack in acks] == list(range(1, 51))
                assert (await leader.append_batch([b"a", b"b"], key=b"k")).last == 52
                assert await journal.tail() == 52
                assert (await journal.info()).chain[-1].leader == "me"
                reader = cluster.log("wal").subscribe(51)
                entry = await anext(aiter(reader))
                assert (entry.payload, entry.key) == (b"a", b"k")
            assert len(await payloads(journal)) == 52
            assert journal.capabilities == {"atomic_batch"}

    run(story())


def test_what_is_not_for_a_journal_is_refused_with_what_to_do() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal", replicas=3, ack=3) as journal:
            for log in (journal, cluster.log("wal")):
                with pytest.raises(varlog.Unsupported, match=r"journal.lead\(\)"):
                    await log.append(b"x")
            with pytest.raises(varlog.Unsupported, match="a journal has a leader"):
                await journal.reconfigure(ordering="cut", journal=True)
            with pytest.raises(varlog.Unavailable):
                await journal.lead().append(b"x")
            assert (await journal.info()).chain[0].ack == 3
            await cluster.create_log("orders")
            with pytest.raises(varlog.Unsupported):
                await cluster.journal("orders").__aenter__()
            with pytest.raises(varlog.Unsupported):
                await cluster.create_log("bad", journal=True)
            with pytest.raises(varlog.InvalidArgument, match=r"a ttl of 0\.05 to 3600 s"):
                await journal.lead(ttl=0.001).__aenter__()
            for ttl in (0, -1.0):
                with pytest.raises(varlog.InvalidArgument, match="ttl is a positive number of seconds"):
                    journal.lead(ttl=ttl)

    run(story())


def test_candidates_wait_until_the_leader_leaves() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal") as journal:
            async with journal.lead(name="first") as leader:
                await leader.append(b"a")
                with pytest.raises(varlog.Timeout):
                    await journal.lead(timeout=0.1).__aenter__()
                second = journal.lead(name="second")
                waits = asyncio.create_task(second.__aenter__())
                await asyncio.sleep(0.05)
                assert not waits.done()
            await waits
            assert (await second.append(b"b")).glsn == 2
            with pytest.raises(varlog.Unavailable):
                await leader.append(b"late")
            await second.__aexit__(None, None, None)
            await led_by(journal, "")
            assert await payloads(journal) == [b"a", b"b"]

    run(story())


def test_a_candidate_whose_connection_is_closed_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with led(tmp_path) as (cluster, *_), connected(cluster) as another, another.journal("wal") as journal:
            waits = asyncio.create_task(journal.lead().__aenter__())
            await asyncio.sleep(0.05)
            await another.close()
            with pytest.raises(varlog.Unavailable, match="closed"):
                await asyncio.wait_for(waits, TIMEOUT_S)

    run(story())


def test_a_leader_that_is_hurried_out_leads_no_more(tmp_path: Path) -> None:
    """Cancelled, and once more while it sees through what was sent."""

    async def story() -> None:
        async with led(tmp_path, ttl=0.6, lost_ms=60_000) as (cluster, client, journal, leader):
            _, members = await replica(client, "wal")
            for node in members[:2]:
                await cluster.stop_node(node)
            append = asyncio.create_task(leader.append(b"a"))
            await asyncio.sleep(0.02)
            leaving = asyncio.create_task(leader.__aexit__(None, None, None))
            await asyncio.sleep(0.02)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            with pytest.raises(varlog.OutcomeUnknown):
                await append
            assert leader.epoch == 0
            for node in members[:2]:
                await cluster.start_node(node)
            async with journal.lead(name="second", timeout=TIMEOUT_S) as second:
                await second.append(b"b")

    run(story())


def test_a_leader_without_a_word_is_replaced_and_can_acknowledge_nothing() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal") as journal:
            async with journal.lead(ttl=0.6, name="first") as old:
                await old.append(b"a")
                await die(old)
                async with journal.lead(ttl=TIMEOUT_S, name="second") as new:
                    assert (await new.append(b"b")).glsn == 2
                    with pytest.raises(varlog.Fenced) as fenced:
                        await old.append(b"lost")
                    assert fenced.value.epoch == new.epoch
            assert await payloads(journal) == [b"a", b"b"]

    run(story())


def test_what_a_lost_leader_acknowledged_can_be_read_though_nobody_follows() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal") as journal:
            old = await journal.lead(ttl=0.6).__aenter__()
            await old.append(b"a")
            await die(old)
            await led_by(journal, "")
            assert await payloads(journal) == [b"a"]
            with pytest.raises(varlog.Fenced):
                await old.append(b"b")

    run(story())


def test_appends_go_on_across_segments_unseen_by_the_caller(tmp_path: Path) -> None:
    """Rolls, other members, and a member that is lost: the same leader leads every segment, in order."""

    async def story() -> None:
        async with led(tmp_path, nodes=4, lost_ms=100) as (cluster, client, journal, leader):
            acked: list[bytes] = []
            stopping = False

            async def write(name: int) -> None:
                number = 0
                while not stopping:
                    payload = b"%d.%d" % (name, number)
                    acked.append(payload)
                    assert (await leader.append(payload)).glsn > number
                    number += 1

            writers = [asyncio.create_task(write(name)) for name in range(8)]
            for _ in range(3):
                await asyncio.sleep(0.05)
                await journal.reconfigure(roll=True)
            await asyncio.sleep(0.05)
            epoch = leader.epoch
            _, members = await replica(client, "wal")
            await cluster.stop_node(members[0])
            while leader.epoch <= epoch:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            stopping = True
            await asyncio.gather(*writers)
            found = await payloads(journal)
            assert sorted(found) == sorted(acked)
            for name in range(8):
                own = [int(payload.split(b".")[1]) for payload in found if payload.startswith(b"%d." % name)]
                assert own == list(range(len(own)))

    run(story())


def test_a_stopped_member_does_not_hold_up_appends_and_is_caught_up_from_memory(tmp_path: Path) -> None:
    async def story() -> None:
        async with led(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, _journal, leader):
            await leader.append(b"a")
            name, members = await replica(client, "wal")
            await cluster.stop_node(members[1])
            await leader.append(b"b")
            await cluster.start_node(members[1])
            peer = await cluster.to_node(members[1])
            while True:
                status = (await peer.call(Method.LEAD, pb.LeadRequest(replica=name), timeout=TIMEOUT_S)).message
                assert isinstance(status, pb.ReplicaStatus)
                if status.committed == 2:
                    break
                await asyncio.sleep(0.02)
            assert leader.epoch == 2

    run(story())


def test_a_member_too_far_behind_makes_the_leader_ask_for_other_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("varlog.client.journal_lines.JOURNAL_BEHIND_BYTES", 1000)

    async def story() -> None:
        async with led(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, journal, leader):
            _, members = await replica(client, "wal")
            await leader.append(b"a")
            await cluster.stop_node(members[1])
            for _ in range(5):
                await leader.append(bytes(500))
            await cluster.start_node(members[1])
            while leader.epoch < 3:
                await asyncio.sleep(0.02)
            assert (await leader.append(b"b")).glsn == 7
            assert len(await payloads(journal)) == 7

    run(story())


def test_appends_go_on_without_the_repository(tmp_path: Path) -> None:
    async def story() -> None:
        async with led(tmp_path, nodes=3, lease_ms=1000, ttl=1.0) as (cluster, _client, journal, leader):
            await leader.append(b"a")
            await cluster.stop_repository()
            await asyncio.sleep(1.2)  # longer than the lease
            assert (await leader.append(b"b")).glsn == 2
            await cluster.start_repository()
            while True:  # it is given another ttl, and goes on
                try:
                    assert await journal.tail() == 2
                    break
                except varlog.Unavailable:
                    await asyncio.sleep(0.02)
            assert (await leader.append(b"c")).glsn == 3
            assert leader.epoch == 2

    run(story())


def test_members_take_stores_of_the_one_leader_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster, connected(cluster) as client, client.journal("wal"):
            name, members = await replica(client, "wal")
            peer = await cluster.to_node(members[0])
            for writer in (0, 1, 99):  # nobody leads it yet
                request = pb.StoreRequest(log=name.log, segment=name.segment, stream=name.stream, writer=writer)
                with pytest.raises(WrongWriter):
                    await peer.call(Method.STORE, request, [batch(b"x")], timeout=TIMEOUT_S)

    run(story())


def test_an_append_that_is_not_decided_in_time_is_of_unknown_outcome(tmp_path: Path) -> None:
    async def story() -> None:
        async with led(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, _journal, leader):
            await leader.append(b"a")
            _, members = await replica(client, "wal")
            for node in members[:2]:
                await cluster.stop_node(node)
            with pytest.raises(varlog.OutcomeUnknown):
                await leader.append(b"b", timeout=0.2)
            for node in members[:2]:
                await cluster.start_node(node)
            assert (await leader.append(b"c")).glsn == 3, "it was seen through"

    run(story())


@pytest.mark.parametrize("sealed_before", [1, 2])
def test_the_end_of_a_segment_decides_over_what_was_on_its_way(tmp_path: Path, sealed_before: int) -> None:
    """With one member sealed the other two commit; with two sealed nobody can, and it goes on in the next segment."""

    async def story() -> None:
        async with led(tmp_path, nodes=3, lost_ms=60_000) as (cluster, client, journal, leader):
            await leader.append(b"a")
            name, members = await replica(client, "wal")
            for node in members[:sealed_before]:
                peer = await cluster.to_node(node)
                await peer.call(Method.SEAL, pb.SealRequest(replica=name), timeout=TIMEOUT_S)
            assert (await leader.append(b"b")).glsn == 2
            assert (await leader.append(b"c")).glsn == 3
            assert await payloads(journal) == [b"a", b"b", b"c"]

    run(story())


def test_a_sealed_or_removed_journal_is_told() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster, cluster.journal("wal") as journal:
            async with journal.lead() as leader:
                await leader.append(b"a")
                assert await journal.seal() == 2
                with pytest.raises(varlog.Sealed):
                    await leader.append(b"b")
            with pytest.raises(varlog.Sealed):
                await journal.lead().__aenter__()

    run(story())


def test_segments_roll_by_size_onto_other_nodes_under_the_same_leader(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=5) as cluster, connected(cluster) as client:
            journal = client.journal("wal", roll_bytes=1 << 20)
            async with journal, journal.lead(name="me") as leader:
                first = leader.epoch
                for number in range(3):
                    assert (await leader.append(bytes([number]) * (600 << 10))).glsn == number + 1
                while leader.epoch == first:
                    await asyncio.sleep(0.02)
                assert (await leader.append(b"next")).glsn == 4
                info = await journal.info()
                assert [each.leader for each in info.chain[first - 1 :]] == ["me"] * (len(info.chain) - first + 1)
                before, after = (set(info.chain[at].streams[0].members) for at in (first - 1, first))
                assert after - before, "on nodes that had less"
                assert [payload[:1] for payload in await payloads(journal)] == [b"\x00", b"\x01", b"\x02", b"n"]

    run(story())


def test_a_candidate_leads_once(tmp_path: Path) -> None:
    """Under its id there may be a segment that it has left: members would take what it sends for what they have."""

    async def story() -> None:
        async with servers(tmp_path, 3) as cluster, connected(cluster) as client, client.journal("wal") as journal:
            candidate = journal.lead()
            async with candidate as leader:
                await leader.append(b"a")
                with pytest.raises(varlog.InvalidArgument, match="leads once"):
                    await candidate.__aenter__()
                await leader.append(b"b")
            with pytest.raises(varlog.InvalidArgument, match="leads once"):
                await candidate.__aenter__()
            async with journal.lead() as other:
                await other.append(b"c")
            assert await payloads(journal) == [b"a", b"b", b"c"]

    run(story())


def test_a_segment_that_is_over_while_the_leader_looks_for_it_is_looked_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_leader, "pause", lambda *_: 0.02)

    async def story() -> None:
        async with led(tmp_path) as (_, _, journal, leader):
            leadership, routes = leader._leadership, journal._context.routes
            looks, first = 0, leader.epoch
            plain = routes.refresh

            async def refresh(timeout: float) -> None:
                nonlocal looks
                looks += 1
                await plain(timeout)

            def over_at_once() -> None:
                if leader.epoch > first:
                    routes.listeners.remove(over_at_once)
                    leadership.is_over()

            monkeypatch.setattr(routes, "refresh", refresh)
            leadership.is_over()
            routes.listeners.append(over_at_once)
            await journal.reconfigure(roll=True)
            while leader.epoch == first:
                await asyncio.sleep(0.01)
            before = looks
            while looks < before + 3:
                await asyncio.sleep(0.01)

    run(story())


def test_what_follows_a_segment_is_looked_for_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be long until there are nodes for another one, and the watch tells of it."""

    async def story() -> None:
        async with led(tmp_path) as (_, _, journal, leader):
            looks = 0

            async def refresh(_: float) -> None:
                nonlocal looks
                looks += 1

            monkeypatch.setattr(journal._context.routes, "refresh", refresh)
            leader._leadership.is_over()
            await asyncio.sleep(1.5)
            assert 2 <= looks <= 8
            monkeypatch.undo()
            await journal.reconfigure(roll=True)
            while leader._leadership._looking is not None:
                await asyncio.sleep(0.01)
            assert (await leader.append(b"a")).glsn == 1

    run(story())
