"""COPY: a replica made from what other nodes have, which counts for nothing before it is whole and verified."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.node.test_takeback import payloads
from tests.servers import TIMEOUT_S, Servers, batch, run, servers

from varlog.base.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from varlog.base.ids import Slot
from varlog.storage.replica_log import ReplicaLog
from varlog.transport.peer import Peer
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

NAME = pb.ReplicaId(log=99, segment=1, stream=1)
"""Of a log that the repository does not know: it leaves it alone."""
BATCHES = 60
END = 2 * BATCHES
SOURCES, TARGET = (1, 2), 3
SLOW = 1 << 16


def payload(number: int) -> bytes:
    return f"entry {number:04} ".encode() * 100


def spec(copy: int = 0) -> pb.ReplicaSpec:
    return pb.ReplicaSpec(replica=NAME, ordering="cut", members=[7, 8], copy=copy)


async def make_source(peer: Peer, *, finish: bool = True, different: int = -1) -> None:
    """Two entries a batch, a cut after every third batch, GLSNs with gaps between."""
    await peer.call(Method.OPEN, pb.OpenRequest(spec=spec()), timeout=TIMEOUT_S)
    data = [
        batch(payload(number), b"other" if number == different else payload(number), sequence=number)
        for number in range(BATCHES)
    ]
    store = pb.StoreRequest(log=99, segment=1, stream=1)
    await peer.call(Method.STORE, store, data, timeout=TIMEOUT_S)
    commits = [
        pb.LogStreamCommitResult(
            log_id=99,
            segment=1,
            log_stream_id=1,
            committed_llsn_offset=slot + 1,
            committed_glsn_offset=2 * slot + 1,
            committed_glsn_length=6,
            high_watermark=2 * slot + 12,
        )
        for slot in range(0, END, 6)
    ]
    await peer.call(Method.ADVANCE, pb.CommitRequest(commit_results=commits), timeout=TIMEOUT_S)
    if finish:
        await peer.call(Method.SEAL, pb.SealRequest(replica=NAME), timeout=TIMEOUT_S)
        await peer.call(Method.FINISH, pb.FinishRequest(replica=NAME, end=END), timeout=TIMEOUT_S)


async def make_sources(cluster: Servers) -> None:
    for node in SOURCES:
        await make_source(await cluster.to_node(node))


async def ask(cluster: Servers, copy: int = 1, sources: tuple[int, ...] = SOURCES) -> pb.ReplicaStatus:
    request = pb.CopyRequest(spec=spec(copy), end=END, sources=sources)
    peer = await cluster.to_node(TARGET)
    status = (await peer.call(Method.COPY, request, timeout=TIMEOUT_S)).message
    peer.close()
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def until(
    cluster: Servers, enough: Callable[[pb.ReplicaStatus], bool], copy: int = 1, sources: tuple[int, ...] = SOURCES
) -> list[pb.ReplicaStatus]:
    """All answers up to the first that is enough."""
    answers = [await ask(cluster, copy, sources)]
    while not enough(answers[-1]):
        await asyncio.sleep(0.02)
        answers.append(await ask(cluster, copy, sources))
    return answers


def finished(status: pb.ReplicaStatus) -> bool:
    return status.state == pb.REPLICA_FINISHED


async def digest(cluster: Servers, node: int) -> pb.DigestReply:
    request = pb.DigestRequest(replica=NAME, low=0, high=END, bindings=True)
    reply = (await (await cluster.to_node(node)).call(Method.DIGEST, request, timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.DigestReply)
    return reply


async def read(cluster: Servers, node: int, slot: int) -> list[bytes]:
    request = pb.ReadRequest(log=99, segment=1, stream=1, slot=slot)
    peer = await cluster.to_node(node)
    return payloads([part async for part in peer.stream(Method.READ, request, timeout=TIMEOUT_S)])


def folder(cluster: Servers, node: int, copy: int = 0) -> Path:
    return cluster.folder / f"node{node}" / "replicas" / (f"99.1.1.{copy}" if copy else "99.1.1")


def flip(path: Path, content: bytes) -> None:
    at = path.read_bytes().index(content)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"X")


def test_a_copy_is_the_same_with_its_trim_point_and_producers(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            for node in SOURCES:  # slots 0 to 8, of which the last is the first entry of a batch
                trim = pb.TrimRequest(replica=NAME, upto=15)
                await (await cluster.to_node(node)).call(Method.TRIM, trim, timeout=TIMEOUT_S)
            answers = await until(cluster, finished)
            assert (answers[-1].contiguous, answers[-1].committed, answers[-1].trimmed) == (END, END, 9)
            assert answers[-1].trimmed_glsn == 15
            for _ in range(2):
                ours, theirs = await digest(cluster, TARGET), await digest(cluster, 1)
                assert ours == theirs
                assert ours.rows[-1].content == pb.SLOT_DATA
                assert await read(cluster, TARGET, 9) == await read(cluster, 1, 9)
                question = pb.ProducerRequest(log=99, segment=1, stream=1, producer=b"producer-one-16b")
                reply = await (await cluster.to_node(TARGET)).call(Method.PRODUCER, question, timeout=TIMEOUT_S)
                assert reply.message.next_sequence == BATCHES
                again = pb.AppendRequest(log=99, segment=1, stream=1)
                old = batch(payload(1), payload(1), sequence=1)
                found = await (await cluster.to_node(TARGET)).call(Method.APPEND, again, [old], timeout=TIMEOUT_S)
                assert found.message.slot == 2, "trimmed, and known to be in the log"
                await cluster.stop_node(TARGET)
                await cluster.start_node(TARGET)

    run(story())


def test_a_copy_of_what_is_trimmed_altogether_and_of_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            trim = pb.TrimRequest(replica=NAME, upto=1000)
            await (await cluster.to_node(1)).call(Method.TRIM, trim, timeout=TIMEOUT_S)
            answers = await until(cluster, finished, sources=(1,))
            assert (answers[-1].trimmed, answers[-1].trimmed_glsn, answers[-1].committed) == (END, 1000, END)
            await cluster.stop_node(TARGET)
            await cluster.start_node(TARGET)
            assert finished(await ask(cluster))

    run(story())


def test_a_source_whose_checksums_fail_is_left_for_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            flip(folder(cluster, 1) / "00000000000000000000.data", payload(40))
            await until(cluster, finished)
            assert await read(cluster, TARGET, 0) == await read(cluster, 2, 0)

    run(story())


def half(status: pb.ReplicaStatus) -> bool:
    return 0 < status.contiguous < END


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a copy takes many."""
    monkeypatch.setattr("varlog.node.copy.PART_BYTES", 8 << 10)
    monkeypatch.setattr("varlog.node.copy.GROUP_BYTES", 8 << 10)


@pytest.mark.usefixtures("small_parts")
def test_a_source_that_disappears_half_way_is_left_for_another_and_nothing_is_copied_twice(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            await cluster.stop_node(TARGET)
            await cluster.start_node(TARGET, copy_bytes_per_s=SLOW)
            answers = await until(cluster, half)
            assert not cluster.nodes[TARGET].replicas.all(), "nobody is told of it"
            await cluster.stop_node(1)
            answers += await until(cluster, finished)
            stored = [answer.contiguous for answer in answers]
            assert stored == sorted(stored)
            assert await read(cluster, TARGET, 0) == await read(cluster, 2, 0)

    run(story())


def test_few_small_batches_are_taken_in_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the processor for a moment, and others wait for all of them."""
    monkeypatch.setattr("varlog.node.copy.PART_BYTES", 8 << 10)
    monkeypatch.setattr("varlog.node.copy.GROUP_BATCHES", 4)
    staged: list[int] = []
    plain = ReplicaLog.stage_batches

    def stage_batches(self: ReplicaLog, slot: Slot, batches: Sequence[tuple[Buffer, BatchHeader]]) -> None:
        if self.folder.endswith(".1.1.1"):
            staged.append(len(batches))
        plain(self, slot, batches)

    monkeypatch.setattr(ReplicaLog, "stage_batches", stage_batches)

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            await until(cluster, finished)
            assert sum(staged) == BATCHES
            assert max(staged) < 10, "four, and what comes with the fourth in one part"

    run(story())


@pytest.mark.usefixtures("small_parts")
def test_sources_that_differ_make_it_begin_anew(tmp_path: Path) -> None:
    """What was taken from one that has gone is not what the other has: only one of them is copied."""

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_source(await cluster.to_node(1), different=3)
            await make_source(await cluster.to_node(2))
            # the first has the other batch, and then no more of it can be read
            flip(folder(cluster, 1) / "00000000000000000000.data", payload(40))
            await until(cluster, finished)
            assert await read(cluster, TARGET, 0) == await read(cluster, 2, 0)

    run(story())


def test_without_a_source_it_fails_once_and_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_source(await cluster.to_node(1), finish=False)
            assert (await ask(cluster)).state == pb.REPLICA_COPYING
            with pytest.raises(Unavailable, match="no source"):
                await until(cluster, finished)
            assert not folder(cluster, TARGET, 1).exists()
            await make_source(await cluster.to_node(2))
            await until(cluster, finished)

    run(story())


@pytest.mark.usefixtures("small_parts")
def test_a_node_that_starts_again_has_nothing_of_a_half_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            await cluster.stop_node(TARGET)
            await cluster.start_node(TARGET, copy_bytes_per_s=SLOW)
            await until(cluster, half)
            with pytest.raises(NotFound):
                await read(cluster, TARGET, 0)
            peer = await cluster.to_node(TARGET)
            with pytest.raises(AlreadyExists):
                await peer.call(Method.OPEN, pb.OpenRequest(spec=spec()), timeout=TIMEOUT_S)
            await cluster.stop_node(TARGET)
            assert (folder(cluster, TARGET, 1) / "copying").exists()
            await cluster.start_node(TARGET)
            with pytest.raises(NotFound):
                await read(cluster, TARGET, 0)
            while folder(cluster, TARGET, 1).exists():
                await asyncio.sleep(0.01)
            await until(cluster, finished)
            assert await read(cluster, TARGET, 0) == await read(cluster, 2, 0)

    run(story())


def test_a_late_word_to_drop_does_not_hit_a_later_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            peer = await cluster.to_node(TARGET)

            async def drop(before: int) -> None:
                await peer.call(Method.DROP, pb.DropRequest(replica=NAME, before=before), timeout=TIMEOUT_S)

            await until(cluster, finished, copy=5)
            await drop(5)
            assert finished(await ask(cluster, copy=5))
            with pytest.raises(AlreadyExists):
                await ask(cluster, copy=6)
            await drop(6)
            with pytest.raises(NotFound):
                await read(cluster, TARGET, 0)
            await until(cluster, finished, copy=7)
            await drop(6)
            assert len(await read(cluster, TARGET, 0)) == END

    run(story())


@pytest.mark.usefixtures("small_parts")
def test_a_copy_under_way_can_be_dropped_and_a_later_one_takes_its_place(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await make_sources(cluster)
            await cluster.stop_node(TARGET)
            await cluster.start_node(TARGET, copy_bytes_per_s=SLOW)
            peer = await cluster.to_node(TARGET)
            await until(cluster, lambda _: folder(cluster, TARGET, 2).exists(), copy=2)
            await ask(cluster, copy=3)
            with pytest.raises(AlreadyExists):
                await ask(cluster, copy=2)
            await until(cluster, lambda _: folder(cluster, TARGET, 3).exists(), copy=3)
            assert not folder(cluster, TARGET, 2).exists()
            await peer.call(Method.DROP, pb.DropRequest(replica=NAME, before=4), timeout=TIMEOUT_S)
            assert not folder(cluster, TARGET, 3).exists()
            with pytest.raises(InvalidArgument):
                await ask(cluster, copy=0)

    run(story())
