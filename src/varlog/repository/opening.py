"""New streams: which nodes may have them, and opening their replicas before anybody is told of them."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from varlog.base.errors import Unavailable, VarlogError
from varlog.base.ids import LogId, NodeId
from varlog.core.placement import Candidate, is_full
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def candidates(catalog: Catalog, links: NodeLinks, without: LogId | None = None) -> dict[NodeId, Candidate]:
    """All connected nodes, as placement sees them; `without` is a log all of whose open streams are about to end."""
    connected = [node for node in links.connected() if node in catalog.nodes]
    replicas, primaries = catalog.load_of(connected), catalog.primaries_of(connected, without)
    open_, grants = catalog.open_of(connected, without), catalog.grants_of(connected, without)
    return {
        node: Candidate(
            zone=catalog.nodes[node].zone,
            open=open_[node],
            replicas=replicas[node],
            primaries=primaries[node],
            grants=grants[node],
            draining=catalog.nodes[node].draining,
            full=has_no_room(links.volumes(node)),
            shaky=links.standing.is_shaky(node),
            poor_head=links.standing.is_poor_head(node),
        )
        for node in connected
    }


def has_no_room(volumes: Sequence[pb.Volume]) -> bool:
    """A node gives a new replica to its emptiest volume: it is full when they all are."""
    return bool(volumes) and all(is_full(volume.free_bytes, volume.total_bytes) for volume in volumes)


async def open_replicas(
    links: NodeLinks, log: pb.LogInfo, segment: pb.SegmentInfo, streams: Sequence[pb.StreamInfo]
) -> None:
    """On every member of every stream; raises `Unavailable` unless all of them are open."""
    calls = []
    for stream in streams:
        spec = describe_replica(log, segment, streams, stream)
        calls += [_open(links, NodeId(node), spec) for node in stream.members]
    await all_or_first_error(calls, f"streams of log {log.name!r} could not be opened")


async def _open(links: NodeLinks, node: NodeId, spec: pb.ReplicaSpec) -> None:
    try:
        await links.call(node, Method.OPEN, pb.OpenRequest(spec=spec))
    except VarlogError:
        links.standing.mishap(node)
        raise


def describe_replica(
    log: pb.LogInfo, segment: pb.SegmentInfo, streams: Sequence[pb.StreamInfo], stream: pb.StreamInfo
) -> pb.ReplicaSpec:
    """What a node must know of a replica of one of the segment's `streams`."""
    spec = pb.ReplicaSpec(
        replica=pb.ReplicaId(log=log.id, segment=segment.epoch, stream=stream.id),
        ordering=segment.ordering,
        members=stream.members,
        log_name=log.name,
        ack=segment.ack,
        journal=segment.journal,
        replication=segment.replication,
        writer=segment.leader.id,
    )
    if segment.ordering == "sequencer":
        spec.unit, spec.streams = segment.unit, len(streams)
        spec.index = [each.id for each in streams].index(stream.id)
    return spec


async def all_or_first_error(calls: list[Coroutine[Any, Any, None]], what: str) -> None:
    """Wait for all; if any failed, say so once, after all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, VarlogError):
            raise Unavailable(f"{what}: {result.message}") from result
        if isinstance(result, BaseException):
            raise result
