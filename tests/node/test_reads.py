"""Reads while the trim point, or the end of what is committed, moves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sim.world import Small

from varlog.base.errors import Trimmed, Unavailable
from varlog.base.ids import Slot
from varlog.base.ranges import Binding
from varlog.node import reads
from varlog.node.config import NodeConfig
from varlog.node.server import StorageNode
from varlog.sim.host import Host, Process
from varlog.sim.weather import DiskWeather, Latency, NetworkWeather
from varlog.storage.reader import Reader
from varlog.storage.replica_log import Run
from varlog.transport.limits import PARTS_IN_THE_MAKING
from varlog.transport.peer import Peer, connect
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

NAME = pb.ReplicaId(log=1, segment=1, stream=1)


async def run_node(process: Process) -> None:
    node = StorageNode(process.world, process.disks, NodeConfig(repositories=("nowhere:1",), listen="node:1"))
    await node.start()
    await node.wait_failed()


def run_beside_node(small: Small, host: Host, work: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
    """The node runs on `host`, and has for a while; `work` is that of a client."""
    client = small.host("client")

    async def main() -> None:
        host.start(run_node)
        await asyncio.sleep(60.0)
        task = client.start(work).main
        assert task is not None
        await task

    small.run(main())


async def fill(peer: Peer) -> None:
    """Ten batches of one entry; slots 0 to 4 are GLSNs 1 to 5, slots 5 to 9 are 101 to 105."""
    await store_all(peer)
    await commit(peer, 0, 1)
    await commit(peer, 5, 101)


async def store_all(peer: Peer) -> None:
    spec = pb.ReplicaSpec(replica=NAME, ordering="cut", members=[7, 8])
    await peer.call(Method.OPEN, pb.OpenRequest(spec=spec), timeout=60.0)
    batches = b"".join(encode_batch([b"entry %d" % slot]) for slot in range(10))
    store = pb.StoreRequest(log=1, segment=1, stream=1, slot=0)
    await peer.call(Method.STORE, store, [batches], timeout=60.0)


async def commit(peer: Peer, slot: int, glsn: int) -> None:
    """Five slots."""
    commits = pb.CommitRequest()
    commits.commit_results.add(
        log_id=1,
        segment=1,
        log_stream_id=1,
        committed_llsn_offset=slot + 1,
        committed_glsn_offset=glsn,
        committed_glsn_length=5,
        high_watermark=glsn + 4,
        prev_high_watermark=glsn - 1,
    )
    await peer.call(Method.ADVANCE, commits, timeout=60.0)


def test_a_reader_whose_position_is_trimmed_while_it_reads_is_told_so() -> None:
    """Else entries before the trim point would be given positions counted back from behind it."""
    small = Small()
    host = small.host("node", disk=DiskWeather(read=Latency(1.0, 0.0)))

    async def work(process: Process) -> None:
        peer = await connect(process.world, "node:1", {}, timeout=5.0)
        await fill(peer)
        request = pb.ReadRequest(log=1, segment=1, stream=1, slot=2)
        parts = peer.stream(Method.READ, request, timeout=60.0)
        reading = process.spawn(anext(aiter(parts)), "read")
        await process.clock.sleep(0.05)
        await peer.call(Method.TRIM, pb.TrimRequest(replica=NAME, upto=103), timeout=60.0)
        with pytest.raises(Trimmed) as trimmed:
            await reading
        assert trimmed.value.first == 104

    run_beside_node(small, host, work)


def test_a_reader_whose_replica_goes_while_it_reads_is_told_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with what he asked: a copy may have taken its place."""
    small = Small()
    host = small.host("node")
    plain = Reader.read

    async def work(process: Process) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def read(self: Reader, start: int, limit: int, max_bytes: int, max_batches: int = 0) -> Run:
            begun.set()
            await go_on.wait()
            return await plain(self, start, limit, max_bytes, max_batches)

        peer = await connect(process.world, "node:1", {}, timeout=5.0)
        await fill(peer)
        monkeypatch.setattr(Reader, "read", read)
        request = pb.ReadRequest(log=1, segment=1, stream=1, slot=2)
        parts = peer.stream(Method.READ, request, timeout=60.0)
        reading = process.spawn(anext(aiter(parts)), "read")
        await begun.wait()
        await peer.call(Method.DROP, pb.DropRequest(replica=NAME), timeout=60.0)
        go_on.set()
        with pytest.raises(Unavailable, match="not here any more"):
            await reading

    run_beside_node(small, host, work)


def test_of_one_connection_few_parts_are_in_memory_that_it_has_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams may send, and the connection takes nothing more from the first part on."""
    small = Small(weather=NetworkWeather(delay=Latency(0.1, 0.0), window_bytes=16))
    host = small.host("node", disk=DiskWeather(read=Latency(0.05, 0.0)))
    made: list[int] = [0]
    plain_next, plain_send = reads._Reading._next, reads._Reading._send

    async def following(self: reads._Reading, slot: Slot) -> tuple[Run, list[Binding], bool]:
        found = await plain_next(self, slot)
        made.append(made[-1] + 1)
        return found

    async def send(self: reads._Reading, run: Run, bindings: list[Binding], last: bool) -> None:
        await plain_send(self, run, bindings, last)
        made.append(made[-1] - 1)

    monkeypatch.setattr(reads._Reading, "_next", following)
    monkeypatch.setattr(reads._Reading, "_send", send)
    many = 3 * PARTS_IN_THE_MAKING

    async def work(process: Process) -> None:
        reader = await connect(process.world, "node:1", {}, timeout=5.0)
        writer = await connect(process.world, "node:1", {}, timeout=5.0)
        await fill(writer)
        request = pb.ReadRequest(log=1, segment=1, stream=1, slot=0)
        streams = [reader.stream(Method.READ, request, timeout=600.0) for _ in range(many)]
        for parts in streams:
            assert len([part async for part in parts]) == 1
        assert max(made) in range(1, PARTS_IN_THE_MAKING + 1)

    run_beside_node(small, host, work)


def test_what_is_committed_while_a_search_by_time_waits_is_no_answer_to_it() -> None:
    """The reader's connection takes nothing more for a while, and all entries are older than what is searched."""
    small = Small(weather=NetworkWeather(delay=Latency(0.1, 0.0), window_bytes=16))
    host = small.host("node")

    async def work(process: Process) -> None:
        reader = await connect(process.world, "node:1", {}, timeout=5.0)
        writer = await connect(process.world, "node:1", {}, timeout=5.0)
        await store_all(writer)
        await commit(writer, 0, 1)
        full = pb.ReadRequest(log=1, segment=1, stream=1, slot=0)
        process.spawn(anext(aiter(reader.stream(Method.READ, full, timeout=60.0))), "fill the window")
        await process.clock.sleep(0.02)
        search = pb.ReadRequest(log=1, segment=1, stream=1, time_us=1, max_batches=1)
        searching = process.spawn(anext(aiter(reader.stream(Method.READ, search, timeout=60.0))), "search")
        await process.clock.sleep(0.02)
        await commit(writer, 5, 6)
        part = await searching
        assert (len(part.body), part.message.status.committed) == (0, 10)

    run_beside_node(small, host, work)
