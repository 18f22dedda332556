"""The repository's methods over a real connection, and what survives its restart."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, append, batch, run, servers

import varlog
from varlog.base.errors import (
    AlreadyExists,
    ConnectionLost,
    InvalidArgument,
    NotFound,
    NotLeader,
    NotWritten,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.base.ids import LogId
from varlog.repository import keys
from varlog.repository.freshness import Freshness
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def tail(peer: Peer, log: pb.LogInfo) -> int:
    reply = (await peer.call(Method.TAIL, pb.TailRequest(log=log.id), timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.TailReply)
    return reply.tail


async def status(peer: Peer) -> pb.StatusReply:
    reply = (await peer.call(Method.STATUS, pb.StatusRequest(), timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.StatusReply)
    return reply


def test_logs_are_made_listed_and_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log("orders", streams=2)
            assert [len(stream.members) for stream in log.chain[0].streams] == [3, 3]
            assert log.chain[0].streams[0].members[0] != log.chain[0].streams[1].members[0]
            with pytest.raises(AlreadyExists):
                await cluster.create_log("orders")
            peer = await cluster.to_repository()
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            with pytest.raises(NotFound):
                await peer.call(Method.GET_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S)
            again = await cluster.create_log("orders")
            assert again.id > log.id

    run(story())


def test_replicas_of_a_removed_log_go_also_from_a_node_that_was_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log("orders")
            await cluster.stop_node(2)
            peer = await cluster.to_repository()
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            folders = [tmp_path / f"node{number}/replicas/{log.id}.1.1" for number in (1, 2, 3)]
            while folders[0].exists() or folders[2].exists():
                await asyncio.sleep(0.02)
            assert folders[1].exists()
            await cluster.start_node(2)
            while folders[1].exists():
                await asyncio.sleep(0.02)

    run(story())


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (pb.CreateLogRequest(name="", ordering="cut", replicas=1, streams=1), InvalidArgument),
        (pb.CreateLogRequest(name="a/b", ordering="cut", replicas=1, streams=1), InvalidArgument),
        (pb.CreateLogRequest(name="ok", ordering="cut", replicas=0, streams=1), InvalidArgument),
        (pb.CreateLogRequest(name="ok", ordering="cut", replicas=1, streams=0), InvalidArgument),
        (pb.CreateLogRequest(name="ok", ordering="dice", replicas=1, streams=1), Unsupported),
        (pb.CreateLogRequest(name="ok", ordering="cut", replicas=4, streams=1), Unavailable),
    ],
)
def test_logs_that_make_no_sense_are_refused(
    tmp_path: Path, request_: pb.CreateLogRequest, error: type[Exception]
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_repository()
            with pytest.raises(error):
                await peer.call(Method.CREATE_LOG, request_, timeout=TIMEOUT_S)

    run(story())


def test_a_restart_of_the_repository_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log(streams=2)
            for stream in (1, 2):
                primary = await cluster.to_node(log.chain[0].streams[stream - 1].members[0])
                await append(primary, log, batch(b"a", b"b"), stream=stream)
            await cluster.stop_repository()
            await cluster.start_repository()
            peer = await cluster.to_repository()
            assert await tail(peer, log) == 4
            primary = await cluster.to_node(log.chain[0].streams[0].members[0])
            assert (await append(primary, log, batch(b"c", sequence=1))).message.glsn == 5

    run(story())


def test_cut_history_is_dropped_once_every_member_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary = await cluster.to_node(log.chain[0].streams[0].members[0])
            for sequence in range(20):
                await append(primary, log, batch(b"a", sequence=sequence))
            peer = await cluster.to_repository()
            assert cluster.repository is not None
            while await cluster.repository._store.scan(keys.cuts(LogId(log.id))):  # they are dropped when it is idle
                await asyncio.sleep(0.05)
            await cluster.stop_repository()
            await cluster.start_repository()
            peer = await cluster.to_repository()
            assert (await status(peer)).logs[0].kept_cuts == 0
            assert await tail(peer, log) == 20
            assert (await append(primary, log, batch(b"b", sequence=20))).message.glsn == 21

    run(story())


def test_a_node_that_was_away_gets_the_commits_it_missed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            members = log.chain[0].streams[0].members
            primary = await cluster.to_node(members[0])
            await append(primary, log, batch(b"a"))
            await cluster.stop_repository()
            waiting = asyncio.ensure_future(append(primary, log, batch(b"b", sequence=1)))
            await asyncio.sleep(0.2)
            await cluster.stop_node(members[2])
            await cluster.start_repository()
            assert not waiting.done()
            await cluster.start_node(members[2])
            assert (await waiting).message.glsn == 2
            replica = cluster.nodes[members[2]].replicas.all()[0]
            while replica.log.committed < 2:
                await asyncio.sleep(0.01)

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_an_append_whose_client_has_gone_is_in_the_log(ordering: str, tmp_path: Path) -> None:
    """It had reached the stream, and nobody was there any more to hear of its place (S5)."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering=ordering, replicas=2, streams=1)
            peer = await cluster.to_repository()
            info = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S)).message
            assert isinstance(info, pb.LogInfo)
            dying = await cluster.to_node(info.chain[0].streams[0].members[0])
            request = pb.AppendRequest(log=info.id, segment=1, stream=1).SerializeToString()
            answer = dying.start_call(Method.APPEND, request, [batch(b"last words")], timeout=TIMEOUT_S)
            dying.close()
            with pytest.raises(ConnectionLost):
                await answer
            read = [(entry.glsn, entry.payload) async for entry in log.subscribe(start=1, stop=2)]
            assert read == [(1, b"last words")]

    run(story())


def test_a_trim_is_answered_when_every_member_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            members = log.chain[0].streams[0].members
            primary = await cluster.to_node(members[0])
            for sequence in range(4):
                await append(primary, log, batch(b"a", sequence=sequence))
            peer = await cluster.to_repository()
            with pytest.raises(NotWritten) as beyond:
                await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=5), timeout=TIMEOUT_S)
            assert beyond.value.tail == 4
            await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=2), timeout=TIMEOUT_S)
            for node in cluster.nodes.values():
                assert node.replicas.all()[0].log.durable_trimmed_glsn == 2
            await cluster.stop_node(members[1])
            with pytest.raises(Unavailable, match="recorded"):
                await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=3), timeout=TIMEOUT_S)
            node = await cluster.start_node(members[1])
            while node.replicas.all()[0].log.durable_trimmed_glsn < 3:
                await asyncio.sleep(0.02)

    run(story())


def test_sealing_fixes_the_end_and_finishes_every_replica(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log(streams=2)
            primary = await cluster.to_node(log.chain[0].streams[0].members[0])
            await append(primary, log, batch(b"a", b"b"))
            peer = await cluster.to_repository()
            for _ in range(2):
                sealed = (await peer.call(Method.SEAL_LOG, pb.SealLogRequest(log=log.id), timeout=TIMEOUT_S)).message
                assert sealed.sealed
                assert sealed.chain[0].end == 3
            replicas = [each for node in cluster.nodes.values() for each in node.replicas.all()]
            while any(replica.log.end is None for replica in replicas):
                await asyncio.sleep(0.02)
            assert sorted(int(replica.log.end or 0) for replica in replicas) == [0, 0, 0, 2, 2, 2]

    run(story())


def test_status_says_what_is_wrong(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create_log()
            peer = await cluster.to_repository()
            while any(stream.trouble for stream in (await status(peer)).logs[0].streams):
                await asyncio.sleep(0.01)
            await cluster.stop_node(3)
            while (found := await status(peer)).nodes[2].connected:
                await asyncio.sleep(0.01)
            assert found.logs[0].streams[0].trouble == "waits for node 3"
            assert [node.connected for node in found.nodes] == [True, True, False]
            assert list(found.nodes[2].troubles) == ["not connected"]

    run(story())


def test_status_tells_why_a_replica_failed_and_how_much_room_is_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            members = log.chain[0].streams[0].members
            await append(await cluster.to_node(members[0]), log, batch(b"a"))
            await cluster.stop_node(members[1])
            file = next((tmp_path / f"node{members[1]}/replicas/{log.id}.1.1").glob("*.data"))
            data = bytearray(file.read_bytes())
            data[8] ^= 0xFF
            file.write_bytes(data)
            await cluster.start_node(members[1])
            peer = await cluster.to_repository()
            while not (found := await status(peer)).logs[0].streams[0].trouble:
                await asyncio.sleep(0.01)
            node = found.nodes[members[1] - 1]
            assert file.name in node.troubles[0]
            assert node.volumes[0].free_bytes > 0
            assert found.logs[0].streams[0].trouble == f"its replica on node {members[1]} has failed"

    run(story())


def test_watching_a_log_shows_its_changes_until_it_is_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            peer = await cluster.to_repository()
            parts = aiter(peer.stream(Method.WATCH_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S))
            assert (await anext(parts)).message == log
            await peer.call(Method.SEAL_LOG, pb.SealLogRequest(log=log.id), timeout=TIMEOUT_S)
            assert (await anext(parts)).message.sealed
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            with pytest.raises(NotFound):
                await anext(parts)

    run(story())


def test_a_watcher_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create_log("orders")
            assert cluster.repository is not None
            waiting = cluster.repository.catalog._waiting
            peer = await cluster.to_repository()
            parts = aiter(peer.stream(Method.WATCH_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S))
            await anext(parts)
            assert len(waiting) == 1
            peer.close()
            async with asyncio.timeout(TIMEOUT_S):
                while waiting:
                    await asyncio.sleep(0.01)

    run(story())


def test_a_repository_that_may_have_lost_the_lead_calls_no_log_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made while another led: clients would give up what is on its way to it."""

    def unsure(self: Freshness, done: Callable[[VarlogError | None], None]) -> None:
        done(NotLeader("this repository no longer leads; ask another"))

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            known = await cluster.create_log()
            monkeypatch.setattr(Freshness, "confirm", unsure)
            peer = await cluster.to_repository()
            found = (await peer.call(Method.GET_LOG, pb.GetLogRequest(name="orders"), timeout=TIMEOUT_S)).message
            assert found == known, "what is there needs no store that answers"
            unknown = known.id + 1
            for method, message in (
                (Method.GET_LOG, pb.GetLogRequest(name="others")),
                (Method.TAIL, pb.TailRequest(log=unknown)),
                (Method.LEAD_LOG, pb.LeadLogRequest(log=unknown, act=pb.CAMPAIGN)),
            ):
                with pytest.raises(NotLeader):
                    await peer.call(method, message, timeout=TIMEOUT_S)
            watched = peer.stream(Method.WATCH_LOG, pb.GetLogRequest(name="others"), timeout=TIMEOUT_S)
            with pytest.raises(NotLeader):
                await anext(aiter(watched))

    run(story())
