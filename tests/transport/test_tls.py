"""The real network over TLS.

The certificates in `tls/` are for these tests alone: a throw-away authority signed a server's and a
client's for 'localhost' and 127.0.0.1, valid for a century; the authority's key was not kept.
"""

import logging
import ssl
from pathlib import Path

import pytest
from tests.transport.loopback import PATIENCE_S, MakeLoop, any_end, on_each_loop, open_raw, run, served, until

from varlog.base.errors import Unavailable
from varlog.transport import limits
from varlog.transport.peer import connect
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

TLS = Path(__file__).parent / "tls"


def server_context(*, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=TLS / "authority.pem")
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
    return context


def client_context(*, certificate: bool = False, trusting: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=TLS / "authority.pem" if trusting else None)
    if certificate:
        context.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    return context


@on_each_loop
@pytest.mark.parametrize("mutual", [False, True])
def test_calls_over_tls(make_loop: MakeLoop, mutual: bool) -> None:
    async def main() -> None:
        async with served(real_world(server_tls=server_context(mutual=mutual))) as server:
            world = real_world(client_tls=client_context(certificate=mutual))
            peer = await connect(world, server.address, timeout=PATIENCE_S)
            for size in (0, 100, 70_000, 3 << 20):
                body = b"t" * size
                calls = [
                    peer.start_call(Method.TAIL, pb.TailRequest().SerializeToString(), [body], timeout=PATIENCE_S)
                    for _ in range(5)
                ]
                for call in calls:
                    assert (await call).body == body
            peer.close()
            await until(lambda: server.peers == [])

    run(make_loop, main())


@on_each_loop
def test_who_is_not_trusted_gets_no_connection(make_loop: MakeLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")

    async def main() -> None:
        async with served(real_world(server_tls=server_context(mutual=True))) as server:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await connect(real_world(client_tls=client_context(trusting=False)), server.address, timeout=5)
            with pytest.raises(Unavailable):
                await connect(real_world(client_tls=client_context()), server.address, timeout=5)
            with pytest.raises(Unavailable):
                await connect(real_world(), server.address, timeout=1)
            assert server.peers == []
        async with served() as plain:
            with pytest.raises(Unavailable):
                await connect(real_world(client_tls=client_context()), plain.address, timeout=5)

    run(make_loop, main())


@on_each_loop
def test_failed_handshakes_do_not_use_up_connections(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCEPTED_CONNECTIONS", 2)

    async def main() -> None:
        async with served(real_world(server_tls=server_context())) as server:
            for _ in range(5):
                reader, writer = await open_raw(server)
                writer.write(b"this is no handshake" * 10)
                with any_end():
                    await reader.read()
                writer.close()
            peer = await connect(real_world(client_tls=client_context()), server.address, timeout=PATIENCE_S)
            assert (await peer.call(Method.TAIL, pb.TailRequest(), timeout=PATIENCE_S)).message.tail == 5
            peer.close()

    run(make_loop, main())
