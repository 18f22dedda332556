"""Which parts of a log must be readable when the whole is not."""

from types import SimpleNamespace

from varlog.sim.parts import Part, whole_parts
from varlog.wire.proto import varlog_pb2 as pb


def stream(number: int, first: int, stop: int) -> pb.StreamInfo:
    state = pb.STREAM_FINALIZED if stop else pb.STREAM_WRITABLE
    return pb.StreamInfo(id=number, state=state, from_glsn=first, until_glsn=stop)


def parts(info: pb.LogInfo, *hurt: int) -> list[Part]:
    excuses = SimpleNamespace(is_whole=lambda _, stream: stream.id not in hurt)
    return whole_parts(info, excuses)  # type: ignore[arg-type]


def three_segments(trimmed: int = 0) -> pb.LogInfo:
    return pb.LogInfo(
        trimmed=trimmed,
        chain=[
            pb.SegmentInfo(base=1, end=10, streams=[stream(1, 1, 10), stream(2, 1, 10)]),
            pb.SegmentInfo(base=10, end=20, streams=[stream(3, 10, 20)]),
            pb.SegmentInfo(base=20, streams=[stream(4, 20, 25), stream(5, 20, 0)]),
        ],
    )


def test_segments_and_streams_that_have_ended() -> None:
    assert parts(three_segments()) == [Part(1, 10), Part(10, 20), Part(20, 25, 4)]


def test_what_has_no_copy_is_left_out() -> None:
    assert parts(three_segments(), 2, 3) == [Part(1, 10, 1), Part(20, 25, 4)]


def test_what_is_trimmed_is_left_out() -> None:
    assert parts(three_segments(12)) == [Part(13, 20), Part(20, 25, 4)]
