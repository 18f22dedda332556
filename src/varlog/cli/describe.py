"""Nodes, logs, streams and replicas as rows: the same facts in every command that lists them."""

from collections.abc import Iterable
from typing import Any

from varlog.base.ids import NodeId
from varlog.cli.output import Column, count, moment, size
from varlog.client import (
    ClusterStatus,
    LogDescription,
    LogStatus,
    NodeDescription,
    SegmentDescription,
    StreamDescription,
    StreamStatus,
)
from varlog.core.capabilities import capabilities
from varlog.core.placement import most_zones, zones_of
from varlog.core.policy import Losses, all_acknowledge, survives

GOOD = ("connected", "open")
BAD = ("silent", "failed", "stalled")


def state_style(state: str) -> str:
    if state in GOOD:
        return "green"
    return "red" if state in BAD else "yellow"


def trouble_style(_: object) -> str:
    return "red"


NODE_COLUMNS = [
    Column("id", right=True),
    Column("address"),
    Column("zone"),
    Column("state", style=state_style),
    count("open_streams"),
    count("ended_streams"),
    Column("free_bytes", "free", show=size, right=True),
    Column("total_bytes", "size", show=size, right=True),
    Column("last_seen", show=moment),
    Column("troubles", style=trouble_style),
]


def node_row(node: NodeDescription) -> dict[str, Any]:
    return {
        "id": node.id,
        "address": node.address,
        "zone": node.zone,
        "state": "silent" if not node.connected else "draining" if node.draining else "connected",
        "connected": node.connected,
        "draining": node.draining,
        "replicas": node.replicas,
        "open_streams": node.open_streams,
        "ended_streams": node.ended_streams,
        "free_bytes": sum(volume.free_bytes for volume in node.volumes),
        "total_bytes": sum(volume.total_bytes for volume in node.volumes),
        "volumes": [volume.path for volume in node.volumes],
        "last_seen": node.last_seen,
        "troubles": list(node.troubles),
        "scrub": {
            "running": node.scrub.running,
            "done_bytes": node.scrub.done_bytes,
            "total_bytes": node.scrub.total_bytes,
            "passes": node.scrub.passes,
            "ended": node.scrub.ended,
            "found": node.scrub.found,
            "repaired": node.scrub.repaired,
        },
    }


LOG_COLUMNS = [
    Column("name"),
    Column("ordering"),
    Column("state", style=state_style),
    count("replicas"),
    count("streams"),
    count("tail"),
    count("trimmed"),
    Column("stored_bytes", "stored", show=size, right=True),
    Column("created", show=moment),
    Column("troubles", style=trouble_style),
]


def log_row(status: LogStatus) -> dict[str, Any]:
    log = status.log
    waiting = any(stream.trouble and not stream.thin for stream in status.streams if is_open(status, stream))
    return {
        "name": log.name,
        "id": log.id,
        "ordering": log.ordering,
        "state": "sealed" if log.sealed else "stalled" if waiting else "open",
        "replicas": log.replicas,
        "streams": log.streams,
        "tail": status.tail,
        "trimmed": log.trimmed,
        "archived": log.archived - 1 if log.archive else None,
        "archive": log.archive.location if log.archive else None,
        "stored_bytes": sum(replica.stored_bytes for stream in status.streams for replica in stream.replicas),
        "kept_cuts": status.kept_cuts,
        "created": log.created,
        "troubles": log_troubles(status),
    }


def is_open(status: LogStatus, stream: StreamStatus) -> bool:
    return described(status, stream).writable


def described(status: LogStatus, stream: StreamStatus) -> StreamDescription:
    """A stream as the log's chain has it."""
    return next(each for each in segment_of(status, stream).streams if each.id == stream.stream)


def segment_of(status: LogStatus, stream: StreamStatus) -> SegmentDescription:
    """The one that a stream is part of."""
    return next(each for each in status.log.chain if each.epoch == stream.segment)


def log_troubles(status: LogStatus) -> list[str]:
    """Streams that wait, and for whom; why they cannot be replaced; then those that have ended, like ones together."""
    troubled = [stream for stream in status.streams if stream.trouble]
    lines = [f"stream {stream.stream}: {stream.trouble}" for stream in troubled if is_open(status, stream)]
    if status.trouble:
        lines.append(status.trouble)
    ended: dict[str, list[str]] = {}
    for stream in troubled:
        if not is_open(status, stream):
            ended.setdefault(stream.trouble, []).append(str(stream.stream))
    for trouble, names in ended.items():
        lines.append(f"stream{'s' * (len(names) > 1)} {', '.join(names)}: {trouble}")
    return lines


def missing_from(status: LogStatus, cluster: ClusterStatus) -> list[str]:
    """What a log that takes appends lacks of what is wanted, for people."""
    log = status.log
    if log.sealed:
        return []
    writable = [stream for stream in log.chain[-1].streams if stream.writable]
    lines = []
    if len(writable) < log.streams:
        lines.append(f"{log.streams - len(writable)} of {log.streams} streams")
    for stream in status.streams:
        there = sum(replica.reported and replica.state != "failed" for replica in stream.replicas)
        known = described(status, stream)
        gone = known.stop is not None and (not known.end_slot or known.stop <= log.trimmed + 1)
        wanted = len(known.members) if gone else min(log.replicas, log.chain[stream.segment - 1].replicas)
        if there < wanted:
            lines.append(f"{wanted - there} of {wanted} copies of stream {stream.stream}")
    return lines + too_few_zones(status, cluster)


def copies_of(log: LogDescription) -> str:
    """How many copies entries get now, how many of them an acknowledgement needs, and with how few the log goes on."""
    last = log.chain[-1]
    there, ack = copies_now(log)
    how = ", in a chain" if last.replication == "chain" else f", in stripes of {last.unit:,}" if last.unit else ""
    fewer = f"; goes on with {log.ack} where there are no nodes for more" if log.ack < ack else ""
    wanted = f" for now, {log.replicas} wanted" if there < log.replicas else ""
    return f"{there}{wanted}, of which an acknowledgement needs {ack}{how}{fewer}"


def copies_now(log: LogDescription) -> tuple[int, int]:
    """How many members the streams of the last segment have, the least of all, and how many of them acknowledge."""
    last = log.chain[-1]
    streams = (stream for stream in last.streams if stream.writable or log.sealed)
    there = min((len(stream.members) for stream in streams), default=last.replicas)
    return there, there if all_acknowledge(last.ordering, last.replication) else min(last.ack, there)


def losses_of(log: LogDescription) -> Losses:
    """How many nodes of its last segment may be lost."""
    return survives(log.chain[-1].ordering, *copies_now(log))


def losses_survived(log: LogDescription) -> str:
    """The same in words: with how many lost appends go on at once, or once others have taken over, and all is kept."""
    losses = losses_of(log)
    takeover = "any" if losses.sealing >= copies_now(log)[0] else str(losses.sealing)
    return (
        f"with {losses.appends} lost appends go on at once, with {takeover} others take over, "
        f"with {losses.data} nothing acknowledged is lost"
    )


def kept(log: LogDescription) -> str:
    """What a log is to keep, in words."""
    limits = [f"the newest {size(log.retain_bytes)}"] if log.retain_bytes else []
    limits += [f"{log.retain_seconds:,.0f} s"] if log.retain_seconds else []
    if not limits:
        return "everything, until it is trimmed"
    goes = f"what is beyond {'either' if len(limits) > 1 else 'that'} goes"
    return f"{' and '.join(limits)}; {goes}{', once it is archived' * log.retain_archived}"


def rolled(log: LogDescription) -> str:
    """When a segment is followed by the next, in words."""
    limits = [size(log.roll_bytes)] if log.roll_bytes else []
    limits += [f"{log.roll_seconds:,.0f} s"] if log.roll_seconds else []
    return f"a segment at {' or '.join(limits)}" if limits else "when asked to, or something is changed or lost"


def leader_of(log: LogDescription) -> str:
    """Who leads it, where there is a leader."""
    last = log.chain[-1]
    if log.sealed or last.ordering != "leader":
        return ""
    if log.journal:
        return f"client {last.leader}" if last.leader else "nobody; it waits for a candidate"
    return f"node {last.streams[0].members[0]}"


def sequencer_of(log: LogDescription) -> str:
    """Who grants its positions, where that is done before entries are written."""
    last = log.chain[-1]
    return "" if log.sealed or last.ordering != "sequencer" else f"node {last.streams[0].members[0]}"


def capabilities_of(log: LogDescription) -> list[str]:
    """What it can do as it is now."""
    return sorted(capabilities(log.ordering, streams=log.streams, journal=log.journal))


def too_few_zones(status: LogStatus, cluster: ClusterStatus, *, avoidable: bool = False) -> list[str]:
    """Open streams with copies that share a zone, where nodes carry labels; or only those that could do better."""
    zones = {NodeId(node.id): node.zone for node in cluster.nodes}
    usable = [node.zone for node in cluster.nodes if node.connected and not node.draining]
    if not any(zones.values()) or status.log.sealed:
        return []
    lines = []
    for stream in status.log.chain[-1].streams:
        if stream.writable:
            lies = len(zones_of([NodeId(node) for node in stream.members], zones))
            could = max(lies, most_zones(len(stream.members), usable))
            if lies < (could if avoidable else len(stream.members)):
                better = f"; {could} are possible" if could > lies else ""
                copies = f"{len(stream.members)} copies"
                lines.append(f"stream {stream.id}: {copies} in {lies} zone{'s' * (lies > 1)}{better}")
    return lines


STREAM_COLUMNS = [
    Column("segment", right=True),
    Column("stream", right=True),
    Column("state", style=state_style),
    count("slots"),
    Column("positions", right=True),
    Column("members"),
    Column("zones"),
    Column("trouble", style=trouble_style),
]


def stream_rows(status: LogStatus, cluster: ClusterStatus) -> Iterable[dict[str, Any]]:
    """A row for each stream, in the order they came; `positions` are those between which all its entries lie."""
    zones = {NodeId(node.id): node.zone for node in cluster.nodes}
    for stream in status.streams:
        known = described(status, stream)
        stop = known.stop if known.stop is not None else status.tail + 1
        yield {
            "segment": stream.segment,
            "stream": stream.stream,
            "state": "open" if known.writable else "ended",
            "slots": stream.committed,
            "start": known.start,
            "stop": known.stop,
            "positions": f"{known.start:,}..{stop - 1:,}" if stream.committed else "-",
            "members": list(known.members),
            "zones": [zone for zone in zones_of([NodeId(node) for node in known.members], zones) if zone],
            "trouble": stream.trouble,
        }


SEGMENT_COLUMNS = [
    Column("epoch", "segment", right=True),
    Column("ordering"),
    Column("replication"),
    Column("journal"),
    Column("state", style=state_style),
    count("base", "from"),
    count("end"),
    count("replicas"),
    count("ack"),
    count("streams"),
    count("open_streams"),
]


def segment_row(segment: SegmentDescription) -> dict[str, Any]:
    return {
        "epoch": segment.epoch,
        "ordering": segment.ordering,
        "replication": segment.replication,
        "state": segment.state,
        "base": segment.base,
        "end": segment.end,
        "replicas": segment.replicas,
        "ack": segment.ack,
        "unit": segment.unit or None,
        "journal": segment.journal,
        "streams": len(segment.streams),
        "open_streams": sum(stream.writable for stream in segment.streams),
    }


REPLICA_COLUMNS = [
    Column("segment", right=True),
    Column("stream", right=True),
    Column("node", right=True),
    Column("role"),
    Column("state", style=state_style),
    count("stored", "stored slots"),
    count("committed", "committed slots"),
    Column("stored_bytes", "bytes", show=size, right=True),
    Column("trouble", style=trouble_style),
]


def replica_rows(status: LogStatus) -> Iterable[dict[str, Any]]:
    """A row for each replica, primaries first within their stream."""
    for stream in status.streams:
        led_by_client = segment_of(status, stream).journal
        for index, replica in enumerate(stream.replicas):
            yield {
                "segment": stream.segment,
                "stream": stream.stream,
                "node": replica.node,
                "role": "member" if led_by_client else "backup" if index else "primary",
                "state": replica.state if replica.reported else "silent",
                "stored": replica.contiguous if replica.reported else None,
                "committed": stream.committed,
                "stored_bytes": replica.stored_bytes if replica.reported else None,
                "trouble": stream.trouble,
            }
