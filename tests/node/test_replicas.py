"""The replicas of a node on its volumes: what one bad replica does to the others."""

import asyncio
import contextlib
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.servers import TIMEOUT_S, batch, run, servers
from tests.storage.crash_disk import CrashDisk

from varlog.base.errors import (
    Corrupt,
    NoSpace,
    NotFound,
    ReplicaFailed,
    Timeout,
    Unavailable,
    Unsupported,
    VarlogError,
    WrongCluster,
)
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.node import NodeConfig, StorageNode, removals
from varlog.node import replica as replica_module
from varlog.node.pace import Pace
from varlog.node.replicas import Replicas
from varlog.ports.disk import Disk, DiskFailed
from varlog.runtime.disk import RealDisk
from varlog.storage import folders, layout, search
from varlog.storage.layout import SMALLEST_FILE_BYTES
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import Volume
from varlog.transport.peer import Peer
from varlog.transport.world import real_world
from varlog.wire.batch import check_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def spec(stream: int) -> pb.ReplicaSpec:
    return pb.ReplicaSpec(replica=pb.ReplicaId(log=7, segment=1, stream=stream), members=[1], ordering="cut")


def name(stream: int) -> ReplicaId:
    return ReplicaId(LogId(7), Epoch(1), StreamId(stream))


async def nobody(node: NodeId) -> Peer:
    raise Unavailable(f"there is no node {node}")


async def on(*disks: CrashDisk, told: list[str] | None = None) -> Replicas:
    """Of a node with these volumes, not opened yet."""
    world = real_world()
    volumes = [await Volume.open(disk, Random(number)) for number, disk in enumerate(disks)]
    lines = [] if told is None else told
    pace = Pace(world.clock, 0)
    return Replicas(world, volumes, SMALLEST_FILE_BYTES, nobody, lambda replica: None, pace, lines.append)


async def with_replicas(disk: CrashDisk, streams: int) -> None:
    replicas = await on(disk)
    for stream in range(1, streams + 1):
        await replicas.create(spec(stream))
    await replicas.close()


@pytest.mark.parametrize("error", [DiskFailed, NoSpace, NotFound, Unsupported])
def test_one_replica_that_cannot_be_opened_does_not_keep_the_others_from_serving(error: type[VarlogError]) -> None:
    async def story() -> None:
        disk = CrashDisk()
        await with_replicas(disk, 3)
        disk.unreadable["7.1.2/spec"] = error("a bad sector")
        replicas = await on(disk)
        await replicas.open_all()
        assert [replica.id for replica in replicas.all()] == [name(1), name(3)]
        with pytest.raises(ReplicaFailed, match="a bad sector"):
            replicas.find(7, 1, 2)
        await replicas.close()

    run(story())


def test_what_the_node_itself_lacks_makes_no_replica_a_bad_one() -> None:
    async def story() -> None:
        disk = CrashDisk()
        await with_replicas(disk, 1)
        disk.unreadable["spec"] = Unavailable("too many open files")
        replicas = await on(disk)
        with pytest.raises(Unavailable):
            await replicas.open_all()
        assert not replicas.failed

    run(story())


def test_garbage_that_cannot_be_removed_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        disk = CrashDisk()
        await with_replicas(disk, 1)
        volume = await Volume.open(disk, Random(1))
        copied = await ReplicaLog.create(
            disk, volume.folder(name(1), 2), name(1), spec(1).SerializeToString(), random=Random(1)
        )
        await copied.close()
        told: list[str] = []

        async def refuse(path: str) -> None:
            raise DiskFailed(f"{path}: read-only")

        monkeypatch.setattr(disk, "remove", refuse)
        replicas = await on(disk, told=told)
        await replicas.open_all()
        assert [replica.log.folder for replica in replicas.all()] == ["replicas/7.1.1.2"]
        assert "could not be removed" in told[0]

    run(story())


def test_a_defect_in_the_middle_of_a_sync_ends_the_replica_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take appends that are never synced, and nobody would replace it."""

    async def story() -> None:
        defects: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context.get("exception")))
        replicas = await on(CrashDisk())
        replica = await replicas.create(spec(1))
        wrong = ZeroDivisionError("nobody foresaw this")

        async def sync(log: ReplicaLog) -> None:
            raise wrong

        monkeypatch.setattr(ReplicaLog, "sync", sync)
        with pytest.raises(ReplicaFailed, match="nobody foresaw this"):
            await asyncio.wait_for(replica.flush(), 10)
        with pytest.raises(ReplicaFailed):
            await replica.store(Slot(0), [(batch(b"a"), check_batch(batch(b"a")))], settle=False)
        await asyncio.sleep(0)
        assert defects == [wrong]
        await replicas.close()

    run(story())


def test_a_volume_that_has_room_again_is_not_called_full_though_nobody_appends() -> None:
    async def story() -> None:
        disk = CrashDisk()
        replicas = await on(disk)
        replica = await replicas.create(spec(1))
        disk.capacity = disk.used
        data = batch(bytes(SMALLEST_FILE_BYTES // 8))
        with contextlib.suppress(NoSpace):
            while True:
                await replica.store(replica.log.appended, [(data, check_batch(data))], settle=False)
        await replica.tidy()
        assert replica.full
        used = disk.used
        disk.capacity += 4 * SMALLEST_FILE_BYTES
        await replica.tidy()
        assert not replica.full
        assert disk.used == used, "the room is for who appends"
        await replicas.close()

    run(story())


def test_a_trim_that_did_not_reach_the_disk_is_not_confirmed_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        replicas = await on(CrashDisk())
        replica = await replicas.create(spec(1))

        async def rotten(*arguments: object) -> Slot:
            raise Corrupt("rotten")

        with monkeypatch.context() as patched:
            patched.setattr(search, "slot_of_glsn", rotten)
            with pytest.raises(Unavailable, match="try again"):
                await replica.trim(Glsn(5))
        assert replica.failure is None
        await replica.trim(Glsn(5))
        assert replica.log.durable_trimmed_glsn == 5
        await replicas.close()

    run(story())


def test_a_node_short_of_files_writes_when_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "NO_SPACE_PAUSE_S", 0.01)

    async def story() -> None:
        disk = CrashDisk()
        replicas = await on(disk)
        replica = await replicas.create(spec(1))
        disk.unreadable[".data"] = Unavailable("too many open files")
        replica.log._files._close(replica.log._files.last)
        sealing = asyncio.ensure_future(replica.seal())
        while replica.trouble != "too many open files":
            await asyncio.sleep(0)
        disk.unreadable.clear()
        await sealing
        assert (replica.failure, replica.trouble, replica.log.sealed) == (None, "", True)
        await replicas.close()

    run(story())


def test_a_seal_that_was_answered_for_is_not_forgotten_when_it_rots() -> None:
    """Else the replica would say that it is open, which those rely on who ask for the tail."""

    async def story() -> None:
        disk = CrashDisk()
        replicas = await on(disk)
        replica = await replicas.create(spec(1))
        start = replica.log.stored_bytes
        await replica.seal()
        size = replica.log.stored_bytes
        await replica.seal()
        assert replica.log.stored_bytes == size
        await replicas.close()
        disk.flip(f"replicas/7.1.1/{layout.data_name(0)}", start + 20)
        replicas = await on(disk)
        await replicas.open_all()
        assert not replicas.all()
        with pytest.raises(ReplicaFailed, match="was synced"):
            replicas.find(7, 1, 1)

    run(story())


def test_a_dead_volume_does_not_keep_new_replicas_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dead() -> tuple[int, int]:
        raise DiskFailed("input/output error")

    async def story() -> None:
        first, second = CrashDisk(), CrashDisk()
        replicas = await on(first, second)
        monkeypatch.setattr(first, "space", dead)
        await replicas.create(spec(1))
        assert "replicas/7.1.1/spec" in second.paths()
        await replicas.close()

    run(story())


def test_a_volume_beside_its_own_copy_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        config = NodeConfig(repositories=("127.0.0.1:1",))
        node = StorageNode(real_world(), [RealDisk(first)], config)
        await node.start()
        await node.close()
        shutil.copytree(first, second)
        node = StorageNode(real_world(), [RealDisk(first), RealDisk(second)], config)
        with pytest.raises(WrongCluster, match="a copy of it"):
            await node.start()
        await node.close()

    run(story())


def test_what_is_left_of_a_replica_on_one_volume_keeps_it_from_the_others() -> None:
    async def story() -> None:
        small, large = CrashDisk(1 << 30), CrashDisk()
        replicas = await on(small, large)
        await small.make_folder("replicas/7.1.1")
        await replicas.create(spec(1))
        assert "replicas/7.1.1/spec" in small.paths()
        assert "replicas/7.1.1/spec" not in large.paths()
        await replicas.close()

    run(story())


class Removing:
    """Folders are removed, or marked, when it is told so; removed after as many failures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int = 0, hold: str = "drop_folder") -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.failures = failures
        self.hold = hold
        monkeypatch.setattr(removals, "mark_dropped", self._mark_dropped)
        monkeypatch.setattr(removals, "drop_folder", self._drop_folder)

    async def _held(self, step: str) -> None:
        if step == self.hold:
            self.begun.set()
            await self.go_on.wait()

    async def _mark_dropped(self, disk: Disk, folder: str) -> bool:
        await self._held("mark_dropped")
        return await folders.mark_dropped(disk, folder)

    async def _drop_folder(self, disk: Disk, folder: str) -> None:
        await self._held("drop_folder")
        if self.failures:
            self.failures -= 1
            raise Unavailable("too many files are open")
        await folders.drop_folder(disk, folder)


async def open_replica(peer: Peer, stream: int) -> None:
    await peer.call(Method.OPEN, pb.OpenRequest(spec=spec(stream)), timeout=TIMEOUT_S)


async def drop_replica(peer: Peer, stream: int, timeout: float = TIMEOUT_S) -> None:
    request = pb.DropRequest(replica=pb.ReplicaId(log=7, segment=1, stream=stream))
    await peer.call(Method.DROP, request, timeout=timeout)


def test_who_waits_for_more_of_a_replica_hears_that_it_is_gone(tmp_path: Path) -> None:
    """He would wait for ever, or until he looks elsewhere by himself."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            request = pb.ReadRequest(log=7, segment=1, stream=1, slot=0, wait=True)
            parts = peer.stream(Method.READ, request, timeout=TIMEOUT_S)
            await anext(parts)
            await drop_replica(peer, 1)
            with pytest.raises(Unavailable, match="not here any more"):
                await asyncio.wait_for(anext(parts), TIMEOUT_S)

    run(story())


@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("gone", ["deadline", "connection"])
def test_a_drop_goes_on_though_nobody_waits_for_it(
    gone: str, failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is half gone is in no report, so that nobody would ask again before the node starts anew."""
    monkeypatch.setattr(removals, "AGAIN_S", 0.01)

    async def story() -> None:
        removing = Removing(monkeypatch, failures, hold="mark_dropped")
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            folder = tmp_path / "node1" / "replicas" / "7.1.1"
            assert folder.exists()
            if gone == "deadline":
                with pytest.raises(Timeout):
                    await drop_replica(peer, 1, timeout=0.05)
            else:
                asked = asyncio.ensure_future(drop_replica(peer, 1))
                await removing.begun.wait()
                peer.close()
                await asyncio.wait([asked])
                assert asked.exception() is not None
            await asyncio.sleep(0.1)  # the node hears that nobody waits
            assert folder.exists()
            removing.go_on.set()
            while folder.exists():
                await asyncio.sleep(0.01)

    run(story())


def test_what_is_being_removed_holds_up_nobody_but_who_makes_the_same_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        removing = Removing(monkeypatch)
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            await drop_replica(peer, 1)
            await drop_replica(peer, 1)
            same = asyncio.ensure_future(open_replica(peer, 1))
            await open_replica(peer, 2)
            await removing.begun.wait()
            assert not same.done()
            removing.go_on.set()
            await same
            assert (tmp_path / "node1" / "replicas" / "7.1.1" / layout.SPEC).exists()
            assert [replica.id.stream for replica in cluster.nodes[1].replicas.all()] == [2, 1]

    run(story())


def test_what_is_marked_is_gone_for_good_though_the_node_stops_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            for stream in range(1, 6):
                await open_replica(peer, stream)
            with monkeypatch.context() as held:
                Removing(held)
                for stream in range(1, 5):
                    await drop_replica(peer, stream)
                await cluster.stop_node(1)
            folder = tmp_path / "node1" / "replicas"
            assert len(list(folder.iterdir())) == 5
            node = await cluster.start_node(1)
            assert [replica.id.stream for replica in node.replicas.all()] == [5]
            while [each.name for each in folder.iterdir()] != ["7.1.5"]:
                await asyncio.sleep(0.01)

    run(story())


def test_a_node_that_starts_serves_while_it_removes_what_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            for stream in (1, 2):
                await open_replica(peer, stream)
            with monkeypatch.context() as held:
                Removing(held)
                await drop_replica(peer, 1)
                await cluster.stop_node(1)
            removing = Removing(monkeypatch)
            node = await cluster.start_node(1)
            await removing.begun.wait()
            assert [replica.id.stream for replica in node.replicas.all()] == [2]
            peer = await cluster.to_node(1)
            same = asyncio.ensure_future(open_replica(peer, 1))
            await open_replica(peer, 3)
            await drop_replica(peer, 1)
            assert not same.done()
            removing.go_on.set()
            await same
            assert [replica.id.stream for replica in node.replicas.all()] == [2, 3, 1]

    run(story())


def test_a_drop_for_whose_mark_there_is_no_room_is_answered_when_the_replica_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        disk = CrashDisk()
        await with_replicas(disk, 2)
        replicas = await on(disk)
        await replicas.open_all()
        removing = Removing(monkeypatch)

        async def full(disk: Disk, folder: str) -> bool:
            return False

        monkeypatch.setattr(removals, "mark_dropped", full)
        dropping = asyncio.ensure_future(replicas.drop(name(1)))
        await removing.begun.wait()
        again = asyncio.ensure_future(replicas.drop(name(1), before=3))
        await replicas.drop(name(3))
        assert not dropping.done()
        assert not again.done(), "a start of the node would still find it"
        removing.go_on.set()
        await asyncio.gather(dropping, again)
        assert not [path for path in disk.paths() if "7.1.1/" in path]
        await replicas.close()

    run(story())


def test_who_makes_a_replica_waits_for_few_of_hundreds_that_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the one thread of the volume that changes names."""
    many = 100
    at_once: list[int] = [0]
    plain = folders.drop_folder

    async def drop_folder(disk: Disk, folder: str) -> None:
        at_once.append(at_once[-1] + 1)
        await plain(disk, folder)
        at_once.append(at_once[-1] - 1)

    monkeypatch.setattr(removals, "drop_folder", drop_folder)

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            for stream in range(many):
                await open_replica(peer, stream)
            drops = [asyncio.ensure_future(drop_replica(peer, stream)) for stream in range(many)]
            while len(at_once) == 1:
                await asyncio.sleep(0)
            await open_replica(peer, many)
            there = list((tmp_path / "node1" / "replicas").iterdir())
            assert len([each for each in there if not (each / layout.DROPPED).exists()]) > many * 3 // 4
            while len(cluster.nodes[1].replicas.all()) > 1:
                await asyncio.sleep(0.01)
            await open_replica(peer, many + 1)
            await asyncio.gather(*drops)
            while len(list((tmp_path / "node1" / "replicas").iterdir())) > 2:
                await asyncio.sleep(0.01)
            assert max(at_once) == 1
            assert [replica.id.stream for replica in cluster.nodes[1].replicas.all()] == [many, many + 1]

    run(story())


def test_what_goes_from_one_volume_while_another_is_looked_at_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        disks = [CrashDisk(), CrashDisk()]
        replicas = await on(*disks)
        await replicas.create(spec(1))
        removing = Removing(monkeypatch)
        await replicas.drop(name(1))
        looked = asyncio.Event()
        plain = Volume.folders

        async def folders_of(self: Volume, replica: ReplicaId) -> list[str]:
            found = await plain(self, replica)
            looked.set()
            if self.disk is disks[1]:
                while any("7.1.1/" in path for disk in disks for path in disk.paths()):
                    await asyncio.sleep(0)
            return found

        monkeypatch.setattr(Volume, "folders", folders_of)
        again = asyncio.ensure_future(replicas.drop(name(1), before=3))
        await looked.wait()
        removing.go_on.set()
        await again
        assert not any("7.1.1/" in path for disk in disks for path in disk.paths())
        await replicas.close()

    run(story())


def test_a_drop_that_cannot_begin_leaves_the_replica_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on being reported, so that it is asked for again."""

    async def folders_of(self: Volume, replica: ReplicaId) -> list[str]:
        raise Unavailable("too many files are open")

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            with monkeypatch.context() as short:
                short.setattr(Volume, "folders", folders_of)
                with pytest.raises(Unavailable):
                    await drop_replica(peer, 1)
            assert [replica.id.stream for replica in cluster.nodes[1].replicas.all()] == [1]
            await drop_replica(peer, 1)
            assert not cluster.nodes[1].replicas.all()

    run(story())


def test_a_finish_is_seen_to_its_end_though_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers at the end are told, and what was kept in memory goes."""
    go_on = asyncio.Event()
    plain = ReplicaLog.sync

    async def sync(self: ReplicaLog) -> None:
        if self.end is not None:
            await go_on.wait()
        await plain(self)

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            name = pb.ReplicaId(log=99, segment=1, stream=1)
            spec = pb.ReplicaSpec(replica=name, ordering="leader", members=[7, 8], ack=2)
            await peer.call(Method.OPEN, pb.OpenRequest(spec=spec), timeout=TIMEOUT_S)
            stored = pb.StoreRequest(log=99, segment=1, stream=1, slot=0, base=1, committed=1)
            await peer.call(Method.STORE, stored, [batch(b"a")], timeout=TIMEOUT_S)
            await peer.call(Method.SEAL, pb.SealRequest(replica=name), timeout=TIMEOUT_S)
            replica = cluster.nodes[1]._replicas.find(99, 1, 1)
            ended = asyncio.Event()
            replica.on_end.append(ended.set)
            monkeypatch.setattr(ReplicaLog, "sync", sync)
            with pytest.raises(Timeout):
                await peer.call(Method.FINISH, pb.FinishRequest(replica=name, base=1, end=1), timeout=0.2)
            await asyncio.sleep(0.1)  # the node hears that nobody waits
            assert not ended.is_set()
            go_on.set()
            await ended.wait()

    run(story())
