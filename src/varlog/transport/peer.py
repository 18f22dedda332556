"""The RPC layer: one connection seen from one end. Pure asyncio on a Channel and a Clock; runs simulated too.

Both ends are equal: either may call, notify and stream at any time.

    caller                                               server
    start_call --- REQUEST id, timeout, header, body --> handler(request)
    future     <-- REPLY id / ERROR id ----------------- request.reply / request.fail
    stream     --- REQUEST id, window -----------------> handler(request)
               <-- PART id 0, 1, 2 ... END ------------- await request.part
               --- CREDIT id --------------------------> (as the application takes parts)
               --- CANCEL id --------------------------> (the caller has gone: nothing is answered)
    notify     --- NOTIFY -----------------------------> handler(request), request.pushed

What keeps memory bounded: calls in flight are limited; the connection is not read while too much is
being handled, or while too many answers wait for the other end to take them; streams are paid for by
credit. A handler must therefore not need more requests from its own connection in order to finish.
What keeps a dead end from being waited for: every call has a deadline, known at both ends, and every
connection a heartbeat. The limits are in `transport.limits`, the two halves in `calls` and `service`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message

from varlog.base.errors import ConnectionLost, VarlogError
from varlog.ports import World
from varlog.ports.clock import Clock, Timer
from varlog.ports.network import Channel, Listener
from varlog.runtime.scope import OnDefect, Scope, report_defect
from varlog.transport import limits
from varlog.transport.calls import Answered, Calls
from varlog.transport.deadlines import Deadlines
from varlog.transport.errors import encode_error
from varlog.transport.parts import PartStream, Reply
from varlog.transport.request import Request
from varlog.transport.service import Service
from varlog.wire.frame import Buffer, Frame, Kind, encode_frame
from varlog.wire.methods import Method

__all__ = [
    "Body",
    "Handler",
    "Handlers",
    "PartStream",
    "Peer",
    "Reply",
    "Request",
    "Server",
    "connect",
    "notification",
    "serve",
]

Body = Sequence[Buffer]
Handler = Callable[[Request], Awaitable[None] | None]
"""Answers now or later by the request's methods, or is async and runs as a task, cancelled with the request.
What it raises is sent as an error; what is no `VarlogError` is reported as a defect too."""
Handlers = Mapping[Method, Handler]

_NOTIFY = int(Kind.NOTIFY)
_PING_FRAME = encode_frame(Kind.PING, 0, 0)


def notification(method: Method, message: Message, body: Body = ()) -> list[Buffer]:
    """What `Peer.push` sends."""
    return encode_frame(_NOTIFY, method, 0, message.SerializeToString(), body)


class Peer:
    """One connection; the `ChannelHandler` of its channel."""

    def __init__(
        self, channel: Channel, clock: Clock, handlers: Handlers, *, on_defect: OnDefect | None = None
    ) -> None:
        self.remote = channel.remote
        self.closed_error: VarlogError | None = None
        """None while open."""
        self.context: Any = None
        """Free for the owner of the handlers."""
        self.making = asyncio.Semaphore(limits.PARTS_IN_THE_MAKING)
        """Held by who makes a large part of a stream, behind `Request.sendable` and until it is sent."""
        self._channel = channel
        self._clock = clock
        self._on_defect: OnDefect = on_defect or report_defect
        self._scope = Scope(self._on_defect)
        self._on_close: list[Callable[[VarlogError], None]] = []
        self._channel_gone = False
        self._gone_waiters: list[asyncio.Future[None]] = []
        self._deadlines = Deadlines(clock, self._expire)
        self._calls = calls = Calls(self)
        self._service = service = Service(self, handlers)
        self._receivers: dict[int, Callable[[Frame], None]] = {
            Kind.REQUEST: service.receive_request,
            Kind.REPLY: calls.receive_reply,
            Kind.ERROR: calls.receive_error,
            Kind.PART: calls.receive_part,
            Kind.CREDIT: service.receive_credit,
            Kind.CANCEL: service.receive_cancel,
            Kind.NOTIFY: service.receive_notify,
            Kind.PING: _ignore,
        }
        self._pushed = 0
        """A bit for each method that was pushed."""
        self._paused = False
        self._draining = False
        self._clogged = False
        self._clogged_bytes = 0
        self._sent = False
        self._heard = False
        self._silent_ticks = 0
        self._clogged_ticks = 0
        self._ticker: Timer = clock.call_later(limits.PING_SECONDS, self._tick)

    def __repr__(self) -> str:
        return f"<Peer {self.remote}{' open' if self.closed_error is None else ' closed'}>"

    # ------------------------------------------------------------ calling

    def start_call(
        self, method: Method, header: bytes, body: Body = (), *, timeout: float, answered: Answered | None = None
    ) -> asyncio.Future[Reply]:
        """Send a request, its message as bytes; the future has the answer. No task is made for it.

        `answered` is called with the future when it is done, sooner than a callback of its own; not if it is cancelled.
        """
        return self._calls.start(method, header, body, timeout, answered)

    def call(self, method: Method, message: Message, body: Body = (), *, timeout: float) -> Coroutine[Any, Any, Reply]:
        """Await this: send a request and wait for its answer. When cancelled, the far side is told."""
        return self._calls.call(method, message, body, timeout)

    def stream(
        self, method: Method, message: Message, *, window_bytes: int = limits.WINDOW_BYTES, timeout: float
    ) -> PartStream:
        """Send a request that is answered in parts; `timeout` is for the first of them."""
        return self._calls.stream(method, message, window_bytes, timeout)

    def notify(self, method: Method, message: Message, body: Body = ()) -> None:
        """Send and forget; on a closed connection nothing happens."""
        if self.closed_error is None:
            self._pushed |= 1 << method
            self._sent = True
            self._channel.send(encode_frame(_NOTIFY, method, 0, message.SerializeToString(), body))

    def push(self, method: Method, frame: Sequence[Buffer]) -> None:
        """The same with a `notification` that was made before, perhaps for several."""
        if self.closed_error is None:
            self._pushed |= 1 << method
            self._sent = True
            self._channel.send(frame)

    # ------------------------------------------------------------ the connection

    @property
    def writable(self) -> bool:
        """False while more waits to be sent than the other end takes; who sends much waits for `drained` then."""
        return self._channel.writable

    async def drained(self) -> None:
        """Wait until the connection is writable again, or closed."""
        await self._channel.drained()

    def on_close(self, callback: Callable[[VarlogError], None]) -> None:
        """Call back when the connection ends, however; at once if it already has."""
        if self.closed_error is not None:
            callback(self.closed_error)
        else:
            self._on_close.append(callback)

    @contextmanager
    def waking(self, event: asyncio.Event) -> Iterator[None]:
        """Meanwhile the end of the connection sets an event; afterwards nothing of that is left here."""

        def wake(_: VarlogError) -> None:
            event.set()

        self.on_close(wake)
        try:
            yield
        finally:
            if wake in self._on_close:
                self._on_close.remove(wake)

    def close(self) -> None:
        """Send what is queued and close. Open calls end in `ConnectionLost`, handlers are cancelled."""
        self._end(ConnectionLost("the connection was closed by this end"))
        self._channel.close()

    async def wait_closed(self) -> None:
        """Of a closed connection: wait until its handlers have ended and what was queued has left.

        Not where the other end broke the protocol: it may never read what it was told.
        """
        await self._service.wait_ended()
        await self._scope.close()
        if not self._channel_gone:
            waiter = asyncio.get_running_loop().create_future()
            self._gone_waiters.append(waiter)
            await waiter

    def _send(self, frame: Sequence[Buffer]) -> None:
        self._sent = True
        self._channel.send(frame)

    def _answer(self, frame: Sequence[Buffer]) -> None:
        """Send an answer. Who does not take answers gets no more requests handled, beyond some."""
        self._sent = True
        channel = self._channel
        channel.send(frame)
        if not channel.writable:
            self._watch_drain()
            self._clogged_bytes += sum(map(len, frame))
            if self._clogged_bytes >= limits.ANSWERS_WAITING_BYTES and not self._clogged:
                self._clogged = True
                self._pause_or_resume()

    def _answer_error(self, method: int, request_id: int, error: VarlogError) -> None:
        self._answer(encode_frame(Kind.ERROR, method, request_id, encode_error(error)))

    # ------------------------------------------------------------ from the channel

    def frame_received(self, frame: Frame) -> None:
        self._heard = True
        if self.closed_error is None:
            receiver = self._receivers.get(frame.kind)
            if receiver is not None:
                receiver(frame)

    def closed(self, error: VarlogError) -> None:
        self._end(error)
        self._channel_gone = True
        for waiter in self._gone_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _refused(self, error: VarlogError) -> None:
        """The other end could not read what we sent, and closes."""
        self._end(error)
        self._channel.close()

    def _end(self, error: VarlogError) -> None:
        if self.closed_error is not None:
            return
        self.closed_error = error
        self._ticker.cancel()
        self._deadlines.close()
        self._calls.end(error)
        self._service.end()
        self._scope.cancel()
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            self._guarded(callback, error)

    def _guarded(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception as defect:  # noqa: BLE001 - a callback of others must not end us; it is reported
            self._on_defect(defect)

    # ------------------------------------------------------------ back-pressure

    def _watch_drain(self) -> None:
        if not self._draining and self.closed_error is None:
            self._draining = True
            self._scope.spawn(self._drain(), "drain")

    async def _drain(self) -> None:
        await self._channel.drained()
        self._draining = False
        self._clogged = False
        self._clogged_bytes = 0
        self._clogged_ticks = 0
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        pause = self._clogged or self._service.overloaded
        if pause == self._paused or self.closed_error is not None:
            return
        self._paused = pause
        if pause:
            self._channel.pause_reading()
        else:
            self._channel.resume_reading()

    # ------------------------------------------------------------ time

    def _expire(self, now: float) -> float:
        return min(self._calls.expire(now), self._service.expire(now))

    def _tick(self) -> None:
        """The heartbeat: say that we are here, and notice when the other end no longer is."""
        if self.closed_error is not None:
            return
        self._silent_ticks = 0 if self._heard or self._paused else self._silent_ticks + 1
        self._clogged_ticks += self._draining
        if max(self._silent_ticks, self._clogged_ticks) >= limits.SILENT_TICKS:
            what = "sent" if self._silent_ticks >= limits.SILENT_TICKS else "took"
            seconds = limits.SILENT_TICKS * limits.PING_SECONDS
            self._end(ConnectionLost(f"{self.remote} {what} nothing for {seconds:g} seconds"))
            self._channel.close()
            return
        self._heard = False
        if not self._paused:
            self._calls.probe()
        if not self._channel.writable:
            self._watch_drain()
        if not self._sent:
            self._channel.send(_PING_FRAME)
        self._sent = False
        self._ticker = self._clock.call_later(limits.PING_SECONDS, self._tick)


def _ignore(_: Frame) -> None:
    """A PING: that it came is all it says."""


# ---------------------------------------------------------------- making peers


async def connect(
    world: World,
    address: str,
    handlers: Handlers | None = None,
    *,
    timeout: float,
    on_defect: OnDefect | None = None,
) -> Peer:
    """A connection to the process at `address`; raises `Unavailable` when nobody answers in time."""
    made: list[Peer] = []

    def make(channel: Channel) -> Peer:
        made.append(Peer(channel, world.clock, handlers or {}, on_defect=on_defect))
        return made[-1]

    await world.network.connect(address, make, timeout=timeout)
    return made[-1]


class Server:
    """A listening address and the connections it accepted."""

    def __init__(
        self,
        world: World,
        handlers: Handlers,
        on_peer: Callable[[Peer], None] | None = None,
        on_defect: OnDefect | None = None,
    ) -> None:
        self._world = world
        self._handlers = handlers
        self._on_peer = on_peer
        self._on_defect = on_defect
        self._peers: dict[Peer, None] = {}
        self._listener: Listener | None = None
        self.address = ""

    @property
    def peers(self) -> list[Peer]:
        """Those that are open, oldest first."""
        return list(self._peers)

    async def close(self) -> None:
        """Stop accepting, close every connection, and wait until all is over."""
        try:
            if self._listener is not None:
                await self._listener.close()
        finally:
            for peer in (peers := self.peers):
                peer.close()
        for peer in peers:
            await peer.wait_closed()

    def _accept(self, channel: Channel) -> Peer:
        peer = Peer(channel, self._world.clock, self._handlers, on_defect=self._on_defect)
        self._peers[peer] = None
        peer.on_close(lambda _: self._forget(peer))
        if self._on_peer is not None:
            peer._guarded(self._on_peer, peer)
        return peer

    def _forget(self, peer: Peer) -> None:
        self._peers.pop(peer, None)


async def serve(
    world: World,
    address: str,
    handlers: Handlers,
    on_peer: Callable[[Peer], None] | None = None,
    *,
    on_defect: OnDefect | None = None,
) -> Server:
    """Accept connections at `address`; raises `Unavailable` when it cannot be bound."""
    server = Server(world, handlers, on_peer, on_defect)
    server._listener = await world.network.listen(address, server._accept)
    server.address = server._listener.address
    return server
