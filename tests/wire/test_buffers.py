"""Buffers joined for a system call."""

from varlog.wire.buffers import JOIN_BYTES, gather


def test_gathering_keeps_the_bytes() -> None:
    small, large = b"s" * 10, b"L" * JOIN_BYTES
    assert gather([]) == []
    assert gather([large, large]) == [large, large]
    assert gather([small, memoryview(small), large, bytearray(small)]) == [small * 2, large, small]
