"""What a repository is told at its start."""

from dataclasses import dataclass

from varlog.base.errors import InvalidArgument
from varlog.transport.tcp import check_advertised


@dataclass(frozen=True, slots=True)
class RepositoryConfig:
    """Each field with its meaning, unit and default."""

    listen: str = "127.0.0.1:7700"
    """Where to serve; port 0 takes a free one."""
    advertise: str = ""
    """The address that nodes are given, if it is not that; port 0 stands for the port it serves at."""
    heartbeat_ms: int = 500
    """How often a node reports when nothing changes."""
    silent_ms: int = 2000
    """After how much silence a node counts as not connected."""
    lost_ms: int = 1000
    """How long a node may be not connected before others take over from it."""
    lease_ms: int = 3000
    """A node that has had no connection to a repository for so long takes no appends, and says why."""

    direct_nodes: int = 16
    """Up to so many nodes report to the leading repository themselves; of more, two others gather what changes."""
    rebuild_ms: int = 30_000
    """How long it may be not connected before its replicas of ended streams are copied to others."""
    retention_ms: int = 10_000
    """How often it is looked whether a log keeps more than it is to."""

    def __post_init__(self) -> None:
        if self.advertise:
            check_advertised(self.listen, self.advertise)
        if not 10 <= self.heartbeat_ms < self.silent_ms:
            raise InvalidArgument("heartbeat_ms must be at least 10 and less than silent_ms")
        if self.lost_ms < 10:
            raise InvalidArgument("lost_ms must be at least 10")
        if self.lease_ms < 2 * self.heartbeat_ms:
            raise InvalidArgument("lease_ms must be at least twice heartbeat_ms")
        if self.direct_nodes < 0:
            raise InvalidArgument("direct_nodes must be at least 0")
        if self.rebuild_ms < 10:
            raise InvalidArgument("rebuild_ms must be at least 10")
        if self.retention_ms < 10:
            raise InvalidArgument("retention_ms must be at least 10")
