"""The node's verbs, one by one, over a real connection."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, append, batch, read_parts, run, servers

from varlog.base.errors import (
    AlreadyExists,
    Corrupt,
    Gap,
    InvalidArgument,
    NotFound,
    Sealed,
    Taken,
    Trimmed,
    Unavailable,
    WrongCluster,
)
from varlog.node import NodeConfig, StorageNode
from varlog.runtime.disk import RealDisk
from varlog.transport.peer import Peer
from varlog.wire.batch import Batch, read_header
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

SPEC = pb.ReplicaSpec(replica=pb.ReplicaId(log=99, segment=1, stream=1), ordering="cut", members=[7])
"""A replica of which this node is not the primary: only what is stored in it is there."""


async def open_replica(peer: Peer) -> pb.ReplicaStatus:
    status = (await peer.call(Method.OPEN, pb.OpenRequest(spec=SPEC), timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def store(peer: Peer, slot: int, *batches: bytes, settle: bool = False) -> pb.ReplicaStatus:
    request = pb.StoreRequest(log=99, segment=1, stream=1, slot=slot, settle=settle)
    status = (await peer.call(Method.STORE, request, batches, timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def advance(peer: Peer, slot: int, glsn: int, count: int) -> None:
    commit = pb.LogStreamCommitResult(
        log_id=99,
        segment=1,
        log_stream_id=1,
        committed_llsn_offset=slot + 1,
        committed_glsn_offset=glsn,
        committed_glsn_length=count,
        high_watermark=glsn + count - 1,
    )
    await peer.call(Method.ADVANCE, pb.CommitRequest(commit_results=[commit]), timeout=TIMEOUT_S)


async def status_of(peer: Peer) -> pb.ReplicaStatus:
    return await store(peer, 0)


def test_a_replica_that_is_not_open_is_unknown(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            with pytest.raises(NotFound, match="not open"):
                await store(peer, 0, batch(b"x"))

    run(story())


def test_open_is_idempotent_and_refuses_another_description(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            assert await open_replica(peer) == await open_replica(peer)
            other = pb.ReplicaSpec(replica=SPEC.replica, ordering="cut", members=[7, 8])
            with pytest.raises(AlreadyExists):
                await peer.call(Method.OPEN, pb.OpenRequest(spec=other), timeout=TIMEOUT_S)

    run(story())


def test_store_the_same_again_is_fine_another_is_taken_and_holes_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            first, second = batch(b"a", b"b"), batch(b"c", sequence=1)
            assert (await store(peer, 0, first)).contiguous == 2
            assert (await store(peer, 0, first)).contiguous == 2
            assert (await store(peer, 0, first, second)).contiguous == 3
            with pytest.raises(Taken) as taken:
                await store(peer, 0, batch(b"x", b"y"))
            assert taken.value.slot == 0
            with pytest.raises(Taken):
                await store(peer, 1, batch(b"b"))
            with pytest.raises(Gap) as gap:
                await store(peer, 5, batch(b"z"))
            assert gap.value.expected == 3
            assert (await status_of(peer)).contiguous == 3

    run(story())


def push(peer: Peer, slot: int, *batches: bytes, writer: int = 0, commits: list[pb.StoreCommit] | None = None) -> None:
    request = pb.StoreRequest(log=99, segment=1, stream=1, slot=slot, writer=writer, commits=commits)
    peer.notify(Method.STORE, request, batches)


def test_pushed_stores_are_taken_where_they_continue_and_left_where_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            push(peer, 0, batch(b"nobody is there yet"))
            await open_replica(peer)
            first, second = batch(b"a", b"b"), batch(b"c", sequence=1)
            push(peer, 0, first)
            push(peer, 5, batch(b"behind a gap"))
            push(peer, 0, batch(b"x", b"y"))
            push(peer, 0, bytes(reversed(first)))
            assert (await status_of(peer)).contiguous == 2
            push(peer, 0, first, second)
            while (await status_of(peer)).contiguous < 3:  # comparing takes a task
                await asyncio.sleep(0.001)

    run(story())


def test_commits_ride_on_pushed_stores(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            push(peer, 0, batch(b"a", b"b"), writer=3)
            assert (await status_of_writer(peer, 3)).contiguous == 2
            commit = pb.StoreCommit(slot=0, glsn=7, count=2, high_watermark=9)
            later = pb.StoreCommit(slot=4, glsn=11, count=1, high_watermark=12)
            push(peer, 2, batch(b"c"), writer=3, commits=[commit, commit, later])
            status = await status_of_writer(peer, 3)
            assert (status.contiguous, status.committed, status.high_watermark) == (3, 2, 9)
            push(peer, 3, batch(b"of an earlier life"), writer=2)
            assert (await status_of_writer(peer, 3)).contiguous == 3

    run(story())


async def status_of_writer(peer: Peer, writer: int) -> pb.ReplicaStatus:
    request = pb.StoreRequest(log=99, segment=1, stream=1, writer=writer)
    status = (await peer.call(Method.STORE, request, timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


def test_what_is_bound_by_cuts_is_bound_by_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            await store(peer, 0, batch(b"a"))
            request = pb.StoreRequest(log=99, segment=1, stream=1, base=1, committed=1)
            with pytest.raises(InvalidArgument, match="cuts"):
                await peer.call(Method.STORE, request, timeout=TIMEOUT_S)
            assert (await store(peer, 0)).committed == 0

    run(story())


def test_a_flipped_byte_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            data = bytearray(batch(b"payload"))
            data[-1] ^= 1
            with pytest.raises(Corrupt):
                await store(peer, 0, bytes(data))
            assert (await status_of(peer)).contiguous == 0

    run(story())


def test_commits_bind_only_where_they_continue_and_readers_see_only_what_is_bound(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            await store(peer, 0, batch(b"a", b"b"), batch(b"c", sequence=1))
            log = pb.LogInfo(id=99)
            assert len((await read_parts(peer, log, slot=0))[0].body) == 0
            await advance(peer, 2, 9, 1)  # out of turn
            await advance(peer, 0, 1, 4)  # more than there is
            assert (await status_of(peer)).committed == 0
            await advance(peer, 0, 5, 2)
            await advance(peer, 0, 5, 2)  # again
            assert (await status_of(peer)).committed == 2
            (part,) = await read_parts(peer, log, slot=0)
            batches = [
                Batch(part.body[each.body :]) for each in walk_records(part.body) if each.kind == RecordKind.BATCH
            ]
            assert [each.payloads() for each in batches] == [[b"a", b"b"]]
            assert list(part.message.bindings) == [pb.Binding(slot=0, glsn=5, count=2)]
            await advance(peer, 2, 9, 1)
            assert (await status_of(peer)).committed == 3

    run(story())


def test_a_replica_that_lacked_what_was_committed_says_so_until_it_has_it_again(tmp_path: Path) -> None:
    """A backup whose last write rotted away is given it again by its primary; then there is nothing left to say."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            replica = next(each for each in cluster.nodes[1].replicas.all() if each.id.log == 99)
            await advance(peer, 0, 1, 2)
            assert "it has 0" in replica.trouble
            await store(peer, 0, batch(b"a", b"b"))
            assert "it has 0" in replica.trouble
            await advance(peer, 0, 1, 2)
            assert replica.log.committed == 2
            assert replica.trouble == ""
            await advance(peer, 2, 3, 1)
            assert "it has 2" in replica.trouble

    run(story())


def test_seal_refuses_stores_and_finish_cuts_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            await store(peer, 0, batch(b"a"), batch(b"b", sequence=1))
            await advance(peer, 0, 1, 1)
            with pytest.raises(InvalidArgument, match="not sealed"):
                await peer.call(Method.DIGEST, pb.DigestRequest(replica=SPEC.replica, high=9), timeout=TIMEOUT_S)
            with pytest.raises(InvalidArgument, match="must be sealed"):
                await peer.call(Method.FINISH, pb.FinishRequest(replica=SPEC.replica, end=1), timeout=TIMEOUT_S)
            sealed = (await peer.call(Method.SEAL, pb.SealRequest(replica=SPEC.replica), timeout=TIMEOUT_S)).message
            assert sealed.state == pb.REPLICA_SEALED
            assert sealed.contiguous == 2
            with pytest.raises(Sealed):
                await store(peer, 2, batch(b"c", sequence=2))
            assert (await store(peer, 0, batch(b"a"))).contiguous == 2
            request = pb.DigestRequest(replica=SPEC.replica, low=0, high=4)
            rows = (await peer.call(Method.DIGEST, request, timeout=TIMEOUT_S)).message.rows
            assert [(row.slot, row.count, row.content) for row in rows] == [
                (0, 1, pb.SLOT_DATA),
                (1, 1, pb.SLOT_DATA),
                (2, 2, pb.SLOT_EMPTY),
            ]
            assert rows[0].crc == read_header(batch(b"a")).crc
            finish = pb.FinishRequest(replica=SPEC.replica, end=1)
            finished = (await peer.call(Method.FINISH, finish, timeout=TIMEOUT_S)).message
            assert (finished.state, finished.contiguous) == (pb.REPLICA_FINISHED, 1)
            other = pb.FinishRequest(replica=SPEC.replica, end=0)
            with pytest.raises(Corrupt):
                await peer.call(Method.FINISH, other, timeout=TIMEOUT_S)

    run(story())


def test_trim_drop_and_what_reads_say_afterwards(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            await store(peer, 0, batch(b"a"), batch(b"b", sequence=1))
            await advance(peer, 0, 11, 2)
            request = pb.TrimRequest(replica=SPEC.replica, upto=11)
            assert (await peer.call(Method.TRIM, request, timeout=TIMEOUT_S)).message.trimmed == 1
            log = pb.LogInfo(id=99)
            with pytest.raises(Trimmed) as trimmed:
                await read_parts(peer, log, glsn=11)
            assert trimmed.value.first == 12
            with pytest.raises(Trimmed):
                await read_parts(peer, log, slot=0)
            assert len(await read_parts(peer, log, glsn=12)) == 1
            await peer.call(Method.DROP, pb.DropRequest(replica=SPEC.replica), timeout=TIMEOUT_S)
            await peer.call(Method.DROP, pb.DropRequest(replica=SPEC.replica), timeout=TIMEOUT_S)
            with pytest.raises(NotFound):
                await store(peer, 0, batch(b"a"))
            while (tmp_path / "node1/replicas/99.1.1").exists():
                await asyncio.sleep(0.01)

    run(story())


def test_a_replica_keeps_what_it_answered_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer)
            await store(peer, 0, batch(b"a", b"b"))
            before = (await peer.call(Method.SEAL, pb.SealRequest(replica=SPEC.replica), timeout=TIMEOUT_S)).message
            await cluster.stop_node(1)
            await cluster.start_node(1)
            assert await status_of(await cluster.to_node(1)) == before

    run(story())


def test_producers_are_recognised_also_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary = log.chain[0].streams[0].members[0]
            peer = await cluster.to_node(primary)
            first = (await append(peer, log, batch(b"a", b"b"))).message
            second = (await append(peer, log, batch(b"c", sequence=1))).message
            assert (first.glsn, second.glsn) == (1, 3)
            assert (await append(peer, log, batch(b"a", b"b"))).message == first
            with pytest.raises(Gap) as gap:
                await append(peer, log, batch(b"z", sequence=5))
            assert gap.value.expected == 2
            await cluster.stop_node(primary)
            await cluster.start_node(primary)
            peer = await cluster.to_node(primary)
            request = pb.ProducerRequest(log=log.id, segment=1, stream=1, producer=b"producer-one-16b")
            while True:
                try:
                    reply = await peer.call(Method.PRODUCER, request, timeout=TIMEOUT_S)
                    break
                except Unavailable:  # it has not heard all its backups yet
                    await asyncio.sleep(0.02)
            assert reply.message.next_sequence == 2
            assert (await append(peer, log, batch(b"c", sequence=1))).message == second

    run(story())


def test_an_append_waits_for_every_member(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            primary, backup, _ = log.chain[0].streams[0].members
            await cluster.stop_node(backup)
            peer = await cluster.to_node(primary)
            waiting = asyncio.ensure_future(append(peer, log, batch(b"a")))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await cluster.start_node(backup)
            assert (await waiting).message.glsn == 1

    run(story())


def test_a_finished_primary_finds_nothing_wrong_with_a_backup_that_is_not_yet_finished(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await cluster.create_log(replicas=2)
            primary, backup = log.chain[0].streams[0].members
            peer = await cluster.to_node(primary)
            await append(peer, log, batch(b"a"))
            await cluster.stop_repository()
            waiting = asyncio.ensure_future(append(peer, log, batch(b"b", sequence=1)))
            while cluster.nodes[backup].replicas.all()[0].log.durable < 2:
                await asyncio.sleep(0.01)
            replica = pb.ReplicaId(log=log.id, segment=1, stream=1)
            await peer.call(Method.SEAL, pb.SealRequest(replica=replica), timeout=TIMEOUT_S)
            await peer.call(Method.FINISH, pb.FinishRequest(replica=replica, end=1), timeout=TIMEOUT_S)
            with pytest.raises(Sealed):
                await waiting
            await cluster.stop_node(primary)
            await cluster.start_repository()
            await cluster.start_node(primary)  # it asks the backup what it has
            await asyncio.sleep(0.3)
            assert cluster.nodes[backup].replicas.all()[0].log.durable == 2
            assert not cluster.nodes[primary].replicas.all()[0].trouble

    run(story())


def test_only_the_primary_takes_appends(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            peer = await cluster.to_node(log.chain[0].streams[0].members[1])
            with pytest.raises(NotFound, match="not the primary"):
                await append(peer, log, batch(b"a"))

    run(story())


def test_a_waiting_read_gets_what_is_committed_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log()
            members = log.chain[0].streams[0].members
            reader, writer = await cluster.to_node(members[2]), await cluster.to_node(members[0])
            request = pb.ReadRequest(log=log.id, segment=1, stream=1, glsn=1, wait=True)
            stream = reader.stream(Method.READ, request, timeout=TIMEOUT_S)
            parts = aiter(stream)
            assert len((await anext(parts)).body) == 0
            await append(writer, log, batch(b"late"))
            part = await anext(parts)
            assert [binding.glsn for binding in part.message.bindings] == [1]
            await stream.aclose()

    run(story())


def test_two_nodes_cannot_share_a_folder(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1):
            with pytest.raises(Unavailable, match="process"):
                RealDisk(tmp_path / "node1")

    run(story())


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path / "one", nodes=1):
            pass
        (tmp_path / "one/node1").rename(tmp_path / "stray")
        async with servers(tmp_path / "two", nodes=0) as cluster:
            config = NodeConfig(repositories=(cluster.repository_address,))
            node = StorageNode(cluster.world, [RealDisk(tmp_path / "stray")], config)
            await node.start()
            error = await node.wait_failed()
            assert isinstance(error, WrongCluster)
            assert "belongs to cluster" in error.message
            await node.close()

    run(story())


def test_a_node_that_lost_its_data_cannot_take_its_old_id(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            config = NodeConfig(repositories=(cluster.repository_address,), node_id=1)
            node = StorageNode(cluster.world, [RealDisk(tmp_path / "empty")], config)
            await node.start()
            error = await node.wait_failed()
            assert isinstance(error, WrongCluster)
            assert "joins as a new one" in error.message
            await node.close()

    run(story())
