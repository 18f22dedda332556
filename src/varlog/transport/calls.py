"""The calling half of a connection: what this end asked for and waits for."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, Message

from varlog.base.errors import ConnectionLost, Overloaded, Timeout, Unavailable, VarlogError
from varlog.transport import limits
from varlog.transport.errors import decode_error
from varlog.transport.parts import PartStream, Reply, window_units
from varlog.wire.frame import Frame, Kind, encode_frame
from varlog.wire.methods import MESSAGES, Method

if TYPE_CHECKING:
    from varlog.transport.peer import Body, Peer

_REQUEST_IDS = 0xFFFFFFFF
"""Ids go from 1 to this, and round again."""
_LONGEST_SECONDS = 4_000_000.0
"""The field of a frame holds some more milliseconds than this."""
_REQUEST = int(Kind.REQUEST)
_ANSWERS: dict[Method, type[Message]] = {method: answer for method, (_, answer) in MESSAGES.items()}


Answered = Callable[["asyncio.Future[Reply]"], None]
"""Called with the future of a call that has ended, in the same turn of the loop in which its answer came: whoever
waits behind it is served that much earlier."""

_Call = tuple["asyncio.Future[Reply]", type[Message], float, Answered | None]
"""A call whose answer is awaited: its future, the type of its answer, its deadline, who is called."""


class Calls:
    """Calls and streams by request id; an id is here as long as its answer is awaited."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._clock = peer._clock
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._calls: dict[int, _Call] = {}
        self._streams: dict[int, PartStream] = {}

    def start(
        self, method: Method, header: bytes, body: "Body", timeout: float, answered: Answered | None = None
    ) -> asyncio.Future[Reply]:
        """See `Peer.start_call`."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        try:
            request_id = self._request(method, header, body, timeout, 0)
        except VarlogError as error:
            _end(future, error, answered)
            return future
        now = self._clock.now()
        deadline = now + timeout
        self._calls[request_id] = (future, _ANSWERS[method], deadline, answered)
        if deadline < self._peer._deadlines.at:
            self._peer._deadlines.announce(deadline, now)
        return future

    async def call(self, method: Method, message: Message, body: "Body", timeout: float) -> Reply:
        """See `Peer.call`."""
        future = self.start(method, message.SerializeToString(), body, timeout)
        request_id = self._last_id
        try:
            return await future
        except asyncio.CancelledError:
            call = self._calls.get(request_id)
            if call is not None and call[0] is future:
                del self._calls[request_id]
                self.give_up(request_id, method)
            raise

    def stream(self, method: Method, message: Message, window_bytes: int, timeout: float) -> PartStream:
        """See `Peer.stream`."""
        request_id = self._request(method, message.SerializeToString(), (), timeout, window_units(window_bytes))
        now = self._clock.now()
        stream = PartStream(self, method, _ANSWERS[method], request_id, window_bytes, now + timeout)
        self._streams[request_id] = stream
        self._peer._deadlines.announce(stream.deadline, now)
        return stream

    def _request(self, method: Method, header: bytes, body: "Body", timeout: float, window: int) -> int:
        """Send a REQUEST; its id."""
        peer = self._peer
        if peer.closed_error is not None:
            raise Unavailable(f"{peer.remote}: {peer.closed_error.message}")
        if len(self._calls) + len(self._streams) >= limits.CALLS_IN_FLIGHT:
            raise Overloaded(f"{limits.CALLS_IN_FLIGHT} calls to {peer.remote} are in flight", 10)
        request_id = self._last_id % _REQUEST_IDS + 1
        while request_id in self._calls or request_id in self._streams:
            request_id = request_id % _REQUEST_IDS + 1
        milliseconds = int((timeout if 0.0 < timeout < _LONGEST_SECONDS else _bounded(timeout)) * 1000) + 1
        frame = encode_frame(_REQUEST, method, request_id, header, body, flags=window, timeout_ms=milliseconds)
        self._last_id = request_id
        peer._sent = True
        peer._channel.send(frame)
        return request_id

    def give_up(self, request_id: int, method: int) -> None:
        """Tell the far side that nobody waits."""
        self.send(Kind.CANCEL, method, request_id)

    def send(self, kind: int, method: int, request_id: int, header: bytes = b"", flags: int = 0, part: int = 0) -> None:
        self._peer._send(encode_frame(kind, method, request_id, header, flags=flags, timeout_ms=part))

    def forget_stream(self, request_id: int) -> None:
        self._streams.pop(request_id, None)

    # ------------------------------------------------------------ what comes back

    def receive_reply(self, frame: Frame) -> None:
        call = self._calls.pop(frame.request_id, None)
        if call is None:
            stream = self._streams.get(frame.request_id)
            if stream is not None:
                stream.receive_last(frame)
            return
        future, kind, _, answered = call
        if future.done():
            return
        try:
            future.set_result(Reply(kind.FromString(frame.header), frame.body))
        except DecodeError:
            # Not `Corrupt`, by which a server refuses: what this one did, nobody knows.
            future.set_exception(VarlogError(f"an answer of {self._peer.remote} cannot be read"))
        if answered is not None:
            self._peer._guarded(answered, future)

    def receive_error(self, frame: Frame) -> None:
        error = decode_error(frame.header)
        call = self._calls.pop(frame.request_id, None)
        if call is not None:
            future, _, _, answered = call
            if not future.done():
                future.set_exception(error)
                if answered is not None:
                    self._peer._guarded(answered, future)
            return
        stream = self._streams.get(frame.request_id)
        if stream is not None:
            stream.end(error)
        elif frame.request_id == 0 and frame.method == 0:
            self._peer._refused(error)
        elif frame.request_id == 0 and self._peer._pushed >> frame.method & 1:
            # The far side could do nothing with something we pushed.
            self._peer._on_defect(error)

    def receive_part(self, frame: Frame) -> None:
        stream = self._streams.get(frame.request_id)
        if stream is not None:
            stream.receive(frame)
        else:
            self.give_up(frame.request_id, frame.method)

    # ------------------------------------------------------------ time and the end

    def expire(self, now: float) -> float:
        """End what is due; the earliest deadline left."""
        earliest = inf
        late: list[int] = []
        for request_id, (_, _, deadline, _) in self._calls.items():
            if deadline <= now:
                late.append(request_id)
            elif deadline < earliest:
                earliest = deadline
        for request_id in late:
            future, _, _, answered = self._calls.pop(request_id)
            if not future.done():
                _end(future, self._late(), answered)
        for stream in list(self._streams.values()):
            if stream.deadline <= now:
                self.give_up(stream.request_id, stream.method)
                stream.end(self._late())
            else:
                earliest = min(earliest, stream.deadline)
        return earliest

    def _late(self) -> Timeout:
        return Timeout(f"{self._peer.remote} did not answer in time")

    def probe(self) -> None:
        """Called now and then: streams of which nothing was heard ask whether they are alive."""
        for stream in self._streams.values():
            stream.probe()

    def end(self, error: VarlogError) -> None:
        """The connection is gone."""
        calls, self._calls = self._calls, {}
        for future, _, _, answered in calls.values():
            if not future.done():
                _end(future, ConnectionLost(f"{self._peer.remote}: {error.message}"), answered)
        for stream in list(self._streams.values()):
            stream.end(ConnectionLost(f"{self._peer.remote}: {error.message}"))


def _end(future: "asyncio.Future[Reply]", error: VarlogError, answered: Answered | None) -> None:
    """Without an answer, in the middle of something else: who is called is called later."""
    if answered is not None:
        future.add_done_callback(answered)
    future.set_exception(error)


def _bounded(timeout: float) -> float:
    return max(0.0, min(timeout, _LONGEST_SECONDS))
