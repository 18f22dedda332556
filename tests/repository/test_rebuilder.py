"""Replicas of ended streams whose nodes are lost: copied to other nodes, and swapped in when they are complete."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.node.test_takeback import payloads
from tests.repository.test_healer import healed, log_info
from tests.servers import TIMEOUT_S, Servers, append, batch, read_parts, run, servers

import varlog
from varlog.base.errors import NotFound, ReplicaFailed
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.core.placement import Candidate
from varlog.ports.disk import DiskFailed
from varlog.repository import survey
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.survey import Survey
from varlog.runtime.clock import RealClock
from varlog.runtime.scope import Scope
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

QUICK = {"rebuild_ms": 300}
SLOW = 1 << 16
"""Bytes a second that are copied where a copy is not to get to its end."""
LARGE = 1000
"""Words of an entry of which a hundred batches, copied as slowly as that, take longer than anything else does."""


async def seal(cluster: Servers, log: pb.LogInfo) -> None:
    peer = await cluster.to_repository()
    await peer.call(Method.SEAL_LOG, pb.SealLogRequest(log=log.id), timeout=TIMEOUT_S)
    peer.close()


async def trim(cluster: Servers, log: pb.LogInfo, upto: int) -> None:
    peer = await cluster.to_repository()
    await peer.call(Method.TRIM_LOG, pb.TrimLogRequest(log=log.id, upto=upto), timeout=TIMEOUT_S)
    peer.close()


async def status(cluster: Servers) -> pb.StatusReply:
    peer = await cluster.to_repository()
    reply = (await peer.call(Method.STATUS, pb.StatusRequest(), timeout=TIMEOUT_S)).message
    peer.close()
    assert isinstance(reply, pb.StatusReply)
    return reply


async def first_stream(cluster: Servers, until: Callable[[pb.StreamInfo], bool]) -> pb.StreamInfo:
    while not until(stream := (await log_info(cluster)).chain[0].streams[0]):
        await asyncio.sleep(0.02)
    return stream


async def dropped(cluster: Servers, node: int) -> None:
    """Until a node has no replica of the first stream any more."""
    while any(replica.id.stream == 1 for replica in cluster.nodes[node].replicas.all()):
        await asyncio.sleep(0.02)


def of_copies(cluster: Servers, node: int, log: pb.LogInfo, name: str = "") -> list[Path]:
    """What copies of the first stream have made on a node."""
    return list((cluster.folder / f"node{node}" / "replicas").glob(f"{log.id}.1.1.*/{name}"))


def of_log(cluster: Servers, node: int, log: pb.LogInfo) -> list[Path]:
    """What a node has of a log."""
    return list((cluster.folder / f"node{node}" / "replicas").glob(f"{log.id}.*"))


async def fill(cluster: Servers, log: pb.LogInfo, batches: int = 20, words: int = 50) -> list[bytes]:
    peer = await cluster.to_node(log.chain[0].streams[0].members[0])
    sent = [f"entry {number}".encode() * words for number in range(batches)]
    for number, payload in enumerate(sent):
        await append(peer, log, batch(payload, payload, sequence=number))
    return [payload for payload in sent for _ in range(2)]


def test_a_lost_replica_of_an_ended_stream_is_copied_and_the_lost_one_dropped_when_it_returns(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, **QUICK) as cluster:
            log = await cluster.create_log()
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log)
            await trim(cluster, log, 7)  # in the middle of a batch
            lost, spare = members[1], next(node for node in range(1, 5) if node not in members)
            await cluster.stop_node(lost)
            await healed(cluster, 2)
            stream = await first_stream(cluster, lambda stream: lost not in stream.members)
            assert list(stream.members) == [members[0], spare, members[2]], "in the lost one's place"
            assert not stream.HasField("copy")
            parts = await read_parts(await cluster.to_node(spare), log, slot=7)
            assert payloads(parts) == sent[6:], "the batch that the trim point lies in is there"
            original = await read_parts(await cluster.to_node(members[0]), log, slot=7)
            assert [list(part.message.bindings) for part in parts] == [list(part.message.bindings) for part in original]
            peer = await cluster.to_node(spare)
            again = await append(peer, log, batch(sent[2], sent[2], sequence=1))
            assert again.message.slot == 2, "it knows of batches that are trimmed"
            await cluster.start_node(lost)
            await dropped(cluster, lost)
            assert list((await log_info(cluster)).chain[0].streams[0].members) == list(stream.members)
            await cluster.stop_node(spare)
            await cluster.start_node(spare)
            assert payloads(await read_parts(await cluster.to_node(spare), log, slot=7)) == sent[6:]

    run(story())


def test_a_sealed_log_is_rebuilt_and_read_while_its_members_change(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3, **QUICK) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            log = await connected.create_log("orders", replicas=2)
            for number in range(50):
                await log.append(f"{number}".encode())
            await log.seal()
            members = list((await log_info(cluster)).chain[0].streams[0].members)
            for lost in members:  # one after the other: at last none of the first members is left
                await cluster.stop_node(lost)
                while lost in (await log_info(cluster)).chain[0].streams[0].members:
                    await asyncio.sleep(0.02)
                found = [entry.payload async for entry in log.subscribe(start=1)]
                assert [bytes(each) for each in found] == [f"{number}".encode() for number in range(50)]
                await cluster.start_node(lost)
                await dropped(cluster, lost)

    run(story())


def test_a_node_that_returns_before_the_swap_keeps_its_replica(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, **QUICK) as cluster:
            spare = 3
            await cluster.stop_node(spare)
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log, 100, LARGE)
            await seal(cluster, log)
            await cluster.start_node(spare, copy_bytes_per_s=SLOW)
            await cluster.stop_node(members[1])
            await first_stream(cluster, lambda stream: stream.copy.node == spare)
            while "being copied" not in (await status(cluster)).logs[0].streams[0].trouble:
                await asyncio.sleep(0.02)
            await cluster.start_node(members[1])
            stream = await first_stream(cluster, lambda stream: not stream.HasField("copy"))
            assert list(stream.members) == members
            while of_copies(cluster, spare, log):
                await asyncio.sleep(0.02)
            assert payloads(await read_parts(await cluster.to_node(members[1]), log, slot=0)) == sent
            while (await status(cluster)).logs[0].streams[0].trouble:
                await asyncio.sleep(0.05)

    run(story())


def test_a_replica_that_has_failed_is_rebuilt_elsewhere_at_once_and_dropped(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:  # its node is there: nobody waits for `rebuild_ms`
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log)
            await seal(cluster, log)
            failed = next(replica for replica in cluster.nodes[members[0]].replicas.all() if replica.id.stream == 1)
            while failed.log.end is None:
                await asyncio.sleep(0.01)
            failed.fail(DiskFailed("an input or output error"))
            stream = await first_stream(cluster, lambda stream: members[0] not in stream.members)
            assert payloads(await read_parts(await cluster.to_node(stream.members[0]), log, slot=0)) == sent
            await dropped(cluster, members[0])
            while (tmp_path / f"node{members[0]}" / "replicas" / f"{log.id}.1.1").exists():
                await asyncio.sleep(0.02)

    run(story())


def test_a_target_that_is_killed_half_way_starts_anew_and_never_serves_the_half(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, **QUICK) as cluster:
            spare = 3
            await cluster.stop_node(spare)
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log, 100, LARGE)
            await seal(cluster, log)
            await cluster.start_node(spare, copy_bytes_per_s=SLOW)
            await cluster.stop_node(members[0])
            while not any(copy._log for copy in cluster.nodes[spare].replicas._copies.values()):
                await asyncio.sleep(0.01)  # one that is only being made is dropped when its node stops
            assert of_copies(cluster, spare, log, "copying")
            with pytest.raises(NotFound):
                await read_parts(await cluster.to_node(spare), log, slot=0)
            await cluster.stop_node(spare)
            assert of_copies(cluster, spare, log, "copying")
            assert members[0] in (await log_info(cluster)).chain[0].streams[0].members
            await cluster.start_node(spare)
            stream = await first_stream(cluster, lambda stream: spare in stream.members)
            assert list(stream.members) == [spare, members[1]]
            assert not of_copies(cluster, spare, log, "copying")
            assert payloads(await read_parts(await cluster.to_node(spare), log, slot=0)) == sent

    run(story())


def test_a_repository_that_restarts_goes_on_with_a_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, **QUICK) as cluster:
            spare = 3
            await cluster.stop_node(spare)
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            await fill(cluster, log, 100)
            await seal(cluster, log)
            await cluster.start_node(spare, copy_bytes_per_s=1 << 17)
            await cluster.stop_node(members[1])
            copied = await first_stream(cluster, lambda stream: stream.HasField("copy"))
            await cluster.stop_repository()
            await cluster.start_repository()
            stream = await first_stream(cluster, lambda stream: spare in stream.members)
            assert list(stream.members) == [members[0], spare]
            spec = next(replica.spec for replica in cluster.nodes[spare].replicas.all())
            assert spec.copy == copied.copy.number, "the same copy"

    run(story())


def test_what_nobody_has_is_named_and_nothing_is_guessed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, **QUICK) as cluster:
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            sent = await fill(cluster, log, 5)
            await seal(cluster, log)
            for node in members:
                await cluster.stop_node(node)
            while (
                "slots 0 to 9 (positions 1 to 10) are unavailable"
                not in (await status(cluster)).logs[0].streams[0].trouble
            ):
                await asyncio.sleep(0.05)
            assert list((await log_info(cluster)).chain[0].streams[0].members) == members
            await cluster.start_node(members[0])  # one is enough: the other is copied from it
            stream = await first_stream(cluster, lambda stream: members[1] not in stream.members)
            assert payloads(await read_parts(await cluster.to_node(stream.members[1]), log, slot=0)) == sent

    run(story())


def test_a_removed_log_goes_also_from_a_node_whose_place_another_has_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, **QUICK) as cluster:
            kept, log = await cluster.create_log("kept", replicas=4), await cluster.create_log(replicas=3)
            await fill(cluster, log)
            await seal(cluster, log)
            lost = log.chain[0].streams[0].members[1]
            await cluster.stop_node(lost)
            await first_stream(cluster, lambda stream: lost not in stream.members)
            peer = await cluster.to_repository()
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            while any(of_log(cluster, node, log) for node in cluster.nodes):
                await asyncio.sleep(0.02)
            await cluster.stop_repository()
            await cluster.start_repository()
            await cluster.start_node(lost)
            while of_log(cluster, lost, log):
                await asyncio.sleep(0.02)
            assert of_log(cluster, lost, kept)
            assert cluster.repository is not None
            while cluster.repository.catalog.gone:
                await asyncio.sleep(0.02)
            assert not any("no log" in trouble for node in (await status(cluster)).nodes for trouble in node.troubles)

    run(story())


def test_a_log_that_is_removed_while_it_is_copied_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, **QUICK) as cluster:
            spare = 3
            await cluster.stop_node(spare)
            log = await cluster.create_log(replicas=2)
            members = list(log.chain[0].streams[0].members)
            await fill(cluster, log, 100, LARGE)
            await seal(cluster, log)
            await cluster.start_node(spare, copy_bytes_per_s=SLOW)
            await cluster.stop_node(members[1])
            while not of_copies(cluster, spare, log):
                await asyncio.sleep(0.01)
            peer = await cluster.to_repository()
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            while of_copies(cluster, spare, log):
                await asyncio.sleep(0.02)
            with pytest.raises(NotFound):
                await log_info(cluster)

    run(story())


@pytest.mark.parametrize("target", [2, 1])
def test_a_copy_that_has_rotted_before_it_is_swapped_in_is_given_up(target: int) -> None:
    async def story() -> None:
        stream = pb.StreamInfo(id=1, members=[1], copy=pb.StreamCopy(node=target, replaces=1, number=2))
        rotten = pb.LogStreamUncommitReport(damage=[pb.Damage()])
        changed: list[LogId] = []

        async def change_log(log: LogId, _: object) -> None:
            changed.append(log)

        catalog = SimpleNamespace(log=lambda _: pb.LogInfo(), nodes={}, change_log=change_log)
        links = SimpleNamespace(row=lambda *_: rotten, connected=list, mend_all=lambda _: None)
        orderer = SimpleNamespace(replace=lambda *_: None)
        parts = (cast(Catalog, catalog), cast(Orderer, orderer), cast(NodeLinks, links))
        rebuilder = Rebuilder(RealClock(), Scope(), *parts, 1.0)
        name = ReplicaId(LogId(1), Epoch(1), StreamId(1))
        swap = rebuilder._swap_in(name, stream, pb.ReplicaStatus(state=pb.REPLICA_FINISHED))
        if target == 1:
            await swap
            assert changed == [1], "in place: it is what was there before that has rotted"
        else:
            with pytest.raises(ReplicaFailed, match="damaged since"):
                await swap
            assert changed == []

    run(story())


def test_a_copy_whose_source_is_gone_takes_nobodys_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "COPIES_AT_ONCE", 1)

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=0, **QUICK) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as connected,
        ):
            for node in range(1, 5):
                await cluster.start_node(node, copy_bytes_per_s=SLOW)
            log = await cluster.create_log(replicas=1)
            (only,) = log.chain[0].streams[0].members
            await fill(cluster, log, 100, LARGE)
            await seal(cluster, log)
            await connected.drain_node(only)
            await first_stream(cluster, lambda stream: stream.HasField("copy"))
            await cluster.stop_node(only)
            other = await connected.create_log("other", replicas=2)
            await other.append(b"a")
            await other.seal()
            stays, lost = (await other.info()).chain[0].streams[0].members
            await cluster.stop_node(lost)
            while lost in (members := (await other.info()).chain[0].streams[0].members):
                await asyncio.sleep(0.02)
            assert stays in members
            assert (await first_stream(cluster, lambda _: True)).HasField("copy"), "it waits for its source"

    run(story())


def surveyed(
    monkeypatch: pytest.MonkeyPatch, row: pb.LogStreamUncommitReport | None = None
) -> tuple[Survey, list[int]]:
    """A survey of a cluster of three nodes, and a mark for each glance it takes at all streams."""
    glances: list[int] = []

    def candidates(*_: object) -> dict[NodeId, Candidate]:
        glances.append(1)
        return {NodeId(node): Candidate() for node in (1, 2, 3)}

    monkeypatch.setattr(survey, "candidates", candidates)
    log = pb.LogInfo(chain=[pb.SegmentInfo(ordering="cut")])
    catalog = SimpleNamespace(log=lambda _: log, nodes={1: None, 2: None, 3: None}, logs={}, changes=0)
    links = SimpleNamespace(row=lambda *_: row, connected=lambda: [1, 2, 3], lacks=lambda *_: False, left_at={})
    links.volumes = lambda node: [pb.Volume(total_bytes=100, free_bytes=10 * node)]
    orderer = SimpleNamespace(order=lambda _: SimpleNamespace(stream=lambda _: None))
    parts = (cast(Catalog, catalog), cast(Orderer, orderer), cast(NodeLinks, links))
    return Survey(RealClock(), *parts, 1.0), glances


NAME = ReplicaId(LogId(1), Epoch(1), StreamId(1))


def test_all_streams_are_glanced_at_once_a_look_and_for_each_copy_that_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of streams to leave a node the leader had no time for anything else."""
    found, glances = surveyed(monkeypatch)
    full = pb.StreamInfo(id=1, members=[1, 2, 3])
    for _ in range(100):
        assert found.choose(NAME, full, NodeId(3), only_fit=True) is None
        assert not found.has_room(full)
    assert len(glances) == 1
    assert found.choose(NAME, pb.StreamInfo(id=1, members=[1, 2]), NodeId(2), only_fit=True) == 3
    assert not found.has_room(full)
    assert len(glances) == 2


@pytest.mark.parametrize(("positions", "back"), [(5, True), (2, False)])
def test_a_replica_that_lost_its_positions_is_not_back(
    monkeypatch: pytest.MonkeyPatch, positions: int, back: bool
) -> None:
    """It has all slots, and nobody remembers where they are in the log: it is copied anew, and not kept instead."""
    row = pb.LogStreamUncommitReport(uncommitted_llsn_offset=positions + 1, uncommitted_llsn_length=5 - positions)
    found, _ = surveyed(monkeypatch, row)
    assert found.is_back(NodeId(1), NAME, 5) is back
    assert found.is_out(NodeId(1), NAME, 5) is not back


def test_a_node_that_has_come_back_since_the_last_look_is_not_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other node could take it, a whole replica was made anew in its place, from one that was lost then."""
    row = pb.LogStreamUncommitReport(uncommitted_llsn_offset=6)
    found, _ = surveyed(monkeypatch, row)
    monkeypatch.setattr(found._absences, "is_lost", lambda *_: True)
    assert not found.is_out(NodeId(3), NAME, 5)
    monkeypatch.setattr(found._links, "connected", lambda: [1, 2])
    assert found.is_out(NodeId(3), NAME, 5)
