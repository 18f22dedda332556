"""A node out of touch with the repository takes no appends, and says why (W16)."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import TIMEOUT_S, append, batch, read_parts, run, servers

from varlog.base.errors import Timeout, Unavailable
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def appended(peer: Peer, log: pb.LogInfo, data: bytes) -> int:
    """Where it went, once it is taken: by the time the repository has given its word (again)."""
    while True:
        try:
            reply = (await append(peer, log, data)).message
            assert isinstance(reply, pb.AppendReply)
            return reply.glsn
        except Unavailable:
            await asyncio.sleep(0.02)


async def refused(peer: Peer, log: pb.LogInfo) -> str:
    """Why appends are refused, once they are; before that they wait for the repository."""
    while True:
        try:
            await append(peer, log, batch(b"b", sequence=1), timeout=0.05)
        except Unavailable as error:
            return error.message
        except Timeout:
            await asyncio.sleep(0.02)


def test_appends_are_refused_when_the_lease_has_run_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, heartbeat_ms=50, lease_ms=300) as cluster:
            log = await cluster.create_log()
            primary = log.chain[0].streams[0].members[0]
            peer = await cluster.to_node(primary)
            assert await appended(peer, log, batch(b"a")) == 1
            await cluster.stop_repository()
            assert "out of touch with the repository" in await refused(peer, log)
            assert (await read_parts(peer, log, slot=0))[0].body, "what is committed is read all the same"
            await cluster.start_repository()
            assert await appended(peer, log, batch(b"b", sequence=1)) == 2

    run(story())


def test_a_lease_is_for_registered_nodes(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            peer = await cluster.to_repository()
            with pytest.raises(Unavailable, match="no node is registered on this connection"):
                await peer.call(Method.LEASE, pb.LeaseRequest(), timeout=TIMEOUT_S)

    run(story())
