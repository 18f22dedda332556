"""What an application links: a cluster, its logs, appends, producers, reads and subscriptions. Nothing here serves."""

from varlog.client.cluster import Cluster, connect
from varlog.client.describe import (
    ArchiveDescription,
    ClusterStatus,
    DamagedRange,
    LogDescription,
    LogStatus,
    NodeCheck,
    NodeDescription,
    ReplicaStatus,
    ScrubDescription,
    SegmentDescription,
    StreamCheck,
    StreamDescription,
    StreamStatus,
    VolumeDescription,
)
from varlog.client.entry import Ack, Entry, ReadBatch
from varlog.client.journal import Journal, JournalLeader
from varlog.client.log import Log
from varlog.client.producer import Producer
from varlog.client.subscription import Subscription

__all__ = [
    "Ack",
    "ArchiveDescription",
    "Cluster",
    "ClusterStatus",
    "DamagedRange",
    "Entry",
    "Journal",
    "JournalLeader",
    "Log",
    "LogDescription",
    "LogStatus",
    "NodeCheck",
    "NodeDescription",
    "Producer",
    "ReadBatch",
    "ReplicaStatus",
    "ScrubDescription",
    "SegmentDescription",
    "StreamCheck",
    "StreamDescription",
    "StreamStatus",
    "Subscription",
    "VolumeDescription",
    "connect",
]
