"""What operators do to nodes: drain them, ask what hangs on them, remove them for good."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.servers import Servers, run, servers

import varlog
from varlog.base.errors import Conflict, NotFound, Unavailable, WrongCluster
from varlog.base.ids import LogId
from varlog.repository.opening import has_no_room
from varlog.wire.proto import varlog_pb2 as pb


@asynccontextmanager
async def connected(folder: Path, nodes: int) -> AsyncIterator[tuple[Servers, varlog.Cluster]]:
    async with (
        servers(folder, nodes=nodes) as made,
        varlog.connect(f"varlog://{made.repository_address}") as cluster,
    ):
        yield made, cluster


async def drained(cluster: varlog.Cluster, node: int) -> varlog.NodeCheck:
    while not (check := await cluster.check_node(node)).drained:
        await asyncio.sleep(0.02)
    return check


async def until_reported(cluster: varlog.Cluster) -> None:
    """Until every copy that can be there is known to be."""
    while any(stream.trouble for log in (await cluster.status()).logs for stream in log.streams):
        await asyncio.sleep(0.02)


async def streams_of(cluster: varlog.Cluster, name: str) -> list[varlog.StreamDescription]:
    return list((await cluster.log(name).info()).chain[-1].streams)


async def log_trouble(cluster: varlog.Cluster) -> str:
    return (await cluster.status()).logs[0].trouble


# ---------------------------------------------------------------- drain


def test_a_drained_node_is_left_by_all_that_is_open_and_nobody_notices(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 4) as (made, cluster):
            logs = [await cluster.create_log(name, replicas=3, streams=2) for name in ("a", "b")]
            sent: list[dict[int, bytes]] = [{}, {}]
            over = asyncio.Event()

            async def writer(index: int) -> None:
                while not over.is_set():
                    payload = b"%d" % len(sent[index])
                    sent[index][(await logs[index].append(payload)).glsn] = payload
                    await asyncio.sleep(0.002)

            writers = [asyncio.create_task(writer(index)) for index in (0, 1)]
            await asyncio.sleep(0.2)
            assert (await cluster.drain_node(1)).draining
            check = await drained(cluster, 1)
            await asyncio.sleep(0.2)
            over.set()
            await asyncio.gather(*writers)
            assert check.node.draining
            assert check.node.ended_streams == len(check.streams) > 0
            for log, name, expected in zip(logs, ("a", "b"), sent, strict=True):
                found = {entry.glsn: bytes(entry.payload) async for entry in log.subscribe(stop=await log.tail() + 1)}
                assert found == expected
                streams = await streams_of(cluster, name)
                assert sum(stream.writable for stream in streams) == 2
                assert not any(1 in stream.members for stream in streams if stream.writable)
            await made.stop_node(1)
            assert (await logs[0].append(b"on")).glsn == len(sent[0]) + 1

    run(story())


def test_the_wish_outlives_restarts_and_can_be_taken_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 3) as (made, cluster):
            await cluster.drain_node(2)
            await made.stop_node(2)
            await made.stop_repository()
            await made.start_repository()
            await made.start_node(2)
            while not all(node.connected for node in await cluster.nodes()):
                await asyncio.sleep(0.02)
            assert [node.draining for node in await cluster.nodes()] == [False, True, False]
            with pytest.raises(Unavailable, match="3 are connected, but node 2 drains"):
                await cluster.create_log("a", replicas=3)
            await cluster.create_log("b", replicas=2)
            assert sorted((await streams_of(cluster, "b"))[0].members) == [1, 3]
            assert not (await cluster.drain_node(2, undo=True)).draining
            await cluster.create_log("a", replicas=3)
            with pytest.raises(NotFound, match="node 9 does not exist"):
                await cluster.drain_node(9)

    run(story())


def test_with_too_few_nodes_nothing_moves_until_one_comes(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 3) as (made, cluster):
            log = await cluster.create_log("a", replicas=3, ack=3)
            await cluster.drain_node(1)
            while not (told := await log_trouble(cluster)):
                await asyncio.sleep(0.02)
            assert told.startswith("streams cannot leave a node that drains: 3 replicas need 3 connected")
            assert "node 1 drains" in told
            assert (await log.append(b"one")).glsn == 1
            (stream,) = await streams_of(cluster, "a")
            assert stream.writable
            await made.start_node(4)
            await drained(cluster, 1)
            while await log_trouble(cluster):
                await asyncio.sleep(0.02)
            old, new = await streams_of(cluster, "a")
            assert (old.end_slot, old.start, old.stop) == (1, 1, 2)
            assert (new.id, new.start, new.stop) == (2, 2, None), "ids are not spent on what cannot be placed"
            assert (await log.append(b"two")).glsn == 2

    run(story())


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_drained_node_is_left_by_what_has_ended_too(tmp_path: Path, replicas: int) -> None:
    async def story() -> None:
        async with connected(tmp_path, 3) as (_, cluster):
            log = await cluster.create_log("a", replicas=replicas, streams=3)
            for stream in (1, 2, 3):
                await log.append(b"%d" % stream, stream=stream)
            await cluster.drain_node(1)
            while (await cluster.check_node(1)).streams:
                assert (await log.append(b"more")).glsn > 3, "appends go on"
                assert all(not stream.trouble for log in (await cluster.status()).logs for stream in log.streams)
                await asyncio.sleep(0.02)
            assert all(len(stream.members) == replicas for stream in await streams_of(cluster, "a"))
            assert [(await log.read(glsn)).payload for glsn in (1, 2, 3)] == [b"1", b"2", b"3"]
            await cluster.remove_node(1)
            assert [(await log.read(glsn)).payload for glsn in (1, 2, 3)] == [b"1", b"2", b"3"]

    run(story())


def test_a_drain_that_is_taken_back_gives_up_the_copies_under_way(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 2) as (made, cluster):
            log = await cluster.create_log("a", replicas=2)
            for _ in range(100):
                await log.append(bytes(5000))
            await log.seal()
            await made.start_node(3, copy_bytes_per_s=1 << 16)
            await cluster.drain_node(1)
            assert made.repository is not None
            record = made.repository.catalog.log_named
            while not record("a").chain[0].streams[0].HasField("copy"):
                await asyncio.sleep(0.02)
            await cluster.drain_node(1, undo=True)
            while record("a").chain[0].streams[0].HasField("copy"):
                await asyncio.sleep(0.02)
            assert sorted(record("a").chain[0].streams[0].members) == [1, 2]

    run(story())


# ---------------------------------------------------------------- check


def test_a_check_tells_what_would_stop_and_how_many_copies_are_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 3) as (made, cluster):
            for name, replicas, ack in (("three", 3, 3), ("fewer", 3, 2), ("two", 2, 2), ("one", 1, 1)):
                log = await cluster.create_log(name, replicas=replicas, ack=ack)
                await log.append(b"x")
            await until_reported(cluster)
            alone = (await streams_of(cluster, "one"))[0].members[0]
            check = await cluster.check_node(alone)
            rows = {stream.log: stream for stream in check.streams}
            assert not check.stoppable
            assert check.reason == "3 replicas need 3 connected storage nodes; 2 are connected"
            assert rows["three"].stops
            assert (rows["three"].copies_left, rows["three"].copies_wanted) == (2, 3)
            assert not rows["three"].unreadable
            assert not rows["fewer"].stops, "it goes on with two"
            assert (rows["fewer"].copies_left, rows["fewer"].copies_wanted) == (2, 3)
            assert not rows["one"].stops
            assert rows["one"].unreadable
            await made.start_node(4)
            unused = await cluster.check_node(4)
            assert unused.stoppable
            assert unused.drained
            assert unused.streams == ()
            other = next(node for node in (1, 2, 3) if node != alone)
            while not (check := await cluster.check_node(other)).stoppable:
                await asyncio.sleep(0.02)
            assert check.pause == 1.0
            with pytest.raises(NotFound):
                await cluster.check_node(9)

    run(story())


@pytest.mark.parametrize(("ordering", "stops"), [("cut", False), ("leader", True), ("sequencer", True)])
def test_who_alone_can_tell_where_a_segment_ends_is_not_to_be_stopped(
    tmp_path: Path, ordering: str, stops: bool
) -> None:
    async def story() -> None:
        async with connected(tmp_path, 2) as (_, cluster):
            await cluster.create_log("one", replicas=1, ordering=ordering)
            await until_reported(cluster)
            check = await cluster.check_node((await streams_of(cluster, "one"))[0].members[0])
            assert [stream.stops for stream in check.streams] == [stops]
            assert check.reason == "1 of its members must tell what log 'one' has acknowledged; 0 would be left" * stops

    run(story())


# ---------------------------------------------------------------- remove


def test_an_unused_node_is_removed_and_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 4) as (made, cluster):
            node = made.nodes[4]
            await cluster.remove_node(4)
            assert "node 4 was removed from this cluster" in (await node.wait_failed()).message
            await made.stop_repository()
            await made.start_repository()
            assert [node.id for node in await cluster.nodes()] == [1, 2, 3]
            with pytest.raises(NotFound, match="node 4 was removed"):
                await cluster.remove_node(4)
            await made.stop_node(4)
            assert made.repository is not None
            catalog = made.repository.catalog
            with pytest.raises(WrongCluster, match="is not given out again"):
                await catalog.register(pb.RegisterRequest(node_id=4, incarnation="new"))
            assert (await made.start_node(5)).node_id == 5, "its id is not given out again"

    run(story())


def test_a_node_stays_while_anything_hangs_on_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 4) as (made, cluster):
            log = await cluster.create_log("a", replicas=3)
            member = (await streams_of(cluster, "a"))[0].members[0]
            await log.append(b"x")
            for force in (False, True):
                with pytest.raises(Conflict, match=rf"member of 1 open stream \(a/1\): `varlog node drain {member}`"):
                    await cluster.remove_node(member, force=force)
            assert member in [node.id for node in await cluster.nodes()]
            await made.stop_node(member)
            await drained(cluster, member)
            with pytest.raises(Conflict, match=r"it holds copies of 1 ended stream \(a/1\): .*; --force"):
                await cluster.remove_node(member)
            await cluster.remove_node(member, force=True)
            while len((await streams_of(cluster, "a"))[0].members) < 3:
                await asyncio.sleep(0.02)  # another node gets a copy in its place
            old, new = await streams_of(cluster, "a")
            assert member not in (*old.members, *new.members)
            assert (await log.read(1)).payload == b"x"
            assert (await log.append(b"y")).glsn == 2
            await log.trim(1)  # nobody waits for the one that is gone
            while (await cluster.status()).logs[0].kept_cuts:
                await asyncio.sleep(0.05)
            while any(stream.trouble for stream in (await cluster.status()).logs[0].streams):
                await asyncio.sleep(0.05)

    run(story())


def test_what_cannot_leave_a_node_keeps_it_and_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 3) as (_, cluster):
            log = await cluster.create_log("a", replicas=3)
            await log.append(b"x")
            await log.seal()
            await cluster.drain_node(1)
            while not (told := await log_trouble(cluster)):
                await asyncio.sleep(0.02)
            assert told == "copies of ended streams cannot leave a node that drains: no other node can take them"
            with pytest.raises(Conflict, match="it is connected"):
                await cluster.remove_node(1, force=True)
            await cluster.drain_node(1, undo=True)
            while await log_trouble(cluster):
                await asyncio.sleep(0.02)

    run(story())


def test_a_node_with_the_only_copy_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 2) as (made, cluster):
            log = await cluster.create_log("a", replicas=1)
            await log.append(b"x")
            alone = (await streams_of(cluster, "a"))[0].members[0]
            await made.stop_node(alone)
            await drained(cluster, alone)
            with pytest.raises(Conflict, match=r"nobody else who is connected has a whole copy of 1 ended stream"):
                await cluster.remove_node(alone, force=True)
            await made.start_node(alone)
            assert (await log.read(1)).payload == b"x"

    run(story())


@asynccontextmanager
async def copied_slowly(folder: Path) -> AsyncIterator[tuple[Servers, varlog.Cluster, pb.StreamInfo]]:
    """The only copy of an ended stream is on node 1, which drains; it is copied to node 2, which takes long."""
    async with connected(folder, 1) as (made, cluster):
        log = await cluster.create_log("a", replicas=1)
        for _ in range(100):
            await log.append(bytes(5000))
        await log.seal()
        await made.start_node(2, copy_bytes_per_s=1 << 16)
        await cluster.drain_node(1)
        assert made.repository is not None
        catalog = made.repository.catalog
        while not (stream := catalog.log_named("a").chain[0].streams[0]).HasField("copy"):
            await asyncio.sleep(0.02)
        yield made, cluster, stream


def test_a_node_stays_while_it_is_given_a_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with copied_slowly(tmp_path) as (_, cluster, stream):
            assert (list(stream.members), stream.copy.node) == ([1], 2)
            for force in (False, True):
                with pytest.raises(
                    Conflict, match=r"a copy is being made on it of 1 ended stream \(a/1\): `varlog node"
                ):
                    await cluster.remove_node(2, force=force)

    run(story())


def test_a_copy_on_a_node_that_is_lost_and_removed_never_becomes_a_member(tmp_path: Path) -> None:
    async def story() -> None:
        async with copied_slowly(tmp_path) as (made, cluster, _):
            await made.stop_node(2)
            while (await cluster.nodes())[1].connected:
                await asyncio.sleep(0.02)
            await cluster.remove_node(2, force=True)
            assert made.repository is not None
            left = made.repository.catalog.log_named("a").chain[0].streams[0]
            assert (list(left.members), left.HasField("copy")) == ([1], False)

    run(story())


def test_whether_a_node_may_go_is_asked_when_nothing_can_change_any_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 2) as (made, cluster):
            await (await cluster.create_log("a", replicas=1)).seal()
            assert made.repository is not None
            catalog = made.repository.catalog
            stream = catalog.log_named("a").chain[0].streams[0]
            spare = 3 - stream.members[0]
            async with catalog._changing:
                removal = asyncio.ensure_future(cluster.remove_node(spare))
                await asyncio.sleep(0.1)
                stream.members[0] = spare  # as it is once a copy has been swapped in
            with pytest.raises(Conflict, match="it holds copies of 1 ended stream"):
                await removal

    run(story())


def test_no_node_goes_while_a_log_is_changed_and_no_log_is_changed_while_one_goes(tmp_path: Path) -> None:
    """The change may have chosen that node, and no record says so yet."""

    async def story() -> None:
        async with connected(tmp_path, 3) as (made, cluster):
            log = await cluster.create_log("a", replicas=1)
            other = await cluster.create_log("b", replicas=1)
            used = {node for name in ("a", "b") for each in await streams_of(cluster, name) for node in each.members}
            (spare,) = {1, 2, 3} - used
            assert made.repository is not None
            term = made.repository._term
            assert term is not None
            changes = term._healer._changes
            async with changes.of(LogId((await log.info()).id)):
                await other.reconfigure(roll=True, members=list(used)[:1])  # one log does not wait for another
                removal = asyncio.ensure_future(cluster.remove_node(spare))
                while not changes._waiting:
                    await asyncio.sleep(0.01)
                rolled = asyncio.ensure_future(other.reconfigure(roll=True))
                while len(changes._waiting) < 2:
                    await asyncio.sleep(0.01)
                assert spare in made.repository.catalog.nodes
            await removal
            chain = (await rolled).chain
            assert len(chain) == 3
            assert spare not in chain[-1].streams[0].members

    run(story())


# ---------------------------------------------------------------- placement


def test_streams_are_spread_over_zones(tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(tmp_path, 0) as (made, cluster):
            for number, zone in enumerate(("a", "a", "a", "b", "c"), 1):
                await made.start_node(number, zone=zone)
            await cluster.create_log("log", replicas=3, streams=3)
            for stream in await streams_of(cluster, "log"):
                assert {4, 5} < set(stream.members)

    run(story())


def test_a_node_is_full_when_its_emptiest_volume_is() -> None:
    full, roomy = pb.Volume(free_bytes=0, total_bytes=1 << 40), pb.Volume(free_bytes=1 << 39, total_bytes=1 << 40)
    assert has_no_room([full, full])
    assert not has_no_room([full, roomy])
    assert not has_no_room([]), "nobody knows yet"
