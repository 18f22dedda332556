"""A batch under another identity."""

from varlog.wire.batch import Batch, encode_batch, stamp_batch


def test_only_the_identity_changes() -> None:
    first = encode_batch([b"a", b"bc"], keys=[None, b"k"], headers=[{}, {"h": b"v"}], time_us=7, sequence=1)
    again = Batch(stamp_batch(first, b"p" * 16, 9))
    assert (again.header.producer, again.header.sequence) == (b"p" * 16, 9)
    assert (again.header.time_us, again.payloads(), again.keys()) == (7, [b"a", b"bc"], [None, b"k"])
    assert again.headers() == [{}, {"h": b"v"}]


def test_stamping_equals_encoding_with_that_identity() -> None:
    entries = [b"x" * 100] * 50
    plain = encode_batch(entries, time_us=3, compress=True)
    wanted = encode_batch(entries, time_us=3, compress=True, producer=b"q" * 16, sequence=5)
    assert stamp_batch(memoryview(plain), b"q" * 16, 5) == wanted
