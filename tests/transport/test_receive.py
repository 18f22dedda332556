"""From bytes to frames: every split of the stream gives the same frames, every bad length is refused in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.base.errors import Corrupt, InvalidArgument, TooLarge, Unsupported, VarlogError
from varlog.base.limits import FRAME_BYTES, HEADER_BYTES
from varlog.transport.limits import GROW_BYTES, OWN_BUFFER_BYTES, RECEIVE_BUFFER_BYTES
from varlog.transport.receive import ReceiveBuffer, Receiver
from varlog.wire.frame import FRAME, FRAME_HEADER_BYTES, PREFACE, Frame, Kind, encode_frame

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([OWN_BUFFER_BYTES - 21, OWN_BUFFER_BYTES - 20, OWN_BUFFER_BYTES, RECEIVE_BUFFER_BYTES + 7]),
)
frames = st.builds(
    lambda kind, method, flags, number, timeout, header, size, fill: Frame(
        kind, method, flags, number, timeout, header, bytes([fill]) * size
    ),
    st.sampled_from([int(kind) for kind in Kind]),
    u8,
    u16,
    u32,
    u32,
    st.binary(max_size=30),
    sizes,
    u8,
)


def encode(frame: Frame) -> bytes:
    return b"".join(
        encode_frame(
            frame.kind,
            frame.method,
            frame.request_id,
            frame.header,
            [frame.body],
            flags=frame.flags,
            timeout_ms=frame.timeout_ms,
        )
    )


def feed(receiver: Receiver, data: bytes, most: int = 1 << 30) -> list[Frame]:
    """Give `data` to a receiver as a loop would, at most `most` bytes at a time."""
    found: list[Frame] = []
    while data:
        buffer = receiver.get_buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(data), most)
        buffer[:count] = data[:count]
        buffer.release()
        data = data[count:]
        found += receiver.received(count)
    return found


@given(st.lists(frames, max_size=5), st.integers(1, 50_000))
@settings(max_examples=150, deadline=None)
def test_frames_survive_any_pace(sent: list[Frame], most: int) -> None:
    receiver = Receiver(ReceiveBuffer())
    assert feed(receiver, PREFACE + b"".join(map(encode, sent)), most) == sent
    assert receiver.error is None


def test_frames_survive_a_split_at_every_byte() -> None:
    sent = [Frame(1, 2, 3, 4, 5, b"header", b"body"), Frame(7, 0, 0, 0, 0, b"", b""), Frame(2, 9, 0, 8, 0, b"h", b"")]
    data = PREFACE + b"".join(map(encode, sent))
    for cut in range(len(data) + 1):
        receiver = Receiver(ReceiveBuffer())
        found = feed(receiver, data[:cut])
        assert found == sent[: len(found)], "only whole frames come out"
        assert found + feed(receiver, data[cut:]) == sent


def test_two_connections_share_the_buffer_without_sharing_bytes() -> None:
    shared = ReceiveBuffer()
    one, two = Receiver(shared), Receiver(shared)
    mine = [Frame(1, 1, 0, n, 0, b"mine", b"m" * 100) for n in range(20)]
    yours = [Frame(2, 2, 0, n, 0, b"yours", b"y" * 77) for n in range(20)]
    first, second = PREFACE + b"".join(map(encode, mine)), PREFACE + b"".join(map(encode, yours))
    found: tuple[list[Frame], list[Frame]] = ([], [])
    for start in range(0, max(len(first), len(second)), 13):
        found[0].extend(feed(one, first[start : start + 13]))
        found[1].extend(feed(two, second[start : start + 13]))
    assert found == (mine, yours)


def test_a_frame_is_the_receivers_to_keep() -> None:
    """What was given out does not change when the buffer is used again."""
    for size in (10, OWN_BUFFER_BYTES, RECEIVE_BUFFER_BYTES - 100, 3 * RECEIVE_BUFFER_BYTES):
        receiver = Receiver(ReceiveBuffer())
        sent = [Frame(1, 1, 0, n, 0, b"h%d" % n, bytes([n]) * size) for n in range(3)]
        assert feed(receiver, PREFACE + b"".join(map(encode, sent))) == sent


@pytest.mark.parametrize("cut", range(len(PREFACE)))
def test_another_protocol_is_recognised_at_its_first_wrong_byte(cut: int) -> None:
    receiver = Receiver(ReceiveBuffer())
    assert feed(receiver, PREFACE[:cut]) == []
    assert receiver.error is None
    feed(receiver, bytes([PREFACE[cut] ^ 1]))
    assert isinstance(receiver.error, InvalidArgument if cut < len(PREFACE) - 1 else Unsupported)
    assert not receiver.greeted


def test_another_version_is_named() -> None:
    receiver = Receiver(ReceiveBuffer())
    feed(receiver, PREFACE[:-1] + b"\x09")
    assert isinstance(receiver.error, Unsupported)
    assert "version 9" in receiver.error.message


BAD: list[tuple[str, bytes, type[VarlogError]]] = [
    ("longest there is", FRAME.pack(0xFFFFFFFF, 1, 1, 0, 1, 1, 0), TooLarge),
    ("one byte too long", FRAME.pack(FRAME_BYTES - 3, 1, 1, 0, 1, 1, 0), TooLarge),
    ("message too long", FRAME.pack(FRAME_BYTES - 4, 1, 1, 0, 1, 1, HEADER_BYTES + 1), TooLarge),
    ("message beyond its frame", FRAME.pack(16 + 5, 1, 1, 0, 1, 1, 6) + b"123456", Corrupt),
    ("shorter than its own header", FRAME.pack(15, 1, 1, 0, 1, 1, 0), Corrupt),
    ("no length at all", FRAME.pack(0, 1, 1, 0, 1, 1, 0), Corrupt),
    ("kind 0", FRAME.pack(16, 0, 1, 0, 1, 1, 0), Unsupported),
    ("a kind of a later release", FRAME.pack(16, 99, 1, 0, 1, 1, 0), Unsupported),
]


@pytest.mark.parametrize(("data", "error"), [pytest.param(data, error, id=name) for name, data, error in BAD])
@pytest.mark.parametrize("most", [1, 7, 1 << 20])
def test_a_bad_frame_is_refused_as_soon_as_its_header_is_there(
    data: bytes, error: type[VarlogError], most: int
) -> None:
    receiver = Receiver(ReceiveBuffer())
    good = Frame(1, 2, 3, 4, 5, b"header", b"body")
    assert feed(receiver, PREFACE + encode(good) + data, most) == [good], "what came before is still given out"
    assert type(receiver.error) is error


def test_the_largest_frame_passes() -> None:
    receiver = Receiver(ReceiveBuffer())
    size = FRAME_BYTES - FRAME_HEADER_BYTES - HEADER_BYTES
    sent = Frame(1, 1, 0, 1, 1, bytes(HEADER_BYTES), bytes(size))
    assert feed(receiver, PREFACE + encode(sent)) == [sent]


def test_a_claim_alone_takes_little_memory() -> None:
    receiver = Receiver(ReceiveBuffer())
    feed(receiver, PREFACE + FRAME.pack(FRAME_BYTES - 4, 1, 1, 0, 1, 1, 0))
    assert len(receiver.get_buffer()) <= GROW_BYTES
    taken = 0
    for _ in range(3):
        buffer = receiver.get_buffer()
        taken += len(buffer)
        receiver.received(len(buffer))
        assert len(receiver.get_buffer()) <= 4 * (taken + FRAME_HEADER_BYTES)
