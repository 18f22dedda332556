"""The real network: frames over TCP, with TLS as an option.

    one read --> Receiver --> every whole frame handed on --> what they made us send: one write
    send --> one write
         send, send ... --> queue --(end of this turn of the loop)--> one write

A frame that comes alone is written on the spot: whoever sends it may go on to something long, such as a
sync, and it should be on its way by then. Those right behind it wait for the end of the turn, and so do large
ones: while they are copied something else can begin.

Where the socket is ours alone (no TLS) and nothing waits to be written, frames go to it directly; what
it does not take goes through the loop's transport, and so does all that follows until that is empty.

A channel exists for its handler once both ends have said the preface. Bytes that break the protocol
end the connection: the other end is told why in an ERROR frame with request id 0, and closed.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from time import monotonic
from typing import cast

from varlog.base.errors import ConnectionLost, InvalidArgument, Timeout, Unavailable, VarlogError
from varlog.ports.network import Channel, ChannelHandler
from varlog.runtime.clock import RealClock
from varlog.runtime.timeout import within
from varlog.transport import limits
from varlog.transport.errors import encode_error
from varlog.transport.receive import ReceiveBuffer, Receiver
from varlog.wire.buffers import JOIN_BYTES, gather
from varlog.wire.frame import PREFACE, Buffer, Kind, encode_frame

MakeHandler = Callable[[Channel], ChannelHandler]

MOST_BUFFERS = 64
"""More are put together before they are handed to the system."""


class TcpChannel(asyncio.BufferedProtocol):
    """One TCP connection. `ready` ends when the other end has proved to be one of ours, or is gone."""

    def __init__(self, make_handler: MakeHandler, shared: ReceiveBuffer, listener: "TcpListener | None" = None) -> None:
        self.remote = "unconnected"
        self._make_handler = make_handler
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._handler: ChannelHandler | None = None
        self._transport: asyncio.Transport
        self._receiver = Receiver(shared)
        self.get_buffer = self._receiver.get_buffer  # type: ignore[method-assign]  # with nothing between
        self._queue: list[Buffer] = []
        self._queued_bytes = 0
        self._reading = False
        """What was received is being handed on; what is sent meanwhile leaves right behind it."""
        self._sent_at = 0.0
        """When a frame was last written on the spot."""
        self._socket = -1
        """Its number, where it may be written to directly."""
        self._write_paused = False
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._error: VarlogError | None = None
        self._closing = False
        self._over = False
        """Its handler knows that it ends: it closed the channel itself, or was told."""
        self._limit: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ sending

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue one frame; the buffers must not change until they were written."""
        if self._closing:
            return
        queue = self._queue
        size = sum(map(len, buffers))
        if not queue and not self._reading:
            now = monotonic()
            if size <= limits.ON_THE_SPOT_BYTES and now - self._sent_at > limits.APART_SECONDS:
                self._sent_at = now
                self._write(buffers, size)
                return
            self._loop.call_soon(self._flush)
        queue.extend(buffers)
        self._queued_bytes += size

    def _flush(self) -> None:
        queue, size = self._queue, self._queued_bytes
        self._queue = []
        self._queued_bytes = 0
        if queue and not self._closing:
            self._write(gather(queue) if len(queue) > MOST_BUFFERS else queue, size)
            self._wake()

    def _write(self, buffers: Sequence[Buffer], size: int) -> None:
        transport = self._transport
        if self._socket >= 0 and not transport.get_write_buffer_size():
            try:
                if len(buffers) == 1:
                    written = os.write(self._socket, buffers[0])
                else:
                    written = os.writev(self._socket, buffers[:MOST_BUFFERS])
            except OSError:
                written = 0  # it is full, or gone: the transport finds out which
            if written == size:
                return
            if written:
                buffers = _behind(buffers, written)
                size -= written
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif size <= JOIN_BYTES:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(gather(buffers))
        if transport.get_write_buffer_size() > limits.WRITE_LIMIT_BYTES:
            self._give_up(ConnectionLost(f"{limits.WRITE_LIMIT_BYTES} bytes wait for {self.remote}, which takes none"))

    @property
    def writable(self) -> bool:
        return not self._write_paused and self._queued_bytes < limits.WRITE_HIGH_BYTES

    async def drained(self) -> None:
        # Who waits asks the handler next whether it is over: woken before that knows, he would be back at once.
        while not self.writable and not self._over:
            waiter = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        if self._drain_waiters and (self.writable or self._over):
            waiters, self._drain_waiters = self._drain_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Send what is queued and close; whoever takes too long over it is cut off."""
        self._over = True
        self._wake()
        if self._closing:
            return
        self._flush()
        self._closing = True
        self._transport.close()
        self._set_limit(limits.CLOSE_SECONDS, self._transport.abort)

    def _give_up(self, error: VarlogError) -> None:
        """Cut the connection off. The handler may be the one who sends just now: it is told when the loop says so."""
        self._error = self._error or error
        self._closing = True
        self._transport.abort()

    def _refuse(self, error: VarlogError) -> None:
        """The other end broke the protocol: say so and close. It may be long in reading that: nobody waits for it."""
        self._error = self._error or error
        if self._receiver.greeted:
            self.send(encode_frame(Kind.ERROR, 0, 0, encode_error(error)))
        self.close()
        self._tell(self._error)

    def _tell(self, error: VarlogError) -> None:
        """The handler, once."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.closed(error)

    def _set_limit(self, seconds: float, what: Callable[[], None]) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self._loop.call_later(seconds, what)

    # ------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._listener is not None and not self._listener.admit(self):
            self._give_up(ConnectionLost("one connection too many"))
            return
        self.remote = format_address(transport.get_extra_info("peername"))
        self._set_limit(limits.PREFACE_SECONDS, self._no_preface)
        self._transport.set_write_buffer_limits(high=limits.WRITE_HIGH_BYTES, low=limits.WRITE_HIGH_BYTES // 4)
        self._transport.write(PREFACE)
        inner = transport.get_extra_info("socket")
        if inner is not None and transport.get_extra_info("sslcontext") is None:
            self._socket = inner.fileno()  # open until `connection_lost` has been called

    def abandon(self) -> None:
        """Nobody is there for it any more, unless a handler is."""
        if self._handler is None:
            self._give_up(ConnectionLost("the listener was closed"))

    def _no_preface(self) -> None:
        self._give_up(InvalidArgument(f"{self.remote} did not say what it is"))

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._receiver.received(nbytes)
        handler = self._handler
        if handler is None:
            if self._receiver.greeted and not self._closing:
                handler = self._greeted()
            else:
                frames = []
        self._reading = True
        for frame in frames:
            if self._closing:
                break
            handler.frame_received(frame)  # type: ignore[union-attr]  # set where there are frames
        self._reading = False
        if self._queue:
            self._flush()
        if self._receiver.error is not None and not self._closing:
            self._refuse(self._receiver.error)

    def _greeted(self) -> ChannelHandler:
        if self._limit is not None:
            self._limit.cancel()
        self._handler = self._make_handler(self)
        if not self.ready.done():
            self.ready.set_result(None)
        return self._handler

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake()

    def pause_reading(self) -> None:
        """What was already received is still handed on: no more than the receive buffer holds."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._closing:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = self._over = True
        self._socket = -1
        if self._limit is not None:
            self._limit.cancel()
        if self._error is None:
            reason = f": {exc}" if exc is not None else ""
            self._error = ConnectionLost(f"the connection to {self.remote} was closed{reason}")
        self._queue = []
        self._wake()
        if self._listener is not None:
            self._listener.forget(self)
        if not self.ready.done():
            self.ready.set_result(None)
        self._tell(self._error)

    @property
    def error(self) -> VarlogError | None:
        """Why the connection ended."""
        return self._error


class TcpListener:
    """A bound address."""

    def __init__(self, network: "TcpNetwork", make_handler: MakeHandler) -> None:
        self._network = network
        self._make_handler = make_handler
        self._channels: dict[TcpChannel, None] = {}
        self._server: asyncio.Server | None = None
        self._closed = False
        self.address = ""

    async def open(self, host: str, port: int) -> None:
        tls = self._network.server_tls
        self._server = await asyncio.get_running_loop().create_server(
            self._accept,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=limits.PREFACE_SECONDS if tls else None,
            backlog=limits.LISTEN_BACKLOG,
        )
        self.address = format_address(self._server.sockets[0].getsockname())

    def _accept(self) -> TcpChannel:
        return TcpChannel(self._make_handler, self._network.shared, self)

    def admit(self, channel: TcpChannel) -> bool:
        """Whether an accepted connection may stay."""
        if self._closed or len(self._channels) >= limits.ACCEPTED_CONNECTIONS:
            return False
        self._channels[channel] = None
        return True

    def forget(self, channel: TcpChannel) -> None:
        self._channels.pop(channel, None)

    async def close(self) -> None:
        self._closed = True
        if self._server is None:
            return
        for each in self._server.sockets:
            asyncio.get_running_loop().remove_reader(each)
        try:
            # What was accepted becomes a channel first, which is then closed: asyncio forgets it, open, if its server
            # is closed by then.
            await asyncio.sleep(0)
        finally:
            self._server.close()
            for channel in list(self._channels):
                channel.abandon()


class TcpNetwork:
    """`Network` over TCP, or TLS where contexts are given: one for what it accepts, one for where it connects."""

    def __init__(self, *, server_tls: ssl.SSLContext | None = None, client_tls: ssl.SSLContext | None = None) -> None:
        self.server_tls = server_tls
        self.client_tls = client_tls
        self.shared = ReceiveBuffer()

    async def connect(self, address: str, handler: MakeHandler, *, timeout: float) -> Channel:
        host, port = parse_address(address)
        try:
            return await within(RealClock(), timeout, self._connect(host, port, handler))
        except Timeout as late:
            raise Unavailable(f"{address} did not answer in {timeout:g} s") from late
        except (OSError, UnicodeError) as refused:
            raise Unavailable(f"cannot connect to {address}: {reason(refused)}") from refused

    async def _connect(self, host: str, port: int, handler: MakeHandler) -> TcpChannel:
        loop = asyncio.get_running_loop()
        transport, channel = await loop.create_connection(
            lambda: TcpChannel(handler, self.shared), host, port, ssl=self.client_tls
        )
        try:
            await channel.ready
        except asyncio.CancelledError:
            transport.abort()
            raise
        if channel.error is not None:
            raise Unavailable(channel.error.message) from channel.error
        return channel

    async def listen(self, address: str, handler: MakeHandler) -> TcpListener:
        host, port = parse_address(address)
        listener = TcpListener(self, handler)
        try:
            await listener.open(host, port)
        except (OSError, UnicodeError) as refused:
            raise Unavailable(f"cannot listen at {address}: {reason(refused)}") from refused
        return listener


def _behind(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """What is left of them behind the first `size` bytes."""
    for index, buffer in enumerate(buffers):
        if size < len(buffer):
            return [memoryview(buffer)[size:], *buffers[index + 1 :]]
        size -= len(buffer)
    return []


def parse_address(address: str) -> tuple[str, int]:
    """'host:port' or '[v6 address]:port'."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise InvalidArgument(f"not an address of the form host:port: {address!r}")
    return host, int(port)


def is_everywhere(host: str) -> bool:
    """Whether it stands for all addresses of a machine: one can serve there, and nobody can be sent there."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        pass  # a name, or a number that only the resolver takes
    try:
        return not any(socket.inet_aton(host))
    except OSError:
        return False


def check_advertised(listen: str, advertise: str) -> None:
    """Whether others can find who serves at `listen` and says `advertise`, if anything."""
    host, _ = parse_address(advertise or listen)
    if is_everywhere(host):
        raise InvalidArgument(f"nobody can be sent to {host}: say by which address others reach it (advertise)")


def advertised(advertise: str, serves: str) -> str:
    """The address to give to others: that of `serves` unless another is said; its port may be left to that (0)."""
    if not advertise:
        return serves
    host, port = parse_address(advertise)
    return format_address((host, port or parse_address(serves)[1]))


def format_address(name: object) -> str:
    """A socket's name as people write it."""
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "unknown")


def reason(error: OSError | UnicodeError) -> str:
    """What went wrong, without the numbers that only machines want. A name that is none is a UnicodeError."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        return error.strerror
    return str(error)
