"""A replicated, totally ordered log.

The names in `__all__` are the public surface; everything else may change. They are loaded at their
first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import varlog.sync as sync
    from varlog.base.errors import (
        AlreadyExists,
        Conflict,
        ConnectionLost,
        Corrupt,
        Fenced,
        InvalidArgument,
        Junk,
        NoSpace,
        NotFound,
        NotWritten,
        OutcomeUnknown,
        Overloaded,
        ReplicaFailed,
        Sealed,
        Timeout,
        TooLarge,
        Trimmed,
        Unauthorized,
        Unavailable,
        Unsupported,
        VarlogError,
    )
    from varlog.base.ids import ProducerToken
    from varlog.client import (
        Ack,
        ArchiveDescription,
        Cluster,
        ClusterStatus,
        DamagedRange,
        Entry,
        Journal,
        JournalLeader,
        Log,
        LogDescription,
        LogStatus,
        NodeCheck,
        NodeDescription,
        Producer,
        ReadBatch,
        ReplicaStatus,
        ScrubDescription,
        SegmentDescription,
        StreamCheck,
        StreamDescription,
        StreamStatus,
        Subscription,
        VolumeDescription,
        connect,
    )
    from varlog.local import local_cluster
    from varlog.runtime.process import tune_process

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AlreadyExists",
    "ArchiveDescription",
    "Cluster",
    "ClusterStatus",
    "Conflict",
    "ConnectionLost",
    "Corrupt",
    "DamagedRange",
    "Entry",
    "Fenced",
    "InvalidArgument",
    "Journal",
    "JournalLeader",
    "Junk",
    "Log",
    "LogDescription",
    "LogStatus",
    "NoSpace",
    "NodeCheck",
    "NodeDescription",
    "NotFound",
    "NotWritten",
    "OutcomeUnknown",
    "Overloaded",
    "Producer",
    "ProducerToken",
    "ReadBatch",
    "ReplicaFailed",
    "ReplicaStatus",
    "ScrubDescription",
    "Sealed",
    "SegmentDescription",
    "StreamCheck",
    "StreamDescription",
    "StreamStatus",
    "Subscription",
    "Timeout",
    "TooLarge",
    "Trimmed",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "VarlogError",
    "VolumeDescription",
    "__version__",
    "connect",
    "local_cluster",
    "sync",
    "tune_process",
]

_HOMES = ("varlog.base.errors", "varlog.base.ids", "varlog.client", "varlog.local", "varlog.runtime.process")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'varlog' has no attribute {name!r}")
    if name == "sync":
        return import_module("varlog.sync")
    home = next(module for module in map(import_module, _HOMES) if hasattr(module, name))
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
