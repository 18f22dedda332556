"""The reading end of a stream: parts in order, and no more in memory than the window allows.

The sender is told in CREDIT frames, as the application takes parts, how much it may send in all:

    granted   = consumed + window
    received <= granted + one part      it may overdraw by the part that crosses the line
"""

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from varlog.base.errors import ConnectionLost, Corrupt, VarlogError
from varlog.base.invariant import invariant
from varlog.wire.frame import (
    CREDIT,
    END,
    FRAME_HEADER_BYTES,
    PART_NUMBERS,
    PROBE,
    WINDOW_UNIT,
    Buffer,
    Frame,
    Kind,
)
from varlog.wire.methods import Method

if TYPE_CHECKING:
    from varlog.transport.calls import Calls


class Reply(NamedTuple):
    """An answer, or one part of it."""

    message: Any
    """Parsed; of the type `wire.methods` gives for the method."""
    body: Buffer


class PartStream:
    """Async iterator over the parts of an answer. Close it when leaving before its end."""

    def __init__(
        self,
        calls: "Calls",
        method: Method,
        kind: type[Message],
        request_id: int,
        window_bytes: int,
        deadline: float,
    ) -> None:
        self.method = method
        self.request_id = request_id
        self.deadline = deadline
        """When the first part must have come; infinity once it has."""
        self._calls = calls
        self._kind = kind
        self._window_bytes = window_units(window_bytes) * WINDOW_UNIT
        self._parts: deque[tuple[Reply, int]] = deque()
        self._next_part = 0
        self._consumed_bytes = 0
        self._granted_bytes = self._window_bytes
        self._heard = True
        self._ended = False
        self._error: VarlogError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> "PartStream":
        return self

    async def __anext__(self) -> Reply:
        """The next part; raises the error that ended the stream once all parts before it were taken."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            invariant(self._waiter is None, "two readers of one stream", method=self.method)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        reply, size = self._parts.popleft()
        self._consumed_bytes += size
        if not self._ended and self._consumed_bytes + self._window_bytes // 2 >= self._granted_bytes:
            self._grant()
        return reply

    async def aclose(self) -> None:
        """Give the stream up; the far side is told. Parts that wait are dropped."""
        self._parts.clear()
        if not self._ended:
            self._calls.give_up(self.request_id, self.method)
            self.end(None)

    async def __aenter__(self) -> "PartStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # ------------------------------------------------------------ called by the connection

    def receive(self, frame: Frame) -> None:
        self._heard = True
        ahead = frame.timeout_ms - self._next_part & PART_NUMBERS
        if ahead > PART_NUMBERS // 2:
            return  # the same part again
        if ahead:
            self.end(ConnectionLost(f"part {self._next_part} of a stream was lost"))
            self._calls.give_up(self.request_id, self.method)
            return
        self._take(frame)
        if frame.flags & END:
            self.end(None)

    def _take(self, frame: Frame) -> None:
        self._next_part = self._next_part + 1 & PART_NUMBERS
        self.deadline = inf
        try:
            message = self._kind.FromString(frame.header)
        except DecodeError:
            self.end(Corrupt(f"a part of {self.method.name} cannot be read"))
            self._calls.give_up(self.request_id, self.method)
            return
        size = FRAME_HEADER_BYTES + len(frame.header) + len(frame.body)
        self._parts.append((Reply(message, frame.body), size))
        self._wake()

    def receive_last(self, frame: Frame) -> None:
        """A REPLY: the far side had one answer only."""
        self._take(frame)
        self.end(None)

    def end(self, error: VarlogError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._error = error
        self.deadline = inf
        self._calls.forget_stream(self.request_id)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ flow control

    def _grant(self) -> None:
        self._granted_bytes = self._consumed_bytes + self._window_bytes
        self._send_credit(0)

    def probe(self) -> None:
        """Called now and then: a stream of which nothing was heard since asks whether it is alive."""
        if self._heard or self.deadline < inf:
            self._heard = False
        else:
            self._send_credit(PROBE)

    def _send_credit(self, flags: int) -> None:
        header = CREDIT.pack(self._granted_bytes)
        self._calls.send(Kind.CREDIT, self.method, self.request_id, header, flags, self._next_part)


def window_units(window_bytes: int) -> int:
    """The window as it is written in a request: at least one unit, at most what its field holds."""
    return max(1, min(0xFFFF, -(-window_bytes // WINDOW_UNIT)))
