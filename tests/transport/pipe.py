"""Two peers joined in memory, with a clock that only moves when told: transport tests without a network."""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from varlog.base.errors import ConnectionLost, VarlogError
from varlog.transport.peer import Handlers, Peer, Request
from varlog.wire.frame import FRAME, FRAME_HEADER_BYTES, Buffer, Frame, Kind
from varlog.wire.proto import varlog_pb2 as pb

ASK = pb.TailRequest(log=7)
"""A question most tests ask."""


def answer(request: Request) -> None:
    request.reply(pb.TailReply(tail=request.message.log + 1), [b"<", request.body, b">"])


def never(request: Request) -> None:
    """Leaves the request open."""


def decode(data: bytes) -> Frame:
    """One whole encoded frame."""
    length, kind, method, flags, request_id, timeout_ms, header_bytes = FRAME.unpack_from(data)
    assert length + 4 == len(data)
    body_at = FRAME_HEADER_BYTES + header_bytes
    return Frame(kind, method, flags, request_id, timeout_ms, data[FRAME_HEADER_BYTES:body_at], data[body_at:])


class ManualTimer:
    def __init__(self, callback: Callable[[], Any]) -> None:
        self.callback: Callable[[], Any] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Stands still until `advance`."""

    def __init__(self) -> None:
        self._now = 100.0
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._numbers = count()

    def now(self) -> float:
        return self._now

    def wall_us(self) -> int:
        return int(self._now * 1e6)

    async def sleep(self, seconds: float) -> None:
        done = asyncio.get_running_loop().create_future()
        self.call_later(seconds, done.set_result, None)
        await done

    def call_later(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> ManualTimer:
        timer = ManualTimer(lambda: callback(*arguments))
        heapq.heappush(self._timers, (self._now + seconds, next(self._numbers), timer))
        return timer

    @property
    def armed(self) -> int:
        """Timers that will still ring."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let time pass; everything that becomes due happens, and what follows from it."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
                await settle()
        self._now = end
        await settle()


class PipeChannel:
    """One end. `sent` is every frame it was given; `filter` decides which frames arrive, and how often."""

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self.other: PipeChannel
        self.handler: Peer
        self.sent: list[Frame] = []
        self.filter: Callable[[Frame], list[Frame]] = lambda frame: [frame]
        self.reading = True
        self.writable = True
        self.is_closed = False
        self._held: list[Frame] = []
        self._waiters: list[asyncio.Future[None]] = []

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self.is_closed:
            return
        frame = decode(b"".join(buffers))
        self.sent.append(frame)
        for arriving in self.filter(frame):
            asyncio.get_running_loop().call_soon(self.other.arrive, arriving)

    def arrive(self, frame: Frame) -> None:
        if not self.reading:
            self._held.append(frame)
        elif not self.is_closed:
            self.handler.frame_received(frame)

    def set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def drained(self) -> None:
        while not self.writable and not self.is_closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        held, self._held = self._held, []
        for frame in held:
            asyncio.get_running_loop().call_soon(self.arrive, frame)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.is_closed:
                end.is_closed = True
                end.set_writable(True)
                error: VarlogError = ConnectionLost("the pipe was closed")
                asyncio.get_running_loop().call_soon(end.handler.closed, error)

    def kinds_sent(self) -> list[Kind]:
        return [Kind(frame.kind) for frame in self.sent]


class Pair:
    """A client and a server peer on one clock. Defects of either are collected."""

    def __init__(self, server: Handlers | None = None, client: Handlers | None = None) -> None:
        self.clock = ManualClock()
        self.defects: list[BaseException] = []
        self.client_channel = PipeChannel("server:1")
        self.server_channel = PipeChannel("client:1")
        self.client_channel.other, self.server_channel.other = self.server_channel, self.client_channel
        self.client = Peer(self.client_channel, self.clock, client or {}, on_defect=self.defects.append)
        self.server = Peer(self.server_channel, self.clock, server or {}, on_defect=self.defects.append)
        self.client_channel.handler, self.server_channel.handler = self.client, self.server


async def settle(turns: int = 30) -> None:
    """Let everything that can happen now happen."""
    for _ in range(turns):
        await asyncio.sleep(0)
