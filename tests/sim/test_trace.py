"""What people read when a seed is replayed."""

from varlog.base.errors import NotWritten
from varlog.sim.trace import SILENT, Trace, describe_frame
from varlog.transport.errors import encode_error
from varlog.wire.frame import Kind, encode_frame
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_a_trace_is_bounded_and_says_what_it_dropped() -> None:
    trace = Trace(on=True, limit=3)
    for number in range(5):
        trace.event(float(number), "node1", "does", f"thing {number}")
    lines = trace.lines()
    assert lines[0] == "... 2 earlier lines were dropped"
    assert [line.split()[-1] for line in lines[1:]] == ["2", "3", "4"]


def test_a_trace_that_is_off_keeps_nothing() -> None:
    SILENT.event(0.0, "a", "b")
    assert SILENT.lines() == []


def test_lines_go_to_the_sink_as_they_come() -> None:
    got: list[str] = []
    Trace(on=True, sink=got.append).event(1.5, "node1", "crashes", "power lost")
    assert got == ["   1.500000 node1        crashes          power lost"]


def test_reports_and_commits_are_told_in_slots() -> None:
    report = pb.GetReportResponse(storage_node_id=2, boot=1, sequence=4)
    report.uncommit_reports.add(
        log_id=1,
        segment=1,
        log_stream_id=3,
        bound_llsn_offset=6,
        uncommitted_llsn_offset=9,
        uncommitted_llsn_length=3,
        high_watermark=20,
    )
    data = b"".join(encode_frame(Kind.NOTIFY, Method.REPORT, 0, report.SerializeToString()))
    assert describe_frame(data) == "NOTIFY report 0 node=2 boot=1 #4 {1.1.3:5/8/11^20}"
    commit = pb.CommitRequest(storage_node_id=2)
    commit.commit_results.add(
        log_id=1,
        segment=1,
        log_stream_id=3,
        committed_llsn_offset=9,
        committed_glsn_offset=21,
        committed_glsn_length=3,
        prev_high_watermark=20,
        high_watermark=23,
    )
    data = b"".join(encode_frame(Kind.NOTIFY, Method.ADVANCE, 0, commit.SerializeToString()))
    assert describe_frame(data) == "NOTIFY advance 0 node=2 {1.1.3:8=g21+3^20→23}"


def test_requests_and_errors_show_what_matters() -> None:
    request = pb.AppendRequest(log=1, segment=1, stream=2)
    data = b"".join(
        encode_frame(Kind.REQUEST, Method.APPEND, 9, request.SerializeToString(), [b"12345"], timeout_ms=50)
    )
    assert describe_frame(data) == "REQUEST append 9 log=1 segment=1 stream=2 +5 bytes within 50 ms"
    data = b"".join(encode_frame(Kind.ERROR, Method.READ, 3, encode_error(NotWritten("beyond the tail", 7))))
    assert describe_frame(data) == "ERROR read 3 NotWritten(7) 'beyond the tail'"


def test_what_is_unknown_is_still_shown() -> None:
    assert describe_frame(b"".join(encode_frame(Kind.REQUEST, 200, 1, b"abc"))) == "REQUEST 200 1 3 bytes of header"
