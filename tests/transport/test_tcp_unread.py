"""Connections that end while their other end reads nothing: who waits for room learns of it, and all others go on."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.transport.loopback import PATIENCE_S, MakeLoop, answer, on_each_loop, run, until
from tests.transport.test_tls import client_context, server_context

from varlog.base.errors import ConnectionLost, Unsupported
from varlog.transport import limits
from varlog.transport.peer import Peer, Request, Server, connect, serve
from varlog.transport.tcp import TcpChannel, parse_address
from varlog.transport.world import real_world
from varlog.wire.frame import FRAME, PREFACE, Kind, encode_frame
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

with_and_without_tls = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])

UNKNOWN_KIND = FRAME.pack(16, 77, 1, 0, 1, 1, 0)
LARGEST_WINDOW = 0xFFFF


async def read_for_ever(request: Request) -> None:
    while True:
        await request.part(pb.ReadPart(), [bytes(100_000)])


@pytest.fixture(autouse=True)
def _nobody_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for room that returns again and again though there is none would keep the loop from all else."""
    waits, drained = 0, TcpChannel.drained

    async def counted(channel: TcpChannel) -> None:
        nonlocal waits
        waits += 1
        assert waits < 1000, "it waits without waiting"
        await drained(channel)

    monkeypatch.setattr(TcpChannel, "drained", counted)
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 3600.0)  # nobody waits until it is over


@asynccontextmanager
async def unread(tls: bool) -> AsyncIterator[tuple[Server, Peer, asyncio.StreamWriter]]:
    """A server, its end of a connection whose other end takes no more of a stream, and that end."""
    context: ssl.SSLContext | None = client_context() if tls else None
    world = real_world(server_tls=server_context() if tls else None, client_tls=context)
    server = await serve(world, "127.0.0.1:0", {Method.TAIL: answer, Method.READ: read_for_ever})
    _, writer = await asyncio.open_connection(*parse_address(server.address), ssl=context)
    writer.write(PREFACE + b"".join(encode_frame(Kind.REQUEST, Method.READ, 1, flags=LARGEST_WINDOW, timeout_ms=9999)))
    await until(lambda: len(server.peers) == 1)
    channel = server.peers[0]._channel
    assert isinstance(channel, TcpChannel)
    await until(lambda: channel._write_paused)
    try:
        yield server, server.peers[0], writer
        other = await connect(world, server.address, timeout=PATIENCE_S)
        assert (await other.call(Method.TAIL, pb.TailRequest(), timeout=PATIENCE_S)).message.tail == 5
        other.close()
    finally:
        writer.transport.abort()
        await server.close()


@on_each_loop
@with_and_without_tls
def test_a_frame_that_cannot_be_judged_ends_all_that_waits_for_room(make_loop: MakeLoop, tls: bool) -> None:
    async def main() -> None:
        async with unread(tls) as (server, peer, writer):
            writer.write(UNKNOWN_KIND)
            await until(lambda: server.peers == [])
            assert isinstance(peer.closed_error, Unsupported)
            await peer.wait_closed()

    run(make_loop, main())


@on_each_loop
@with_and_without_tls
def test_who_waits_for_room_on_a_connection_that_is_given_up_learns_of_it(
    make_loop: MakeLoop, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_LIMIT_BYTES", 8 << 20)

    async def main() -> None:
        async with unread(tls) as (server, peer, _):
            peer.notify(Method.ADVANCE, pb.CommitRequest(), [bytes(10 << 20)])
            while peer.closed_error is None:
                if peer.writable:
                    await asyncio.sleep(0)
                else:
                    await peer.drained()
            assert isinstance(peer.closed_error, ConnectionLost)
            assert server.peers == []

    run(make_loop, main())


@on_each_loop
@with_and_without_tls
def test_who_waits_for_room_on_a_connection_that_this_end_closes_learns_of_it(make_loop: MakeLoop, tls: bool) -> None:
    async def main() -> None:
        async with unread(tls) as (_, peer, writer):
            waiting = asyncio.ensure_future(peer.drained())
            await asyncio.sleep(0)
            peer.close()
            await waiting
            assert not peer.writable
            await peer.drained()
            writer.transport.abort()
            await peer.wait_closed()

    run(make_loop, main())
