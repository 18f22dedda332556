"""The serving end of a call or stream: what a handler gets, and answers by."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from varlog.base.errors import ConnectionLost, InvalidArgument, Unavailable, VarlogError
from varlog.base.invariant import invariant
from varlog.wire.frame import END, FRAME_HEADER_BYTES, PART_NUMBERS, WINDOW_UNIT, Buffer, Frame, Kind, encode_frame
from varlog.wire.methods import Method

if TYPE_CHECKING:
    from varlog.transport.peer import Peer
    from varlog.transport.service import Service

_REPLY, _PART, _NOTIFY = int(Kind.REPLY), int(Kind.PART), int(Kind.NOTIFY)


class Request:
    """One request, to be answered once: by `reply`, by `fail`, or by parts of which the last is marked.

    After `cancelled` nobody waits for an answer any more, and whatever is still answered is dropped.
    """

    cancelled = False
    done = False
    """Answered or cancelled."""
    listed = False
    """The connection counts it as being handled."""
    counted_bytes = 0
    """By how much; 0 again once a stream has begun."""
    deadline = inf
    task: asyncio.Future[None] | None = None
    _callbacks: tuple[Callable[[], None], ...] = ()
    # of a stream
    _waiter: asyncio.Future[None] | None = None
    _allowed_bytes = 0
    """Granted by the reader since the window it began with."""
    _sent_bytes = 0
    _parts = 0
    _probed = (-1, 0)

    def __init__(self, service: "Service", method: Method, message: Message, frame: Frame) -> None:
        # A request that is answered at once is all there is to most: the rest is set when it is needed.
        self._service = service
        self._frame = frame
        self.peer: Peer = service.peer
        self.method = method
        self.message: Any = message
        """Parsed; of the type `wire.methods` gives for the method."""
        self.body: Buffer = frame.body
        self.request_id = frame.request_id
        self.pushed = frame.kind == _NOTIFY
        """A NOTIFY: nobody waits for an answer, and what is answered is dropped."""
        self.streamed = frame.flags > 0
        """The caller asked for a stream."""

    @property
    def timeout(self) -> float:
        """Seconds the caller waits; for a stream, for its first part."""
        return self._frame.timeout_ms / 1000

    # ------------------------------------------------------------ answering

    def reply(self, message: Message, body: Sequence[Buffer] = ()) -> None:
        """The one answer of a call."""
        if self.done:
            invariant(self.cancelled, "a request was answered twice", method=self.method)
            return
        if self.request_id:
            self.peer._answer(encode_frame(_REPLY, self.method, self.request_id, message.SerializeToString(), body))
        self._finish()

    def fail(self, error: VarlogError) -> None:
        """Answer with an error instead; also ends a stream."""
        if self.done:
            invariant(self.cancelled, "a request was answered twice", method=self.method)
            return
        if not self.pushed:
            self.peer._answer_error(self.method, self.request_id, error)
            self._service.refused(self)
        self._finish()

    async def part(self, message: Message, body: Sequence[Buffer] = (), *, end: bool = False) -> None:
        """One of several answers. Returns when it was sent, which waits for the reader to take what came before."""
        invariant(self._waiter is None, "two parts of a stream at once", method=self.method)
        invariant(not self.done or self.cancelled, "a part behind the end of a stream", method=self.method)
        await self.sendable()
        header = message.SerializeToString()
        flags = END if end else 0
        frame = encode_frame(_PART, self.method, self.request_id, header, body, flags=flags, timeout_ms=self._parts)
        self._sent_bytes += FRAME_HEADER_BYTES + len(header) + sum(map(len, body))
        self._parts = self._parts + 1 & PART_NUMBERS
        self.peer._send(frame)
        if end:
            self._finish()
        elif self.counted_bytes:
            self._service.streaming(self)

    async def sendable(self) -> None:
        """Wait until the reader has granted credit and the connection takes more. Who reads from a disk for him does
        so behind this: what he does not take is not kept for him.

        A part may overdraw the credit, so that one larger than the window still passes.
        """
        if not self.streamed:
            raise InvalidArgument(f"{self.method.name} is answered by a stream, and the caller asked for one answer")
        while not self.done:
            if self._sent_bytes >= max(self._allowed_bytes, self._frame.flags * WINDOW_UNIT):
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            elif not self.peer.writable:
                await self.peer.drained()
            else:
                return
        lost = self.peer.closed_error
        raise ConnectionLost(lost.message) if lost else Unavailable("the reader has given up the stream")

    # ------------------------------------------------------------ cancellation

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call back when the caller cancels, its deadline passes, or the connection closes: at once if it already has.

        Not called any more once the request is answered.
        """
        if self.cancelled:
            callback()
        elif not self.done:
            self._callbacks += (callback,)

    def cancel(self, tell: VarlogError | None = None) -> None:
        """Nobody waits any more; `tell` is what the caller is still told, if he has not gone himself."""
        if self.done:
            return
        if tell is not None:
            self.peer._answer_error(self.method, self.request_id, tell)
        self.cancelled = True
        callbacks, task = self._callbacks, self.task
        self._finish()
        for callback in callbacks:
            self.peer._guarded(callback)
        if task is not None:
            task.cancel()

    def _finish(self) -> None:
        self.done = True
        if self._callbacks:
            self._callbacks = ()
        if self._waiter is not None:
            self._wake()
        if self.listed:
            self._service.finished(self)

    # ------------------------------------------------------------ flow control

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def credit(self, allowed_bytes: int, next_part: int, probe: bool) -> None:
        """The reader takes `allowed_bytes` in all and awaits `next_part`."""
        if allowed_bytes > self._allowed_bytes:
            self._allowed_bytes = allowed_bytes
            self._wake()
        if probe:
            part, sent = self._probed
            if part == next_part != sent:
                # What was already sent at the last probe has still not arrived at this one.
                self.cancel(Unavailable(f"part {next_part} of the stream was lost"))
            self._probed = (next_part, self._parts)
