"""From bytes to frames: the receiving half of a connection, without the connection.

    get_buffer --> [ rest | what the socket brings ......... ]   one buffer, shared by all connections
    received   --> whole frames are copied out of it, with one copy for all; of the last, incomplete one
                     a small one is kept as `rest` and put before what comes next,
                     a large one gets memory of its own, into which the socket then writes directly

Sharing is sound because a loop asks for the buffer, fills it and says so without serving another
connection in between. Every length is judged before memory is taken for it, and memory of a large
frame is taken as its bytes arrive, so that a claim alone costs its sender more than us.
"""

from varlog.base.errors import Corrupt, InvalidArgument, TooLarge, Unsupported, VarlogError
from varlog.base.limits import FRAME_BYTES, HEADER_BYTES
from varlog.transport.limits import GROW_BYTES, OWN_BUFFER_BYTES, RECEIVE_BUFFER_BYTES
from varlog.wire.buffers import unfilled
from varlog.wire.frame import FRAME, FRAME_HEADER_BYTES, PREFACE, Buffer, Frame, Kind

_KINDS = frozenset(int(kind) for kind in Kind)
_unpack_from = FRAME.unpack_from
_new = tuple.__new__
"""Makes a named tuple in half the time that its own constructor takes."""
_LENGTH_BYTES = 4


class ReceiveBuffer:
    """Memory that all connections of a loop receive into, one at a time."""

    __slots__ = ("data", "view")

    def __init__(self) -> None:
        self.data = bytearray(RECEIVE_BUFFER_BYTES)
        self.view = memoryview(self.data)


class Receiver:
    """Cuts one connection's bytes into frames. After `error` is set nothing more comes out."""

    __slots__ = ("_expects_preface", "_filled", "_own", "_own_bytes", "_rest", "_shared", "error")

    def __init__(self, shared: ReceiveBuffer) -> None:
        self._shared = shared
        self._rest = b""
        self._own: bytearray | None = None
        self._own_bytes = 0
        """Size of the frame that `_own` is for."""
        self._filled = 0
        """How much of it has arrived."""
        self._expects_preface = True
        self.error: VarlogError | None = None
        """Why this is not one of ours; frames before it were still given out."""

    @property
    def greeted(self) -> bool:
        """The other end's preface has come, and it is ours."""
        return not self._expects_preface

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes are to go."""
        if self._own is not None:
            return memoryview(self._grown(self._own))[self._filled :]
        rest = self._rest
        if rest:
            self._shared.data[: len(rest)] = rest
        return self._shared.view[len(rest) :]

    def received(self, count: int) -> list[Frame]:
        """`count` bytes came into the buffer given last: the frames that are whole now."""
        if self._own is not None:
            return self._received_own(count)
        end = len(self._rest) + count
        start = self._judge_preface(end) if self._expects_preface else 0
        if self.error is not None:
            return []
        frames: list[Frame] = []
        data = bytes(self._shared.view[start:end])
        size = end - start
        at = 0
        while size - at >= FRAME_HEADER_BYTES and not self._expects_preface:
            length, kind, method, flags, request_id, timeout_ms, header_bytes = _unpack_from(data, at)
            header_at = at + FRAME_HEADER_BYTES
            body_at = header_at + header_bytes
            at_next = at + _LENGTH_BYTES + length
            if not body_at <= at_next <= size or header_bytes > HEADER_BYTES or kind not in _KINDS:
                self.error = judge(length, kind, header_bytes)
                if self.error is not None:
                    return frames
                break
            small = at_next - body_at < OWN_BUFFER_BYTES
            body: Buffer = data[body_at:at_next] if small else memoryview(data)[body_at:at_next]
            frames.append(_new(Frame, (kind, method, flags, request_id, timeout_ms, data[header_at:body_at], body)))
            at = at_next
        if at < size or self._rest:
            self._keep(data[at:])
        return frames

    def _judge_preface(self, end: int) -> int:
        came = bytes(self._shared.view[: min(end, len(PREFACE))])
        if came == PREFACE:
            self._expects_preface = False
            return len(PREFACE)
        if came[:-1] == PREFACE[:-1]:
            self.error = Unsupported(f"the other end speaks version {came[-1]} of the protocol, this one {PREFACE[-1]}")
        elif not PREFACE.startswith(came):
            self.error = InvalidArgument(f"the other end does not speak this protocol: it began with {came!r}")
        return 0

    def _keep(self, rest: bytes) -> None:
        """What came of the frame that is not whole yet."""
        if len(rest) >= FRAME_HEADER_BYTES and self.greeted:
            total = _LENGTH_BYTES + FRAME.unpack_from(rest)[0]
            if total >= OWN_BUFFER_BYTES:
                self._rest = b""
                self._own = unfilled(min(total, max(GROW_BYTES, len(rest))))
                self._own[: len(rest)] = rest
                self._own_bytes = total
                self._filled = len(rest)
                return
        self._rest = rest

    def _grown(self, own: bytearray) -> bytearray:
        """The memory of a large frame, with room for more of it."""
        if self._filled < len(own):
            return own
        grown = unfilled(min(self._own_bytes, 4 * len(own)))
        grown[: self._filled] = own
        self._own = grown
        return grown

    def _received_own(self, count: int) -> list[Frame]:
        own = self._own
        assert own is not None
        self._filled += count
        if self._filled < self._own_bytes:
            return []
        self._own = None
        _, kind, method, flags, request_id, timeout_ms, header_bytes = FRAME.unpack_from(own)
        view = memoryview(own)
        body_at = FRAME_HEADER_BYTES + header_bytes
        header = bytes(view[FRAME_HEADER_BYTES:body_at])
        return [Frame(kind, method, flags, request_id, timeout_ms, header, view[body_at:])]


def judge(length: int, kind: int, header_bytes: int) -> VarlogError | None:
    """What is wrong with the fixed part of a frame, if anything."""
    if kind not in _KINDS:
        return Unsupported(f"a frame of kind {kind} is unknown to this release")
    if length > FRAME_BYTES - _LENGTH_BYTES:
        return TooLarge(f"a frame of {length + _LENGTH_BYTES} bytes", FRAME_BYTES)
    if header_bytes > HEADER_BYTES:
        return TooLarge(f"a message of {header_bytes} bytes in a frame", HEADER_BYTES)
    if length < FRAME_HEADER_BYTES - _LENGTH_BYTES + header_bytes:
        return Corrupt(f"a frame of {length + _LENGTH_BYTES} bytes does not hold its message of {header_bytes}")
    return None
