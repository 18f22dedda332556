"""Reads while the trim point moves."""

import asyncio

import pytest
from tests.sim.world import Small

from varlog.base.errors import Trimmed
from varlog.node.config import NodeConfig
from varlog.node.server import StorageNode
from varlog.sim.host import Process
from varlog.sim.weather import DiskWeather, Latency
from varlog.transport.peer import Peer, connect
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

NAME = pb.ReplicaId(log=1, segment=1, stream=1)


async def run_node(process: Process) -> None:
    node = StorageNode(process.world, process.disks, NodeConfig(repositories=("nowhere:1",), listen="node:1"))
    await node.start()
    await node.wait_failed()


async def fill(peer: Peer) -> None:
    """Ten batches of one entry; slots 0 to 4 are GLSNs 1 to 5, slots 5 to 9 are 101 to 105."""
    spec = pb.ReplicaSpec(replica=NAME, ordering="cut", members=[7, 8])
    await peer.call(Method.OPEN, pb.OpenRequest(spec=spec), timeout=60.0)
    batches = b"".join(encode_batch([b"entry %d" % slot]) for slot in range(10))
    store = pb.StoreRequest(log=1, segment=1, stream=1, slot=0)
    await peer.call(Method.STORE, store, [batches], timeout=60.0)
    commits = pb.CommitRequest()
    for slot, glsn in ((0, 1), (5, 101)):
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
    client = small.host("client")

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

    async def main() -> None:
        host.start(run_node)
        await asyncio.sleep(60.0)
        task = client.start(work).main
        assert task is not None
        await task

    small.run(main())
