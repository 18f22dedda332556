"""The final state: the whole log through the public client, and every replica from its own files."""

import asyncio
from collections.abc import Callable
from random import Random

from varlog.base.errors import Corrupt, Junk, ReplicaFailed
from varlog.base.ids import ReplicaId, Slot
from varlog.base.invariant import invariant
from varlog.client import Log
from varlog.repository import keys
from varlog.sim.history import JUNK, FinalLog, Replica, fingerprint
from varlog.sim.host import Host, Process
from varlog.sim.metadata import MetadataState
from varlog.sim.record import microseconds
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.volume import Found, Volume, newest
from varlog.wire.batch import Batch
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

READ_BYTES = 1 << 20

READS_AT_ONCE = 32
"""A log may have thousands of positions that were given up: one by one, reading them takes minutes."""


async def read_whole_log(log: Log, name: str) -> FinalLog:
    """Everything from the trim point to the tail, or from where the archive begins."""
    tail = await log.tail()
    info = await log.info()
    final = FinalLog(log=name, tail=tail, trimmed=info.first - 1, sealed=info.sealed)
    if tail > final.trimmed:
        async for entry in log.subscribe(start=final.trimmed + 1, stop=tail + 1):
            final.glsns.append(entry.glsn)
            final.payloads.append(fingerprint(entry.payload))
            final.streams.append(entry.stream)
            final.slots.append(entry.slot)
            final.times_us.append(microseconds(entry.time))
    there = set(final.glsns)
    missing = [glsn for glsn in range(final.trimmed + 1, tail + 1) if glsn not in there]
    for start in range(0, len(missing), READS_AT_ONCE):
        final.junk += await _junk_among(log, missing[start : start + READS_AT_ONCE])
    return final


async def _junk_among(log: Log, positions: list[int]) -> list[int]:
    """Those of which a read says that they were given up. Whatever else goes wrong with one is raised."""
    reads = [log.read(glsn) for glsn in positions]
    answers = await asyncio.gather(*reads, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Junk):
            raise answer
    return [glsn for glsn, answer in zip(positions, answers, strict=True) if isinstance(answer, Junk)]


async def audit_node(
    process: Process,
    infos: dict[str, pb.LogInfo],
    host_of: Callable[[pb.LogInfo, int], Host],
    metadata: MetadataState,
) -> list[Replica]:
    """All replicas of a node that belong to the logs."""
    names = {info.id: name for name, info in infos.items()}
    found = []
    volumes = [await Volume.open(disk, process.world.random) for disk in process.disks]
    for each in (await newest(volumes))[0]:
        info = infos.get(names.get(each.replica.log, ""))
        if info is not None:
            _check_given_out(metadata, each.replica)
        if info is not None and _is_part(info, each.replica, process.host, host_of):
            record = _expected(info.name, info, each.replica, process.host, host_of)
            await _read_files(process, each, record)
            found.append(record)
    return found


def _check_given_out(metadata: MetadataState, replica: ReplicaId) -> None:
    """By the record as it is now: a stream may have been opened since anybody asked for the log."""
    record = pb.LogInfo.FromString(metadata.data[keys.log(replica.log)].value)
    invariant(replica.stream < record.next_stream, "the log's record gave out every stream there is", replica=replica)


def _is_part(info: pb.LogInfo, replica: ReplicaId, host: Host, host_of: Callable[[pb.LogInfo, int], Host]) -> bool:
    """One that was opened for a stream which never became part of the log does not count, nor one that was replaced."""
    streams = [stream for segment in info.chain for stream in segment.streams if stream.id == replica.stream]
    return bool(streams) and any(host_of(info, node) is host for node in streams[0].members)


def _expected(
    name: str, info: pb.LogInfo, replica: ReplicaId, host: Host, host_of: Callable[[pb.LogInfo, int], Host]
) -> Replica:
    """Which member of its stream it is."""
    streams = [stream for segment in info.chain for stream in segment.streams if stream.id == replica.stream]
    hosts = [host_of(info, node) for node in streams[0].members]
    position = hosts.index(host)
    node = streams[0].members[position]
    return Replica(log=name, segment=replica.segment, stream=replica.stream, node=node, position=position)


def sync_failures(host: Host, replica: str) -> list[str]:
    """Files of a replica whose sync failed, be they those of a copy or not."""
    paths = [path for platter in host.platters for path in platter.failed_syncs]
    return [path for path in paths if f"/{replica}/" in f"{path}/" or f"/{replica}." in path]


async def _read_files(process: Process, found: Found, record: Replica) -> None:
    failed = sync_failures(process.host, str(found.replica))
    record.excuse = f"syncs failed: {', '.join(failed)}" if failed else ""
    await read_replica(found, process.world.random, record)


async def read_replica(found: Found, random: Random, record: Replica) -> None:
    """Fill in what the files of a replica hold. Opening them mends what a crash left, so nobody else may be at work."""
    try:
        log = await ReplicaLog.open(found.volume.disk, found.folder, random=random)
    except (ReplicaFailed, Corrupt) as error:
        record.state, record.trouble = "failed", repr(error)
        return
    record.durable, record.committed = log.durable, log.committed
    record.trimmed_slot, record.trimmed_glsn = log.trimmed, log.trimmed_glsn
    record.state = "finished" if log.end is not None else "sealed" if log.sealed else "open"
    try:
        await _read_batches(log, record)
    except Corrupt as error:
        record.state, record.trouble = "failed", repr(error)
        return
    if record.first_slot < log.committed:
        for binding in await log.bindings(Slot(record.first_slot), log.committed):
            record.glsns += range(binding.glsn, binding.glsn_end)
    await log.close()


async def _read_batches(log: ReplicaLog, record: Replica) -> None:
    slot = record.first_slot = log.trimmed
    while slot < log.durable:
        run = await log.read(slot, log.durable, READ_BYTES)
        for found in walk_records(run.data):
            if found.kind == RecordKind.BATCH:
                batch = Batch(run.data[found.body : found.body + found.length])
                junk = [JUNK] * len(batch) if batch.junk else []
                payloads = junk or [fingerprint(payload) for payload in batch.payloads()]
                skipped = max(0, record.first_slot - found.slot)
                record.payloads += payloads[skipped:]
                record.times_us += [0 if batch.junk else batch.header.time_us] * len(payloads[skipped:])
        slot = run.end
