"""What happened in a run, line by line, for people: when, where, what.

    12.004310 node2        -> repository1   NOTIFY report 4 node=2 {1.1.1 +3@8}
    12.004650 node2        syncs            node2.disk0:replicas/1.1.1/00000000000000000000.data

Off by default and then nearly free; the replay of a seed turns it on. It keeps the last `limit` lines.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message

from varlog.base.errors import ERRORS
from varlog.wire.frame import FRAME, FRAME_HEADER_BYTES, Kind
from varlog.wire.methods import MESSAGES, PUSHES, Method
from varlog.wire.proto import varlog_pb2 as pb

LINES = 200_000
"""Lines kept unless told otherwise."""

TEXT_CHARACTERS = 160
"""Longest description of a message."""


class Trace:
    """Bounded, in order. `sink` gets every line as it comes, too."""

    def __init__(self, *, on: bool = False, limit: int = LINES, sink: Callable[[str], None] | None = None) -> None:
        self.on = on
        self.dropped = 0
        self._lines: deque[str] = deque(maxlen=limit)
        self._sink = sink

    def event(self, now: float, host: str, what: str, details: str = "") -> None:
        if not self.on:
            return
        if len(self._lines) == self._lines.maxlen:
            self.dropped += 1
        line = f"{now:11.6f} {host:<12} {what:<16} {details}".rstrip()
        self._lines.append(line)
        if self._sink is not None:
            self._sink(line)

    def frame(self, now: float, host: str, what: str, other: str, data: bytes) -> None:
        """A frame that `host` sends to, or gets from, `other`."""
        if self.on:
            self.event(now, host, what, f"{other:<12} {describe_frame(data)}")

    def lines(self) -> list[str]:
        """Oldest first."""
        head = [f"... {self.dropped} earlier lines were dropped"] if self.dropped else []
        return head + list(self._lines)


def describe_frame(data: bytes) -> str:
    """One line about an encoded frame: kind, method, request id and the fields that matter."""
    _, kind, number, flags, request_id, timeout_ms, header_bytes = FRAME.unpack_from(data)
    method = Method(number) if number in Method._value2member_map_ else None
    name = method.name.lower() if method is not None else str(number)
    header = data[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + header_bytes]
    body_bytes = len(data) - FRAME_HEADER_BYTES - header_bytes
    parts = [Kind(kind).name, name, str(request_id), _describe_header(kind, method, header)]
    if body_bytes:
        parts.append(f"+{body_bytes} bytes")
    if flags:
        parts.append(f"flags {flags:#x}")
    if timeout_ms:
        parts.append(f"within {timeout_ms} ms")
    return " ".join(part for part in parts if part)


def _describe_header(kind: int, method: Method | None, header: bytes) -> str:
    if kind == Kind.ERROR:
        error = pb.Error.FromString(header)
        known = ERRORS.get(error.code)
        return f"{known.__name__ if known else error.code}({error.value}) {error.message!r}"
    if kind == Kind.CREDIT:
        return f"{int.from_bytes(header, 'little')} bytes"
    message_type = _message_type(kind, method)
    if message_type is None:
        return f"{len(header)} bytes of header" if header else ""
    return describe_message(message_type.FromString(header))


def _message_type(kind: int, method: Method | None) -> type[Message] | None:
    if method is None:
        return None
    if kind == Kind.REQUEST:
        return MESSAGES[method][0]
    if kind in (Kind.REPLY, Kind.PART):
        return MESSAGES[method][1]
    if kind == Kind.NOTIFY:
        return PUSHES.get(method)
    return None


def describe_message(message: Message) -> str:
    """Fields that are set, reports and commits in the short form people think in."""
    if isinstance(message, pb.GetReportResponse):
        text = f"node={message.storage_node_id} boot={message.boot} #{message.sequence} {_reports(message)}"
    elif isinstance(message, pb.CommitRequest):
        text = f"node={message.storage_node_id} {_commits(message)}"
    else:
        text = " ".join(f"{field.name}={_value(value)}" for field, value in message.ListFields())
    return text if len(text) <= TEXT_CHARACTERS else text[:TEXT_CHARACTERS] + "…"


def _reports(message: pb.GetReportResponse) -> str:
    """replica: bound/committed/stored as slots, and the high watermark."""
    rows = (
        f"{row.log_id}.{row.segment}.{row.log_stream_id}:{row.bound_llsn_offset - 1}/{row.uncommitted_llsn_offset - 1}"
        f"/{row.uncommitted_llsn_offset - 1 + row.uncommitted_llsn_length}^{row.high_watermark}"
        for row in message.uncommit_reports
    )
    return "{" + ", ".join(rows) + "}"


def _commits(message: pb.CommitRequest) -> str:
    """replica: slots = GLSNs, and the high watermarks before and after."""
    rows = (
        f"{row.log_id}.{row.segment}.{row.log_stream_id}:{row.committed_llsn_offset - 1}=g{row.committed_glsn_offset}"
        f"+{row.committed_glsn_length}^{row.prev_high_watermark}→{row.high_watermark}"
        for row in message.commit_results
    )
    return "{" + ", ".join(rows) + "}"


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Message):
        return "{" + describe_message(value) + "}"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Iterable):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return str(value)


SILENT = Trace()
"""Keeps nothing."""
