"""The real network: preface, refusals, one write a turn, limits, addresses."""

import asyncio
import gc
import socket
from math import inf
from typing import Any

import pytest
from tests.transport.loopback import PATIENCE_S, MakeLoop, any_end, on_each_loop, open_raw, run, served, until

from varlog.base.errors import ConnectionLost, InvalidArgument, TooLarge, Unavailable, Unsupported, VarlogError
from varlog.ports import Channel
from varlog.transport import limits, tcp
from varlog.transport.errors import decode_error
from varlog.transport.peer import Peer, connect, serve
from varlog.transport.tcp import TcpChannel, TcpNetwork, format_address, parse_address
from varlog.transport.world import real_world
from varlog.wire.buffers import JOIN_BYTES
from varlog.wire.frame import FRAME, PREFACE, Buffer, Frame, Kind, encode_frame
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


@on_each_loop
def test_calls_of_every_size(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            peer = await connect(real_world(), server.address, timeout=PATIENCE_S)
            for size in (0, 1, 100, 15_000, 16_384, 65_536, 300_000, 3 << 20, 16 << 20):
                body = bytes([size & 255]) * size
                reply = await peer.call(Method.TAIL, pb.TailRequest(), [body], timeout=PATIENCE_S)
                assert reply.message.tail == 5
                assert reply.body == body
            peer.close()

    run(make_loop, main())


@on_each_loop
def test_a_server_says_the_preface_at_once(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            reader, writer = await open_raw(server)
            assert await reader.readexactly(len(PREFACE)) == PREFACE
            assert server.peers == [], "nobody is a peer before he has said the preface"
            writer.write(PREFACE)
            await until(lambda: len(server.peers) == 1)
            writer.close()
            await until(lambda: server.peers == [])

    run(make_loop, main())


@on_each_loop
@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"\x02", b"\x16\x03\x01"])
def test_who_speaks_something_else_is_hung_up_on(make_loop: MakeLoop, first: bytes) -> None:
    async def main() -> None:
        async with served() as server:
            reader, writer = await open_raw(server)
            writer.write(first)
            assert await reader.read() == PREFACE
            assert server.peers == []
            writer.close()

    run(make_loop, main())


@on_each_loop
def test_who_says_nothing_is_hung_up_on(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREFACE_SECONDS", 0.05)

    async def main() -> None:
        async with served() as server:
            reader, writer = await open_raw(server)
            with any_end():
                assert await reader.read() == PREFACE
            writer.close()

    run(make_loop, main())


@on_each_loop
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(FRAME.pack(0xFFFFFFFF, 1, 1, 0, 1, 1, 0), TooLarge, id="huge"),
        pytest.param(FRAME.pack(16, 77, 1, 0, 1, 1, 0), Unsupported, id="kind"),
    ],
)
def test_who_breaks_the_protocol_is_told_and_hung_up_on(
    make_loop: MakeLoop, bad: bytes, error: type[VarlogError]
) -> None:
    async def main() -> None:
        async with served() as server:
            other = await connect(real_world(), server.address, timeout=PATIENCE_S)
            reader, writer = await open_raw(server)
            good = b"".join(encode_frame(Kind.REQUEST, Method.TAIL, 1, timeout_ms=1000))
            writer.write(PREFACE + good + bad + good)
            came = await reader.read()
            frames = split(came[len(PREFACE) :])
            assert [frame.kind for frame in frames] == [Kind.REPLY, Kind.ERROR]
            assert (frames[1].request_id, frames[1].method) == (0, 0)
            assert type(decode_error(frames[1].header)) is error
            writer.close()
            await until(lambda: len(server.peers) == 1)
            assert (await other.call(Method.TAIL, pb.TailRequest(), timeout=PATIENCE_S)).message.tail == 5
            other.close()

    run(make_loop, main())


def split(data: bytes) -> list[Frame]:
    frames = []
    while data:
        length, kind, method, flags, number, timeout_ms, header_bytes = FRAME.unpack_from(data)
        header, body = data[20 : 20 + header_bytes], data[20 + header_bytes : 4 + length]
        frames.append(Frame(kind, method, flags, number, timeout_ms, header, body))
        data = data[4 + length :]
    return frames


@on_each_loop
def test_a_caller_learns_why_it_was_hung_up_on(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            peer = await connect(real_world(), server.address, timeout=PATIENCE_S)
            peer._send([FRAME.pack(0xFFFFFFFF, 1, 1, 0, 1, 1, 0)])
            await until(lambda: peer.closed_error is not None)
            assert isinstance(peer.closed_error, TooLarge)

    run(make_loop, main())


@on_each_loop
@pytest.mark.parametrize(
    ("greeting", "what"),
    [(b"SSH-2.0-OpenSSH_9.9\r\n", "does not speak"), (PREFACE[:-1] + b"\x07", "version 7"), (b"", "closed")],
)
def test_connecting_to_something_else_is_unavailable(make_loop: MakeLoop, greeting: bytes, what: str) -> None:
    async def main() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting)
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = format_address(server.sockets[0].getsockname())
        with pytest.raises(Unavailable, match=what):
            await connect(real_world(), address, timeout=5)
        server.close()

    run(make_loop, main())


@on_each_loop
def test_an_address_that_accepts_and_stays_silent_is_unavailable_in_time(make_loop: MakeLoop) -> None:
    async def main() -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        address = format_address(silent.getsockname())
        with pytest.raises(Unavailable, match="did not answer"):
            await connect(real_world(), address, timeout=0.1)
        silent.close()

    run(make_loop, main())


@on_each_loop
def test_a_host_that_cannot_be_is_unavailable(make_loop: MakeLoop) -> None:
    async def main() -> None:
        impossible = "x" * 64 + ".invalid:1"
        with pytest.raises(Unavailable, match="cannot connect"):
            await connect(real_world(), impossible, timeout=5)
        with pytest.raises(Unavailable, match="cannot listen"):
            await serve(real_world(), impossible, {})

    run(make_loop, main())


@on_each_loop
def test_a_port_in_use_is_named(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            with pytest.raises(Unavailable, match=f"cannot listen at {server.address}: .*in use"):
                await serve(real_world(), server.address, {})

    run(make_loop, main())


class CountingTransport(asyncio.Transport):
    """Takes what is written and remembers how."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Buffer]] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append([data])

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(list(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return sum(len(buffer) for write in self.writes for buffer in write)

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        pass


class Deaf:
    def __init__(self, channel: Channel) -> None:
        pass

    def frame_received(self, frame: Frame) -> None:
        pass

    def closed(self, error: VarlogError) -> None:
        pass


def open_counting(handler: type[Deaf] = Deaf) -> tuple[TcpChannel, CountingTransport]:
    channel = TcpChannel(handler, TcpNetwork().shared)
    transport = CountingTransport()
    channel.connection_made(transport)
    transport.writes.clear()
    return channel, transport


NEVER, ALWAYS = inf, -1.0
"""Values of APART_SECONDS with which no frame, or every one, is written on the spot."""


def test_all_frames_of_one_turn_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APART_SECONDS", NEVER)

    async def main() -> None:
        channel, transport = open_counting()
        big = bytes(JOIN_BYTES)
        for body in (b"a", b"b", big, b"c", b"d"):
            channel.send([b"head", body])
        assert transport.writes == []
        await asyncio.sleep(0)
        assert transport.writes == [[b"headaheadbhead", big, b"headcheadd"]]
        assert transport.writes[0][1] is big, "what is large is not copied"
        for _ in range(2):
            channel.send([b"x"])
            channel.send([b"y", b"z"])
            await asyncio.sleep(0)
        assert transport.writes[1:] == [[b"xyz"], [b"xyz"]]
        channel.connection_lost(None)

    asyncio.run(main())


def receive(channel: TcpChannel, data: bytes) -> None:
    memoryview(channel.get_buffer(-1))[: len(data)] = data
    channel.buffer_updated(len(data))


def test_a_frame_that_comes_alone_does_not_wait_for_the_end_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        channel, transport = open_counting()
        monkeypatch.setattr(limits, "APART_SECONDS", ALWAYS)
        channel.send([b"first"])
        assert transport.writes == [[b"first"]]
        monkeypatch.setattr(limits, "APART_SECONDS", NEVER)
        channel.send([b"second"])
        monkeypatch.setattr(limits, "APART_SECONDS", ALWAYS)
        channel.send([b"third"])
        assert transport.writes == [[b"first"]], "nothing overtakes what waits"
        await asyncio.sleep(0)
        assert transport.writes == [[b"first"], [b"secondthird"]], "in order"
        channel.connection_lost(None)

    asyncio.run(main())


@on_each_loop
def test_what_the_socket_does_not_take_at_once_follows_in_order(make_loop: MakeLoop) -> None:
    """Large frames written one after the other, each on the spot, to an end that begins to read late."""
    sizes = [3_000_000, 10, 5_000_000, 1, 70_000]

    async def main() -> None:
        got: list[tuple[int, int]] = []
        done = asyncio.get_running_loop().create_future()

        class Collector(Deaf):
            def __init__(self, channel: Channel) -> None:
                channel.pause_reading()
                asyncio.get_running_loop().call_later(0.05, channel.resume_reading)

            def frame_received(self, frame: Frame) -> None:
                body = bytes(frame.body)
                assert body == bytes([frame.request_id]) * len(body)
                got.append((frame.request_id, len(body)))
                if len(got) == len(sizes):
                    done.set_result(None)

        network = TcpNetwork()
        listener = await network.listen("127.0.0.1:0", Collector)
        channel = await network.connect(listener.address, Deaf, timeout=PATIENCE_S)
        for number, size in enumerate(sizes, 1):
            channel.send(encode_frame(Kind.NOTIFY, 1, number, b"", [bytes([number]) * size]))
        await done
        assert got == list(enumerate(sizes, 1))
        channel.close()
        await listener.close()

    run(make_loop, main())


def test_what_frames_make_us_send_leaves_in_one_write_right_behind_them() -> None:
    class Parrot(Deaf):
        def __init__(self, channel: Channel) -> None:
            self.channel = channel

        def frame_received(self, frame: Frame) -> None:
            self.channel.send([b"echo ", frame.header])

    async def main() -> None:
        channel, transport = open_counting(Parrot)
        frames = b"".join(bytes(encode_frame(Kind.NOTIFY, 1, 0, b"%d " % number)[0]) for number in range(3))
        receive(channel, PREFACE + frames)
        assert transport.writes == [[b"echo 0 echo 1 echo 2 "]]
        channel.connection_lost(None)

    asyncio.run(main())


def test_an_owner_that_ignores_back_pressure_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_LIMIT_BYTES", 1000)

    async def main() -> None:
        channel, transport = open_counting()
        channel.send([bytes(900)])
        await asyncio.sleep(0)
        assert not transport.aborted
        channel.send([bytes(200)])
        await asyncio.sleep(0)
        assert transport.aborted
        channel.connection_lost(None)
        assert isinstance(channel.error, ConnectionLost)

    asyncio.run(main())


def test_a_turn_that_queues_too_much_is_not_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APART_SECONDS", NEVER)

    async def main() -> None:
        channel, _ = open_counting()
        assert channel.writable
        channel.send([bytes(limits.WRITE_HIGH_BYTES)])
        assert not channel.writable
        await channel.drained()
        assert channel.writable
        channel.connection_lost(None)

    asyncio.run(main())


@on_each_loop
def test_a_connection_too_many_is_closed(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCEPTED_CONNECTIONS", 2)

    async def main() -> None:
        async with served() as server:
            peers = [await connect(real_world(), server.address, timeout=PATIENCE_S) for _ in range(2)]
            with pytest.raises(Unavailable):
                await connect(real_world(), server.address, timeout=PATIENCE_S)
            peers[0].close()
            await until(lambda: len(server.peers) == 1)
            peers.append(await connect(real_world(), server.address, timeout=PATIENCE_S))
            assert (await peers[2].call(Method.TAIL, pb.TailRequest(), timeout=PATIENCE_S)).message.tail == 5
            for peer in peers:
                peer.close()

    run(make_loop, main())


@on_each_loop
@pytest.mark.parametrize("turns", range(5))
def test_who_comes_while_the_server_closes_is_hung_up_on(make_loop: MakeLoop, turns: int) -> None:
    """However far the loop has come with the connection by then: it is closed, not left to be found as garbage."""

    async def main() -> None:
        async with served() as server:
            with socket.create_connection(parse_address(server.address)) as late:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await server.close()
                late.setblocking(False)
                try:
                    while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(late, 100), PATIENCE_S):
                        pass
                except ConnectionResetError:
                    pass

    run(make_loop, main())
    gc.collect()


@on_each_loop
def test_closing_the_server_ends_those_who_have_not_said_what_they_are(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            reader, writer = await open_raw(server)
            assert await reader.readexactly(len(PREFACE)) == PREFACE
        with any_end():
            assert await reader.read() == b""
        writer.close()

    run(make_loop, main())


@on_each_loop
def test_whoever_stops_waiting_for_the_close_leaves_nothing_open(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with served() as server:
            peer = await connect(real_world(), server.address, timeout=PATIENCE_S)
            closing = asyncio.ensure_future(server.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await until(lambda: peer.closed_error is not None)
            await (await serve(real_world(), server.address, {})).close()

    run(make_loop, main())


@on_each_loop
def test_closing_does_not_wait_for_ever_for_who_does_not_read(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.1)

    async def main() -> None:
        accepted: list[Peer] = []
        server = await serve(real_world(), "127.0.0.1:0", {}, accepted.append)
        deaf = socket.create_connection(parse_address(server.address))
        deaf.sendall(PREFACE)
        await until(lambda: len(accepted) == 1)
        channel = accepted[0]._channel
        assert isinstance(channel, TcpChannel)
        for _ in range(20):
            accepted[0].notify(Method.ADVANCE, pb.CommitRequest(), [bytes(1 << 20)])
        await asyncio.sleep(0.05)
        accepted[0].close()
        await until(lambda: channel.error is not None)
        deaf.close()
        await server.close()

    run(make_loop, main())


@on_each_loop
def test_small_packets_are_not_delayed(make_loop: MakeLoop) -> None:
    async def main() -> None:
        accepted: list[Peer] = []
        server = await serve(real_world(), "127.0.0.1:0", {}, accepted.append)
        peer = await connect(real_world(), server.address, timeout=PATIENCE_S)
        await until(lambda: len(accepted) == 1)
        for each in (peer, accepted[0]):
            assert isinstance(each._channel, TcpChannel)
            inner = each._channel._transport.get_extra_info("socket")
            assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        peer.close()
        await server.close()

    run(make_loop, main())


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:port", "host:65536", "host:-1", "host:1_0", "host:²"]
)
def test_what_is_no_address_is_said_so(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("localhost:0") == ("localhost", 0)
    assert parse_address("[::1]:7700") == ("::1", 7700)
    assert format_address(("::1", 7700, 0, 0)) == "[::1]:7700"
    assert format_address(("127.0.0.1", 1)) == "127.0.0.1:1"
    assert format_address(None) == "unknown"
    assert tcp.reason(OSError("odd")) == "odd"
