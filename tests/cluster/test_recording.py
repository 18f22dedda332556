"""The recordings of client processes: usable after `kill -9`, and enough for the checkers to see what is wrong."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.audit import expected_copies, printed, save_history
from tests.cluster.processes import ROOT, Process, eventually
from tests.cluster.recording import Recorder, read_recording

from varlog.base.errors import NotWritten
from varlog.cli.output import to_json
from varlog.client.describe import describe_log
from varlog.sim.checkers import check_history
from varlog.sim.history import Append, FinalLog, Read, Record, Replica, Subscription, fingerprint
from varlog.wire.proto import varlog_pb2 as pb

FIRST, SECOND, THIRD = (fingerprint(name) for name in (b"first;", b"second;", b"third;"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one", "client#1", "orders")
    append = recorder.begin("append", payloads=[FIRST])
    subscription = recorder.begin("subscription", first=1)
    recorder.end(append, outcome="ack", first=1, last=1, stream=2)
    recorder.seen(subscription, [1], [FIRST])
    read = recorder.begin("read", glsn=9)
    recorder.end(read, NotWritten("not yet", 1))
    recorder.seen(subscription, [2, 3], [SECOND, THIRD])
    one, two, three = read_recording(tmp_path / "one")
    assert isinstance(one, Append)
    assert (one.client, one.log, one.outcome, one.first, one.stream) == ("client#1", "orders", "ack", 1, 2)
    assert isinstance(two, Subscription)
    assert (two.glsns, two.payloads, len(two.times), two.end_time) == ([1, 2, 3], [FIRST, SECOND, THIRD], 3, None)
    assert isinstance(three, Read)
    assert (three.error, three.value, three.payload) == ("NotWritten", 1, None)
    assert one.end_time is not None
    assert one.start_time < two.start_time < one.end_time < two.times[0] < three.start_time < two.times[1]


def test_every_place_at_which_a_recording_may_be_cut_off(tmp_path: Path) -> None:
    """A line that is not whole counts for nothing: what it says had not been acted on."""
    recorder = Recorder(tmp_path / "whole", "client#1", "orders")
    append = recorder.begin("append", payloads=[FIRST])
    recorder.end(append, outcome="ack", first=1, last=1, stream=1)
    whole = (tmp_path / "whole").read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:length])
        operations = read_recording(tmp_path / "cut")
        assert len(operations) == (length >= ends[1])
        for operation in operations:
            assert isinstance(operation, Append)
            assert operation.outcome == ("ack" if length >= ends[2] else "unknown")


def test_a_killed_process_has_recorded_what_it_had_begun(tmp_path: Path) -> None:
    """The record of an operation is outside of the process before the operation begins."""
    code = (
        "import sys, pathlib; from tests.cluster.recording import Recorder\n"
        "recorder = Recorder(pathlib.Path(sys.argv[1]), 'client#1', 'orders')\n"
        "while True:\n"
        "    print(recorder.begin('append', payloads=['x/1/0']), flush=True)"
    )
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "record")], stdout=file, cwd=ROOT)
    try:
        eventually(lambda: len(output.read_bytes()) > 1000, "it records")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    begun = int(output.read_bytes().rpartition(b"\n")[0].split()[-1])
    assert len(read_recording(tmp_path / "record")) >= begun


def history_of(tmp_path: Path, final: FinalLog) -> list[str]:
    """Two appends one after the other, of which a subscriber saw both; and what is there at the end."""
    recorder = Recorder(tmp_path / "client.1.jsonl", "client#1", "orders")
    for glsn, payload in ((1, FIRST), (2, SECOND)):
        recorder.end(recorder.begin("append", payloads=[payload]), outcome="ack", first=glsn, last=glsn, stream=1)
    recorder.seen(recorder.begin("subscription", first=1), [1, 2], [FIRST, SECOND])
    records: list[Record] = [*read_recording(tmp_path / "client.1.jsonl"), final]  # type: ignore[list-item]
    history = save_history(tmp_path / "history", records)
    return sorted({violation.invariant for violation in check_history(history)})


@pytest.mark.parametrize(
    ("payloads", "violated"),
    [
        ([FIRST, SECOND], []),
        ([FIRST], ["I1"]),
        ([SECOND, FIRST], ["I1", "I2", "I5"]),
        ([FIRST, SECOND, THIRD], ["I5"]),
        ([FIRST, SECOND, FIRST], ["I5"]),
    ],
    ids=["all is well", "lost", "swapped", "invented", "doubled"],
)
def test_the_checkers_see_what_is_wrong(tmp_path: Path, payloads: list[str], violated: list[str]) -> None:
    positions = list(range(1, len(payloads) + 1))
    final = FinalLog(log="orders", tail=len(payloads), glsns=positions, payloads=payloads)
    final.streams, final.slots = [1] * len(payloads), [glsn - 1 for glsn in positions]
    assert history_of(tmp_path, final) == violated


@pytest.mark.parametrize(
    ("lines", "violated"),
    [
        ([(1, b"first;"), (2, b"second;"), (3, b"third;\xff")], []),
        ([(2, b"second;"), (3, b"third;\xff")], []),
        ([(1, b"first;"), (3, b"third;\xff")], ["I9"]),
        ([(1, b"first;"), (2, b"second;")], ["I14"]),
        ([(1, b"first;"), (2, b"second!"), (3, b"third;\xff")], ["I2", "I5"]),
        ([(1, b"first;"), (2, b"second;"), (3, b"third;\xfe")], ["I2", "I5"]),
    ],
    ids=["all is well", "begun late", "a gap", "behind", "other text", "other bytes"],
)
def test_what_varlog_tail_prints_is_judged_to_the_last_byte(
    tmp_path: Path, lines: list[tuple[int, bytes]], violated: list[str]
) -> None:
    payloads = [fingerprint(payload) for payload in (b"first;", b"second;", b"third;\xff")]
    append = Append(log="orders", payloads=payloads, outcome="ack", first=1, last=3, stream=1, start_time=1, end_time=2)
    final = FinalLog(log="orders", tail=3, glsns=[1, 2, 3], payloads=payloads, streams=[1, 1, 1], slots=[0, 1, 2])
    whole = [to_json({"glsn": glsn, "payload": payload}, lines=True) for glsn, payload in lines]
    followed = printed("\n".join([*whole, '{"glsn": 4, "payl']).encode(), "orders")
    followed.must_catch_up = True
    history = save_history(tmp_path / "history", [append, final, followed])
    assert sorted({violation.invariant for violation in check_history(history)}) == violated


@pytest.mark.parametrize(("nodes", "violated"), [((1, 2), []), ((2,), ["I14"])], ids=["all are there", "one is not"])
def test_a_copy_that_is_not_there_at_all_is_missed(tmp_path: Path, nodes: tuple[int, ...], violated: list[str]) -> None:
    """Also of a stream that has ended, which nobody tries to append to."""
    stream = pb.StreamInfo(id=1, members=[1, 2], state=pb.STREAM_FINALIZED, end_slot=0)
    info = pb.LogInfo(id=7, name="orders", ordering="cut", replicas=2, streams=1, sealed=True)
    info.chain.add(epoch=1, base=1, end=1, ordering="cut", streams=[stream])
    replicas = [Replica(log="orders", stream=1, node=node, position=node - 1, state="finished") for node in nodes]
    records: list[Record] = [FinalLog(log="orders"), *expected_copies(describe_log(info), []), *replicas]
    history = save_history(tmp_path / "history", records)
    assert sorted({violation.invariant for violation in check_history(history)}) == violated


def test_no_process_outlives_the_tests(tmp_path: Path) -> None:
    """A child of a process that is killed is killed with it, even if it is stopped."""
    code = (
        "import sys, time, pathlib; from tests.cluster.processes import Process\n"
        "child = Process('child', pathlib.Path(sys.argv[1]), ['/bin/sleep', '600'])\n"
        "child.start()\n"
        "while 'sleep' not in open(f'/proc/{child.pid}/comm').read(): time.sleep(0.01)\n"
        "child.pause(); print(child.pid, flush=True); time.sleep(600)"
    )
    parent = Process("parent", tmp_path, [sys.executable, "-c", code, str(tmp_path)])
    parent.start()
    try:
        pid = int(eventually(parent.output.read_text, "the child runs"))
        os.kill(pid, 0)
    finally:
        parent.kill()
    eventually(lambda: not _runs(pid), "the child is gone")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
