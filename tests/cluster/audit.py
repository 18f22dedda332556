"""What is there at the end: the whole log through the client, every replica from its own files, all in one history."""

import json
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.cluster.client_program import connected
from tests.cluster.cluster import ClientProcess, RealCluster
from tests.cluster.processes import PATIENCE_S, eventually
from tests.cluster.recording import read_recording

import varlog
from varlog.runtime.disk import RealDisk
from varlog.runtime.loop import run
from varlog.sim.audit import read_replica, read_whole_log
from varlog.sim.history import (
    Append,
    Chain,
    Expectation,
    FinalLog,
    History,
    Operation,
    Record,
    Replica,
    Subscription,
    dump_record,
    fingerprint,
    payload_bytes,
)
from varlog.sim.reshaper import tell
from varlog.storage.volume import Volume, newest
from varlog.transport.peer import connect
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def read_log(url: str, name: str) -> FinalLog:
    """Everything from the trim point to the tail, by the public client."""

    async def work() -> FinalLog:
        cluster = await connected(varlog.connect(url, timeout=PATIENCE_S))
        try:
            return await read_whole_log(cluster.log(name), name)
        finally:
            await cluster.close()

    return run(work())


def recorded_append(
    log: "varlog.sync.Log", name: str, *, padding: int = 0, stream: int | None = None, timeout: float
) -> Append:
    """One append by this process, as clients record theirs."""
    payload = payload_bytes(name, padding)
    append = Append(client="the test", log=log.name, payloads=[fingerprint(payload)], start_time=time.monotonic())
    try:
        ack = log.append(payload, stream=stream, timeout=timeout)
    except varlog.VarlogError as error:
        append.outcome = "refused" if error.outcome_known else "unknown"
        append.error, append.value = type(error).__name__, error.value
    else:
        append.outcome, append.first, append.last, append.stream = "ack", ack.first, ack.last, ack.stream
    append.end_time = time.monotonic()
    return append


def recorded_chain(log: "varlog.sync.Log") -> Chain:
    """The log's chain as it is told now. Without one, checkers take every segment for one under `cut`."""
    chain = Chain(client="the test", log=log.name, start_time=time.monotonic())
    tell(chain, log.info())
    chain.end_time = time.monotonic()
    return chain


def expected_copies(info: varlog.LogDescription, known: Sequence[Expectation]) -> list[Expectation]:
    """Every stream has as many replicas that work as it has members: of open ones it is `known` what else they must."""
    open_ones = {each.stream: each for each in known}
    found = []
    for stream in (stream for segment in info.chain for stream in segment.streams):
        expected = open_ones.get(stream.id, Expectation(log=info.name, stream=stream.id, excuse="it has ended"))
        expected.replicas = len(stream.members)
        found.append(expected)
    return found


def printed(output: bytes, log: str) -> Subscription:
    """What a `varlog tail -o json` has printed in whole lines, as a subscriber that was given all of it just now."""
    entries = [json.loads(line) for line in output.split(b"\n")[:-1]]
    glsns = [entry["glsn"] for entry in entries]
    seen = Subscription(client="varlog tail", log=log, first=glsns[0] if glsns else 1, glsns=glsns)
    seen.payloads = [fingerprint(_printed_bytes(entry["payload"])) for entry in entries]
    seen.times = [time.monotonic()] * len(glsns)
    return seen


def _printed_bytes(payload: str | dict[str, str]) -> bytes:
    return payload.encode() if isinstance(payload, str) else b64decode(payload["base64"])


def wait_bound(cluster: RealCluster) -> None:
    """Until every replica has every cut on disk."""
    eventually(lambda: not any(log.kept_cuts for log in cluster.status().logs), "every cut is bound everywhere")


def wait_committed(cluster: RealCluster, final: FinalLog) -> None:
    """Until every replica has on disk that all of a log is committed: without cuts nobody but itself can tell."""
    (number,) = [log.id for log in cluster.ask(lambda asked: asked.logs()) if log.name == final.log]
    ends: dict[int, int] = {}
    for stream, slot in zip(final.streams, final.slots, strict=True):
        ends[stream] = max(ends.get(stream, 0), slot + 1)

    async def ask(address: str) -> bool:
        peer = await connect(real_world(), address, {}, timeout=PATIENCE_S)
        try:
            report = (await peer.call(Method.REPORT, pb.GetReportRequest(), timeout=PATIENCE_S)).message
        finally:
            peer.close()
        assert isinstance(report, pb.GetReportResponse)
        rows = [row for row in report.uncommit_reports if row.log_id == number and row.state != pb.REPLICA_FAILED]
        return all(row.bound_llsn_offset > ends.get(row.log_stream_id, 0) for row in rows)

    for node in cluster.nodes:
        eventually(lambda node=node: run(ask(node.address)), f"{node} has all commits on disk")  # type: ignore[misc]


def all_replicas(cluster: RealCluster) -> list[Replica]:
    """Every replica of every node, from its files, after all servers were killed."""
    logs = cluster.ask(lambda asked: asked.logs())
    cluster.close()
    numbers = range(1, len(cluster.nodes) + 1)
    return [replica for number in numbers for replica in read_replicas(cluster.data(number), number, logs)]


def save_history(path: Path, records: Sequence[Record]) -> History:
    """As a file for people, and as the checkers want it."""
    path.write_text("".join(f"{dump_record(record)}\n" for record in records))
    with path.open() as lines:
        return History.load(lines)


def read_operations(recordings: Sequence[Path]) -> list[Operation]:
    return [operation for path in recordings for operation in read_recording(path)]


def appends_of(client: ClientProcess) -> list[Append]:
    """What a client has appended in all its lives so far, or tried to."""
    return [each for each in read_operations(client.recordings()) if isinstance(each, Append)]


def read_replicas(data: Path, node: int, logs: Sequence[varlog.LogDescription]) -> list[Replica]:
    """All replicas in the data folder of a node that is not running."""

    async def work() -> list[Replica]:
        disk = RealDisk(data)
        try:
            volume = await Volume.open(disk, Random(0))
            found = []
            for each in (await newest([volume]))[0]:
                replica = each.replica
                for log in logs:
                    if log.id == replica.log:
                        streams = {stream.id: stream for stream in log.chain[replica.segment - 1].streams}
                        record = Replica(log=log.name, segment=replica.segment, stream=replica.stream, node=node)
                        record.position = streams[replica.stream].members.index(node)
                        await read_replica(each, Random(0), record)
                        found.append(record)
            return found
        finally:
            disk.close()

    return run(work())
