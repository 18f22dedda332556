"""Golden bytes: what is on the wire and in files never changes by accident.

`wire.txt` has a line of hexadecimal digits for each sample. `python tests/golden/test_wire.py` writes
it anew; a change of a line that was already there is a change of the protocol.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from varlog.base.errors import ERRORS, Corrupt
from varlog.transport.errors import decode_error, encode_error
from varlog.transport.receive import ReceiveBuffer, Receiver
from varlog.wire.batch import Batch, encode_batch, padding
from varlog.wire.frame import CREDIT, END, PREFACE, PROBE, Frame, Kind, encode_frame
from varlog.wire.methods import MESSAGES, PUSHES, Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, encode_record_header, read_record

FILE = Path(__file__).parent / "wire.txt"

REPLICA = pb.ReplicaId(log=7, segment=2, stream=3)
STATUS = pb.ReplicaStatus(state=pb.REPLICA_OPEN, contiguous=9, committed=8, trimmed=1, high_watermark=20)
SPEC = pb.ReplicaSpec(
    replica=REPLICA,
    ordering="cut",
    members=[1, 2],
    log_name="orders",
)
LOG = pb.LogInfo(
    id=7,
    name="orders",
    ordering="cut",
    replicas=2,
    streams=1,
    trimmed=4,
    chain=[
        pb.SegmentInfo(
            epoch=1,
            ordering="cut",
            base=1,
            replicas=2,
            ack=2,
            streams=[pb.StreamInfo(id=3, members=[1, 2], end_slot=5)],
        )
    ],
    version=11,
    created_us=12,
)
ARCHIVE = pb.ArchiveInfo(
    location="s3://bucket/logs", metadata="s3://bucket/logs/1.json", endpoint="http://10.0.0.9", region="r", first=2
)
NODE = pb.NodeInfo(id=1, incarnation="abc", address="10.0.0.1:7701", zone="a", connected=True, replicas=2)
REPORT = pb.GetReportResponse(
    storage_node_id=1,
    uncommit_reports=[
        pb.LogStreamUncommitReport(
            log_stream_id=3,
            uncommitted_llsn_offset=9,
            uncommitted_llsn_length=1,
            high_watermark=20,
            log_id=7,
            segment=2,
            bound_llsn_offset=8,
            state=pb.REPLICA_OPEN,
        )
    ],
    boot=5,
    sequence=6,
    complete=True,
)
COMMIT = pb.CommitRequest(
    storage_node_id=1,
    commit_results=[
        pb.LogStreamCommitResult(
            log_stream_id=3,
            committed_glsn_offset=21,
            committed_glsn_length=2,
            high_watermark=22,
            prev_high_watermark=20,
            log_id=7,
            segment=2,
            committed_llsn_offset=9,
        )
    ],
)

QUESTIONS: dict[Method, Message] = {
    Method.OPEN: pb.OpenRequest(spec=SPEC),
    Method.STORE: pb.StoreRequest(
        log=7,
        segment=2,
        stream=3,
        slot=9,
        writer=1,
        settle=True,
        commits=[pb.StoreCommit(slot=7, glsn=20, count=2, high_watermark=22)],
    ),
    Method.ADVANCE: COMMIT,
    Method.SEAL: pb.SealRequest(replica=REPLICA),
    Method.DIGEST: pb.DigestRequest(replica=REPLICA, low=1, high=9),
    Method.FINISH: pb.FinishRequest(replica=REPLICA, end=9),
    Method.READ: pb.ReadRequest(log=7, segment=2, stream=3, glsn=21, stop_glsn=90, max_batches=4, wait=True),
    Method.TRIM: pb.TrimRequest(replica=REPLICA, upto=4),
    Method.DROP: pb.DropRequest(replica=REPLICA),
    Method.REPORT: pb.GetReportRequest(),
    Method.COPY: pb.CopyRequest(spec=SPEC, end=9, sources=[1, 2]),
    Method.MARKS: pb.MarksRequest(replica=REPLICA, time_us=9, sizes=True),
    Method.APPEND: pb.AppendRequest(log=7, segment=2, stream=3),
    Method.PRODUCER: pb.ProducerRequest(log=7, segment=2, stream=3, producer=bytes(range(16))),
    Method.LEAD: pb.LeadRequest(replica=REPLICA, base=9),
    Method.GRANT: pb.GrantRequest(log=7, segment=2, stream=3, count=4, expect=12, base=9),
    Method.HELLO: pb.HelloRequest(),
    Method.DIRECTORY: pb.NodeDirectory(version=4, nodes=[pb.NodeAddress(node_id=1, address="10.0.0.1:7701")]),
    Method.REGISTER: pb.RegisterRequest(cluster_id="c", node_id=1, incarnation="abc", boot=5, address="10.0.0.1:7701"),
    Method.CREATE_LOG: pb.CreateLogRequest(name="orders", ordering="cut", replicas=2, streams=1),
    Method.GET_LOG: pb.GetLogRequest(name="orders"),
    Method.WATCH_LOG: pb.GetLogRequest(name="orders"),
    Method.LIST_LOGS: pb.ListLogsRequest(),
    Method.LIST_NODES: pb.ListNodesRequest(),
    Method.TAIL: pb.TailRequest(log=7),
    Method.TRIM_LOG: pb.TrimLogRequest(log=7, upto=4),
    Method.SEAL_LOG: pb.SealLogRequest(log=7),
    Method.REMOVE_LOG: pb.RemoveLogRequest(name="orders"),
    Method.STATUS: pb.StatusRequest(),
    Method.DRAIN_NODE: pb.DrainNodeRequest(node_id=3, undo=True),
    Method.CHECK_NODE: pb.CheckNodeRequest(node_id=3),
    Method.REMOVE_NODE: pb.RemoveNodeRequest(node_id=3, force=True),
    Method.LEASE: pb.LeaseRequest(),
    Method.RECONFIGURE_LOG: pb.ReconfigureLogRequest(
        log=7,
        ordering="cut",
        replicas=3,
        streams=2,
        ack=3,
        members=[1, 2, 4],
        roll_bytes=0,
        roll_ms=1000,
        roll=True,
        epoch=2,
    ),
    Method.SCRUB: pb.ScrubRequest(begin=True),
    Method.FINGERPRINT: pb.FingerprintRequest(replica=REPLICA, first=2),
    Method.CONDEMN: pb.CondemnRequest(
        replica=REPLICA, damage=pb.Damage(slot=8, end_slot=10, glsn=9, end_glsn=11), why="it differs"
    ),
    Method.SCRUB_NODE: pb.ScrubNodeRequest(node_id=3),
    Method.LEAD_LOG: pb.LeadLogRequest(
        log=7, leader=pb.JournalLeader(id=0x0102030405060708, ttl_ms=5000, name="me"), act=pb.RENEW
    ),
    Method.GATHER: pb.GatherRequest(address="10.0.0.1:7700"),
    Method.FORWARD: pb.ForwardedReports(reports=[pb.GetReportResponse(storage_node_id=1, boot=2, sequence=3)]),
    Method.RECORD_ARCHIVE: pb.RecordArchiveRequest(log=7, archive=ARCHIVE, expected=3, archived=9),
}
ANSWERS: dict[Method, Message] = {
    Method.OPEN: STATUS,
    Method.STORE: STATUS,
    Method.ADVANCE: pb.CommitResponse(),
    Method.SEAL: STATUS,
    Method.DIGEST: pb.DigestReply(
        status=STATUS, rows=[pb.DigestRow(slot=1, count=2, content=pb.SLOT_DATA, crc=0xDEADBEEF)]
    ),
    Method.FINISH: STATUS,
    Method.READ: pb.ReadPart(slot=8, bindings=[pb.Binding(slot=8, glsn=21, count=2)], status=STATUS),
    Method.TRIM: STATUS,
    Method.DROP: pb.Empty(),
    Method.REPORT: REPORT,
    Method.COPY: STATUS,
    Method.MARKS: pb.MarksReply(committed=9, young_glsn=21, marks=[pb.Mark(glsn=21, bytes=100)]),
    Method.APPEND: pb.AppendReply(glsn=21, slot=8, count=2),
    Method.PRODUCER: pb.ProducerReply(next_sequence=3),
    Method.LEAD: STATUS,
    Method.GRANT: pb.GrantReply(first=12, skipped=2),
    Method.HELLO: pb.HelloReply(cluster_id="0123456789abcdef", node_id=3),
    Method.DIRECTORY: pb.Empty(),
    Method.REGISTER: pb.RegisterReply(cluster_id="c", node_id=1, heartbeat_ms=500),
    Method.CREATE_LOG: LOG,
    Method.GET_LOG: LOG,
    Method.WATCH_LOG: LOG,
    Method.LIST_LOGS: pb.ListLogsReply(logs=[LOG]),
    Method.LIST_NODES: pb.ListNodesReply(nodes=[NODE]),
    Method.TAIL: pb.TailReply(tail=22, trimmed=4, segment=2),
    Method.TRIM_LOG: pb.TailReply(tail=22, trimmed=4),
    Method.SEAL_LOG: LOG,
    Method.REMOVE_LOG: pb.Empty(),
    Method.STATUS: pb.StatusReply(cluster_id="c", nodes=[NODE], logs=[pb.LogStatus(log=LOG, tail=22)], cuts=3),
    Method.DRAIN_NODE: pb.NodeInfo(id=3, draining=True, open_streams=1, ended_streams=2),
    Method.CHECK_NODE: pb.CheckNodeReply(
        node=NODE,
        streams=[
            pb.StreamCheck(
                log="orders",
                segment=1,
                stream=3,
                open=True,
                primary=True,
                stops=True,
                copies_left=1,
                copies_wanted=2,
                empty=True,
                stored_bytes=9,
            )
        ],
        no_replacement="too few",
        pause_ms=1000,
    ),
    Method.REMOVE_NODE: pb.Empty(),
    Method.LEASE: pb.LeaseReply(lease_ms=3000),
    Method.RECONFIGURE_LOG: LOG,
    Method.SCRUB: pb.ScrubStatus(running=True, done_bytes=3, total_bytes=9, passes=2, ended_us=7, found=1, repaired=1),
    Method.FINGERPRINT: pb.FingerprintReply(first=2, crcs=[7, 8], next=4, read_us=9),
    Method.CONDEMN: STATUS,
    Method.SCRUB_NODE: pb.NodeInfo(id=3, scrub=pb.ScrubStatus(passes=2)),
    Method.LEAD_LOG: pb.LeadLogReply(elected=True, log=pb.LogInfo(id=7, name="wal", journal=True)),
    Method.GATHER: pb.Empty(),
    Method.FORWARD: pb.Empty(),
    Method.RECORD_ARCHIVE: pb.LogInfo(id=7, name="orders", archive=ARCHIVE, archived=9),
}

FRAMES: dict[str, Frame] = {
    "request": Frame(Kind.REQUEST, Method.TAIL, 0, 1, 2000, b"\x08\x07", b""),
    "request of a stream": Frame(Kind.REQUEST, Method.READ, 64, 2, 2000, b"\x08\x07", b""),
    "request with a body": Frame(Kind.REQUEST, Method.APPEND, 0, 3, 5000, b"\x08\x07", b"batch"),
    "reply": Frame(Kind.REPLY, Method.TAIL, 0, 1, 0, b"\x08\x16", b""),
    "error": Frame(Kind.ERROR, Method.TAIL, 0, 1, 0, b"\x08\x0c", b""),
    "error that ends the connection": Frame(Kind.ERROR, 0, 0, 0, 0, b"\x08\x0e", b""),
    "part": Frame(Kind.PART, Method.READ, 0, 2, 0, b"\x08\x08", b"records"),
    "last part": Frame(Kind.PART, Method.READ, END, 2, 1, b"\x08\x09", b""),
    "credit": Frame(Kind.CREDIT, Method.READ, 0, 2, 1, CREDIT.pack(6 << 20), b""),
    "credit that probes": Frame(Kind.CREDIT, Method.READ, PROBE, 2, 1, CREDIT.pack(6 << 20), b""),
    "cancel": Frame(Kind.CANCEL, Method.TAIL, 0, 1, 0, b"", b""),
    "notify": Frame(Kind.NOTIFY, Method.ADVANCE, 0, 0, 0, b"\x08\x01", b""),
    "ping": Frame(Kind.PING, 0, 0, 0, 0, b"", b""),
}

BATCHES: dict[str, bytes] = {
    "one entry": encode_batch([b"one"]),
    "three entries": encode_batch(
        [b"a", b"", b"ccc"], producer=bytes(range(16)), sequence=5, time_us=1_700_000_000_000_000
    ),
    "keys and headers": encode_batch([b"a", b"b"], keys=[None, b"k"], headers=[{"kind": b"x", "n": b""}, {}]),
}
RECORD_BODIES: dict[RecordKind, bytes] = {
    RecordKind.BATCH: BATCHES["one entry"],
    RecordKind.BIND: b"".join(value.to_bytes(8, "little") for value in (21, 2, 22)),
    RecordKind.TRIM: (4).to_bytes(8, "little"),
    RecordKind.SEAL: b"",
    RecordKind.FINISH: b"",
    RecordKind.WRITER: (1).to_bytes(8, "little"),
    RecordKind.JUNK: (3).to_bytes(8, "little"),
}


def encode(frame: Frame) -> bytes:
    kind, method, flags, request_id, timeout_ms, header, body = frame
    return b"".join(encode_frame(kind, method, request_id, header, [body], flags=flags, timeout_ms=timeout_ms))


def samples() -> Iterator[tuple[str, bytes]]:
    yield "preface", PREFACE
    for name, frame in FRAMES.items():
        yield f"frame: {name}", encode(frame)
    for method, message in QUESTIONS.items():
        yield f"request: {method.name}", message.SerializeToString(deterministic=True)
    for method, message in ANSWERS.items():
        yield f"answer: {method.name}", message.SerializeToString(deterministic=True)
    for code, kind in sorted(ERRORS.items()):
        yield f"error: {code} {kind.__name__}", encode_error(kind("why", 5))
    for name, batch in BATCHES.items():
        yield f"batch: {name}", batch
    for kind_of_record, body in RECORD_BODIES.items():
        header = encode_record_header(kind_of_record, 8, 3, 4096, body)
        yield f"record: {kind_of_record.name}", header + body + bytes(padding(len(body)))


def golden() -> dict[str, bytes]:
    lines = FILE.read_text().splitlines()
    return {name: bytes.fromhex(digits) for name, _, digits in (line.partition(" = ") for line in lines)}


@pytest.mark.parametrize(("name", "data"), list(samples()), ids=[name for name, _ in samples()])
def test_the_bytes_are_those_of_the_first_release(name: str, data: bytes) -> None:
    assert data.hex() == golden()[name].hex()


def test_no_sample_was_dropped() -> None:
    assert list(golden()) == [name for name, _ in samples()]


def test_everything_of_the_protocol_has_a_sample() -> None:
    assert set(QUESTIONS) == set(ANSWERS) == set(Method)
    assert set(RECORD_BODIES) == set(RecordKind)
    assert {frame.kind for frame in FRAMES.values()} == set(Kind)
    for method, (question, answer) in MESSAGES.items():
        assert type(QUESTIONS[method]) is question
        assert type(ANSWERS[method]) is answer
    for method, pushed in PUSHES.items():
        assert pushed is type(ANSWERS[method] if method == Method.REPORT else QUESTIONS[method])


def test_the_bytes_can_be_read() -> None:
    known = golden()
    receiver = Receiver(ReceiveBuffer())
    stream = known["preface"] + b"".join(known[f"frame: {name}"] for name in FRAMES)
    receiver.get_buffer()[: len(stream)] = stream
    assert receiver.received(len(stream)) == list(FRAMES.values())
    for method, (question, answer) in MESSAGES.items():
        assert question.FromString(known[f"request: {method.name}"]) == QUESTIONS[method]
        assert answer.FromString(known[f"answer: {method.name}"]) == ANSWERS[method]
    for code, kind in ERRORS.items():
        error = decode_error(known[f"error: {code} {kind.__name__}"])
        assert (type(error), error.message, error.value) == (kind, "why", 5)
    assert Batch(known["batch: three entries"]).payloads() == [b"a", b"", b"ccc"]
    assert Batch(known["batch: keys and headers"]).headers() == [{"kind": b"x", "n": b""}, {}]
    for kind_of_record in RecordKind:
        record = read_record(known[f"record: {kind_of_record.name}"])
        assert (record.kind, record.slot, record.generation, record.synced) == (kind_of_record, 8, 3, 4096)


def test_an_error_carries_its_replica() -> None:
    error = Corrupt("rot", 3)
    error.replica = "7.2.3"
    again = decode_error(encode_error(error))
    assert isinstance(again, Corrupt)
    assert (again.replica, again.slot) == ("7.2.3", 3)


def test_the_page_about_the_protocol_lists_every_method_and_error() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire-protocol.md").read_text()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    methods = {row[1]: row for row in rows if len(row) == 6}
    for method, (question, answer) in MESSAGES.items():
        number, _, _, asked, answered, _ = methods[method.name]
        assert (int(number), asked) == (method, question.DESCRIPTOR.name)
        assert answered.removeprefix("parts: `") == answer.DESCRIPTOR.name
    errors = {row[0]: row[1] for row in rows if len(row) == 5 and row[0].isdigit()}
    for code, kind in ERRORS.items():
        assert errors[str(code)].partition(":")[0].partition(" ")[0] == kind.__name__
    kinds = {row[1]: row[0] for row in rows if len(row) == 8}
    assert all(kinds[kind.name] == str(int(kind)) for kind in Kind)


if __name__ == "__main__":
    FILE.write_text("".join(f"{name} = {data.hex()}\n" for name, data in samples()))
