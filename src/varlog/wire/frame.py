"""Frames: the unit of the transport. One page of docs/wire-protocol.md, in code.

    0        4      5        6       8            12           16             20
    +--------+------+--------+-------+------------+------------+--------------+---------+------+
    | length | kind | method | flags | request id | timeout ms | header bytes | header  | body |
    +--------+------+--------+-------+------------+------------+--------------+---------+------+

`length` counts what follows it. The header is a protobuf message, the body raw bytes.
A connection begins with `PREFACE` from both ends. Request ids are the caller's, counted per
direction from 1 on; every frame that belongs to a call or stream carries its id. Two fields serve
streams as well: `flags` of a REQUEST says how much the caller takes before it grants more, in units
of `WINDOW_UNIT` (0: it wants one answer, no stream), and `timeout ms` of PART and CREDIT is the
number of that part, or of the next one awaited, so that a lost or doubled part is noticed.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from varlog.base.errors import TooLarge
from varlog.base.limits import FRAME_BYTES, HEADER_BYTES

Buffer = bytes | bytearray | memoryview

PREFACE = b"VARLOG\x00\x01"
"""Eight bytes: name, zero, version. Another first eight bytes: not one of ours, the connection is closed."""

FRAME = Struct("<IBBHIII")
FRAME_HEADER_BYTES = FRAME.size
_pack = FRAME.pack
_LENGTH_OF_EMPTY = FRAME_HEADER_BYTES - 4
_LONGEST = FRAME_BYTES - 4


class Kind(IntEnum):
    """What a frame is for."""

    REQUEST = 1
    REPLY = 2
    """The one answer of a call."""
    ERROR = 3
    """Ends a call or a stream; its header is `varlog.v1.Error`."""
    PART = 4
    """One of several answers, numbered from 0 on; flag END marks the last."""
    CREDIT = 5
    """How much the receiver of parts takes in all, since the stream began: eight bytes, little endian.
    Whole frames are counted. Repeating one changes nothing; a receiver that has heard nothing for a
    while repeats its last with flag PROBE, and is told when the stream is unknown or parts were lost."""
    CANCEL = 6
    """The caller no longer waits. Nothing is answered."""
    NOTIFY = 7
    """Neither has nor wants an answer."""
    PING = 8
    """I am here. Sent by who has been silent for a while; not answered."""


END = 1
"""Flag on PART: the stream ends with this one."""

PROBE = 1
"""Flag on CREDIT: nothing was heard of this stream for a while; is it alive?"""

WINDOW_UNIT = 64 << 10
"""Bytes; the unit of a stream request's window."""

PART_NUMBERS = 0xFFFFFFFF
"""Parts are counted modulo this plus one."""

CREDIT = Struct("<Q")
"""The header of a CREDIT frame."""


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
    header_bytes = len(header)
    length = header_bytes + _LENGTH_OF_EMPTY
    for buffer in body:
        length += len(buffer)
    if length > _LONGEST or header_bytes > HEADER_BYTES:
        raise TooLarge(f"a frame of {length + 4} bytes with a message of {header_bytes}", FRAME_BYTES)
    return [_pack(length, kind, method, flags, request_id, timeout_ms, header_bytes) + header, *body]
