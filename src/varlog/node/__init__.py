"""The storage node: replicas behind ten verbs, and the `cut` ordering's primary on top of them."""

from varlog.node.config import NodeConfig
from varlog.node.server import StorageNode

__all__ = ["NodeConfig", "StorageNode"]
