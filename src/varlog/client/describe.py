"""What the cluster tells about itself, as plain frozen records."""

from dataclasses import dataclass
from datetime import datetime

from varlog.client.entry import time_of
from varlog.wire.proto import varlog_pb2 as pb

_REPLICA_STATES = {
    pb.REPLICA_UNKNOWN: "unknown",
    pb.REPLICA_OPEN: "open",
    pb.REPLICA_SEALED: "sealed",
    pb.REPLICA_FINISHED: "finished",
    pb.REPLICA_FAILED: "failed",
}
_SEGMENT_STATES = {pb.SEGMENT_OPEN: "open", pb.SEGMENT_SETTLING: "settling", pb.SEGMENT_SEALED: "sealed"}


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """One log stream: its nodes in chain order, the primary first."""

    id: int
    members: tuple[int, ...]
    writable: bool
    end_slot: int | None
    start: int
    """All its entries are at this position or later,"""
    stop: int | None
    """and before this one; None while it has not ended."""


@dataclass(frozen=True, slots=True)
class SegmentDescription:
    """A range `[base, end)` of the log under one ordering; `end` is None while it is open."""

    epoch: int
    ordering: str
    state: str
    base: int
    end: int | None
    replicas: int
    """As wanted; a stream may have fewer members, while there are no nodes for more."""
    ack: int
    streams: tuple[StreamDescription, ...]
    unit: int = 0
    """Positions that go to one stream before the next has its turn, under `sequencer`."""
    leader: str = ""
    """Of a journal: the client that leads it, by its name or address; empty: nobody does."""
    replication: str = ""
    """Under `leader`: "broadcast", or "chain"; else empty."""
    journal: bool = False
    """Under `leader`: a client leads it, or nobody; no node does."""


@dataclass(frozen=True, slots=True)
class ArchiveDescription:
    """Where the oldest entries of a log lie besides its nodes: the positions `[first, stop)`, in an Iceberg table."""

    location: str
    """URL of the folder with the table."""
    metadata: str
    """URL of the table's metadata, as of the snapshot that holds the range; empty if nothing is archived yet."""
    endpoint: str
    """URL of the S3 server; empty: the one that the region implies."""
    region: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A log's settings and chain of segments."""

    id: int
    name: str
    ordering: str
    replicas: int
    ack: int
    """So many copies acknowledge; where all that a segment has do, with no fewer does the log go on."""
    streams: int
    trimmed: int
    sealed: bool
    created: datetime
    version: int
    chain: tuple[SegmentDescription, ...]
    journal: bool
    """It is led by one client at a time, from its process; so is its last segment, others may not have been."""
    pinned: tuple[str, ...]
    """Capabilities that no change may take away."""
    retain_bytes: int
    """What is more than the newest so many bytes of one copy is trimmed; 0: nothing for that."""
    retain_seconds: float
    """The same of what is older."""
    retain_archived: bool
    """And only what is in the archive."""
    roll_bytes: int
    """A segment that holds so much is followed by the next; 0: never for that."""
    roll_seconds: float
    """The same of one that is so old."""
    archive: ArchiveDescription | None = None

    @property
    def archived(self) -> int:
        """One past the last position that is in the archive; 0 if there is none."""
        return 0 if self.archive is None else self.archive.stop

    @property
    def first(self) -> int:
        """The first position from which the log can be read without a gap: in the archive, or on the nodes."""
        archive = self.archive
        joins = archive is not None and archive.first <= self.trimmed < archive.stop
        return archive.first if archive is not None and joins else self.trimmed + 1


@dataclass(frozen=True, slots=True)
class VolumeDescription:
    """One data folder of a node."""

    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ScrubDescription:
    """How far a node is with reading its own files, to look for rot. Counts are since its start."""

    running: bool
    done_bytes: int
    """Of the present or last pass."""
    total_bytes: int
    passes: int
    """Complete ones."""
    ended: datetime | None
    """When the last one ended."""
    found: int
    """Damaged replicas, by whoever read them,"""
    repaired: int
    """and how many of them are made anew from their peers."""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Slots `[slot, end)` of a replica that do not match their checksums; their positions lie in `[start, stop)`."""

    slot: int
    end: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A storage node."""

    id: int
    address: str
    zone: str
    connected: bool
    last_seen: datetime | None
    replicas: int
    troubles: tuple[str, ...]
    volumes: tuple[VolumeDescription, ...]
    boot: int
    draining: bool
    """It gets nothing new, and what is open on it moves away."""
    open_streams: int
    """Of so many it is a member,"""
    ended_streams: int
    """and of so many that have ended it holds a copy."""
    scrub: ScrubDescription


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One copy of a stream, as its node reported it last."""

    node: int
    reported: bool
    contiguous: int
    state: str
    stored_bytes: int
    damage: tuple[DamagedRange, ...] = ()
    """It goes on serving what is whole, and is to be replaced."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How far a stream is, and what ails it."""

    segment: int
    stream: int
    committed: int
    replicas: tuple[ReplicaStatus, ...]
    trouble: str
    thin: bool
    """All that ails it is that it has fewer copies than are wanted."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How far a log is."""

    log: LogDescription
    tail: int
    kept_cuts: int
    streams: tuple[StreamStatus, ...]
    trouble: str
    """Why streams cannot be replaced, or cannot leave a node that drains; empty if they can or need not."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything at once."""

    cluster_id: str
    nodes: tuple[NodeDescription, ...]
    logs: tuple[LogStatus, ...]
    cuts: int
    """Made since the repository started that answered."""
    role: str
    """Of that repository."""
    started: datetime | None
    """When it was started."""


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """What becomes of one stream when a node that is a member of it is stopped."""

    log: str
    segment: int
    stream: int
    open: bool
    primary: bool
    """The node is its primary."""
    stops: bool
    """It takes no more appends until the node is back: there are too few others for a stream in its place."""
    copies_left: int
    """Whole ones on other nodes that are connected."""
    copies_wanted: int
    empty: bool
    """It holds nothing that could be read."""
    stored_bytes: int

    @property
    def unreadable(self) -> bool:
        """Some of its entries could be read nowhere."""
        return not self.copies_left and not self.empty


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Whether a node can be stopped, stream by stream."""

    node: NodeDescription
    streams: tuple[StreamCheck, ...]
    """All it is a member of."""
    reason: str
    """Why there is no replacement, if a stream stops."""
    pause: float
    """Seconds that appends to its open streams wait until others take over."""

    @property
    def stoppable(self) -> bool:
        """All streams go on, at most after the pause, and everything stays readable."""
        return not any(stream.stops or stream.unreadable for stream in self.streams)

    @property
    def drained(self) -> bool:
        """It is a member of no open stream."""
        return not any(stream.open for stream in self.streams)


def describe_log(info: pb.LogInfo) -> LogDescription:
    return LogDescription(
        id=info.id,
        name=info.name,
        ordering=info.ordering,
        replicas=info.replicas,
        ack=info.ack or info.replicas,
        streams=info.streams,
        trimmed=info.trimmed,
        sealed=info.sealed,
        created=time_of(info.created_us),
        version=info.version,
        chain=tuple(map(_segment, info.chain)),
        journal=info.journal,
        pinned=tuple(info.pinned),
        retain_bytes=info.retain_bytes,
        retain_seconds=info.retain_ms / 1000,
        retain_archived=info.retain_archived,
        roll_bytes=info.roll_bytes,
        roll_seconds=info.roll_ms / 1000,
        archive=_archive(info) if info.HasField("archive") else None,
    )


def _archive(info: pb.LogInfo) -> ArchiveDescription:
    archive = info.archive
    return ArchiveDescription(
        location=archive.location,
        metadata=archive.metadata,
        endpoint=archive.endpoint,
        region=archive.region,
        first=archive.first,
        stop=info.archived,
    )


def _segment(info: pb.SegmentInfo) -> SegmentDescription:
    return SegmentDescription(
        epoch=info.epoch,
        ordering=info.ordering,
        state=_SEGMENT_STATES.get(info.state, "unknown"),
        base=info.base,
        end=info.end or None,
        replicas=info.replicas,
        ack=info.ack,
        streams=tuple(_stream(info, stream) for stream in info.streams),
        unit=info.unit,
        leader=info.leader.name,
        replication=(info.replication or "broadcast") if info.ordering == "leader" else "",
        journal=info.journal,
    )


def _stream(segment: pb.SegmentInfo, info: pb.StreamInfo) -> StreamDescription:
    finalized = info.state == pb.STREAM_FINALIZED
    return StreamDescription(
        id=info.id,
        members=tuple(info.members),
        writable=not finalized and segment.state == pb.SEGMENT_OPEN,
        end_slot=info.end_slot if finalized else None,
        start=info.from_glsn or segment.base,
        stop=info.until_glsn or segment.end or None,
    )


def describe_node(info: pb.NodeInfo) -> NodeDescription:
    return NodeDescription(
        id=info.id,
        address=info.address,
        zone=info.zone,
        connected=info.connected,
        last_seen=time_of(info.last_seen_us) if info.last_seen_us else None,
        replicas=info.replicas,
        troubles=tuple(info.troubles),
        volumes=tuple(VolumeDescription(each.path, each.free_bytes, each.total_bytes) for each in info.volumes),
        boot=info.boot,
        draining=info.draining,
        open_streams=info.open_streams,
        ended_streams=info.ended_streams,
        scrub=_scrub(info.scrub),
    )


def _scrub(status: pb.ScrubStatus) -> ScrubDescription:
    return ScrubDescription(
        running=status.running,
        done_bytes=status.done_bytes,
        total_bytes=status.total_bytes,
        passes=status.passes,
        ended=time_of(status.ended_us) if status.ended_us else None,
        found=status.found,
        repaired=status.repaired,
    )


def describe_status(reply: pb.StatusReply) -> ClusterStatus:
    return ClusterStatus(
        cluster_id=reply.cluster_id,
        nodes=tuple(map(describe_node, reply.nodes)),
        logs=tuple(map(_log_status, reply.logs)),
        cuts=reply.cuts,
        role=reply.role,
        started=time_of(reply.started_us) if reply.started_us else None,
    )


def describe_check(reply: pb.CheckNodeReply) -> NodeCheck:
    return NodeCheck(
        node=describe_node(reply.node),
        streams=tuple(map(_stream_check, reply.streams)),
        reason=reply.no_replacement,
        pause=reply.pause_ms / 1000,
    )


def _stream_check(check: pb.StreamCheck) -> StreamCheck:
    return StreamCheck(
        log=check.log,
        segment=check.segment,
        stream=check.stream,
        open=check.open,
        primary=check.primary,
        stops=check.stops,
        copies_left=check.copies_left,
        copies_wanted=check.copies_wanted,
        empty=check.empty,
        stored_bytes=check.stored_bytes,
    )


def _log_status(status: pb.LogStatus) -> LogStatus:
    return LogStatus(
        log=describe_log(status.log),
        tail=status.tail,
        kept_cuts=status.kept_cuts,
        streams=tuple(map(_stream_status, status.streams)),
        trouble=status.trouble,
    )


def _stream_status(status: pb.StreamStatus) -> StreamStatus:
    return StreamStatus(
        segment=status.segment,
        stream=status.stream,
        committed=status.committed,
        replicas=tuple(
            ReplicaStatus(
                node=each.node,
                reported=each.reported,
                contiguous=each.contiguous,
                state=_REPLICA_STATES.get(each.state, "unknown"),
                stored_bytes=each.stored_bytes,
                damage=tuple(DamagedRange(one.slot, one.end_slot, one.glsn, one.end_glsn) for one in each.damage),
            )
            for each in status.replicas
        ),
        trouble=status.trouble,
        thin=status.thin,
    )
