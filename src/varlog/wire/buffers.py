"""Many buffers as few: what is handed to one system call."""

from collections.abc import Sequence

from varlog.wire.frame import Buffer

JOIN_BYTES = 16 << 10
"""Buffers smaller than this are copied together before they are written; larger ones are not copied."""


def gather(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: small neighbours are joined, large ones left as they are."""
    gathered: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BYTES:
            small.append(buffer)
            continue
        if small:
            gathered.append(b"".join(small))
            small = []
        gathered.append(buffer)
    if small:
        gathered.append(b"".join(small))
    return gathered
