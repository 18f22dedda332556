"""Nodes, logs and replicas as rows: the same facts in every command that lists them."""

from collections.abc import Iterable
from typing import Any

from varlog.cli.output import Column, count, moment, size
from varlog.client import LogStatus, NodeDescription, SegmentDescription

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
    count("replicas"),
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
        "state": "connected" if node.connected else "silent",
        "replicas": node.replicas,
        "free_bytes": sum(volume.free_bytes for volume in node.volumes),
        "total_bytes": sum(volume.total_bytes for volume in node.volumes),
        "volumes": [volume.path for volume in node.volumes],
        "last_seen": node.last_seen,
        "troubles": list(node.troubles),
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
    troubles = [f"stream {stream.stream}: {stream.trouble}" for stream in status.streams if stream.trouble]
    return {
        "name": log.name,
        "id": log.id,
        "ordering": log.ordering,
        "state": "sealed" if log.sealed else "stalled" if troubles else "open",
        "replicas": log.replicas,
        "streams": log.streams,
        "tail": status.tail,
        "trimmed": log.trimmed,
        "stored_bytes": sum(replica.stored_bytes for stream in status.streams for replica in stream.replicas),
        "kept_cuts": status.kept_cuts,
        "created": log.created,
        "troubles": troubles,
    }


SEGMENT_COLUMNS = [
    Column("epoch", "segment", right=True),
    Column("ordering"),
    Column("state", style=state_style),
    count("base", "from"),
    count("end"),
    count("replicas"),
    Column("streams", right=True),
]


def segment_row(segment: SegmentDescription) -> dict[str, Any]:
    return {
        "epoch": segment.epoch,
        "ordering": segment.ordering,
        "state": segment.state,
        "base": segment.base,
        "end": segment.end,
        "replicas": segment.replicas,
        "streams": [stream.id for stream in segment.streams],
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
        for index, replica in enumerate(stream.replicas):
            yield {
                "segment": stream.segment,
                "stream": stream.stream,
                "node": replica.node,
                "role": "backup" if index else "primary",
                "state": replica.state if replica.reported else "silent",
                "stored": replica.contiguous if replica.reported else None,
                "committed": stream.committed,
                "stored_bytes": replica.stored_bytes if replica.reported else None,
                "trouble": stream.trouble,
            }
