"""Many buffers as few: what is handed to one system call. And memory for what one brings."""

import ctypes
from collections.abc import Sequence

from varlog.wire.frame import Buffer

JOIN_BYTES = 16 << 10
"""Buffers smaller than this are copied together before they are written; larger ones are not copied."""

_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


def unfilled(size: int) -> bytearray:
    """Memory of which every byte will be overwritten: to fill it with zeros first takes as long as a copy."""
    made: bytearray = _new_bytearray(None, size)
    return made


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
