"""Where things lie in the metadata store. Numbers are padded so that keys sort as they do."""

from varlog.base.ids import LogId, NodeId

CLUSTER = "cluster"
"""The cluster's id."""
DIRECTORY = "directory"
"""Version of the node directory: grows whenever a node comes or moves."""
NEXT_NODE = "next/node"
NEXT_LOG = "next/log"
NODES = "node/"
REMOVED = "removed/"
NAMES = "name/"
LOGS = "log/"
GONE = "gone/"
CUTS = "cut/"


def node(number: NodeId) -> str:
    """A `NodeInfo`."""
    return f"{NODES}{number:010}"


def removed(number: NodeId) -> str:
    """The incarnation of a node that was removed for good."""
    return f"{REMOVED}{number:010}"


def name(log_name: str) -> str:
    """The id of the log with that name."""
    return f"{NAMES}{log_name}"


def log(number: LogId) -> str:
    """A `LogInfo`, with the chain."""
    return f"{LOGS}{number:020}"


def gone(number: LogId) -> str:
    """A log that is no more: the nodes that may still have replicas of it."""
    return f"{GONE}{number:020}"


def cuts(number: LogId) -> str:
    """Prefix of the kept cuts of a log."""
    return f"{CUTS}{number:020}/"


def cut(number: LogId, high_watermark: int) -> str:
    """A `Cut`."""
    return f"{cuts(number)}{high_watermark:020}"


def cut_base(number: LogId) -> str:
    """A `CutBase`: where the log stood when cuts were last dropped."""
    return f"base/{number:020}"
