"""Frames: the unit of the transport. One page of docs/wire-protocol.md, in code.

    0        4      5        6       8            12           16             20
    +--------+------+--------+-------+------------+------------+--------------+---------+------+
    | length | kind | method | flags | request id | timeout ms | header bytes | header  | body |
    +--------+------+--------+-------+------------+------------+--------------+---------+------+

`length` counts what follows it. The header is a protobuf message, the body raw bytes.
A connection begins with `PREFACE` from both ends.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

PREFACE = b"VARLOG\x00\x01"
"""Eight bytes: name, zero, version. Another first eight bytes: not one of ours, the connection is closed."""

FRAME = Struct("<IBBHIII")
FRAME_HEADER_BYTES = FRAME.size


class Kind(IntEnum):
    """What a frame is for."""

    REQUEST = 1
    REPLY = 2
    """The one answer of a call."""
    ERROR = 3
    """Ends a call or a stream; its header is `varlog.v1.Error`."""
    PART = 4
    """One of several answers; flag END marks the last."""
    CREDIT = 5
    """More bytes the receiver of parts will take: the header is four bytes, little endian."""
    CANCEL = 6
    """The caller no longer waits. Nothing is answered."""
    NOTIFY = 7
    """Neither has nor wants an answer."""


END = 1
"""Flag on PART: the stream ends with this one."""


class Frame(NamedTuple):
    """A decoded frame. `body` may be a view of a buffer that is the receiver's to keep."""

    kind: int
    method: int
    flags: int
    request_id: int
    timeout_ms: int
    header: bytes
    body: Buffer


def encode_frame(
    kind: int,
    method: int,
    request_id: int,
    header: bytes = b"",
    body: Sequence[Buffer] = (),
    *,
    flags: int = 0,
    timeout_ms: int = 0,
) -> list[Buffer]:
    """The buffers of a frame, to be written one after the other; bodies are not copied."""
    body_bytes = sum(map(len, body))
    length = FRAME_HEADER_BYTES - 4 + len(header) + body_bytes
    start = FRAME.pack(length, kind, method, flags, request_id, timeout_ms, len(header))
    return [start + header, *body]
