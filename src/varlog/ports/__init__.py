"""The interfaces through which everything that decides sees network, disk, clock, chance and metadata.

Each has a real implementation (`runtime`, `transport`, `metadata`) and a simulated twin (`sim`);
one conformance suite runs against both. `World` is the bundle that a process is handed.
"""

from dataclasses import dataclass
from random import Random

from varlog.ports.archive import Archives
from varlog.ports.clock import Clock, Timer
from varlog.ports.disk import Disk, File
from varlog.ports.election import ElectiveStore, Leader, Leadership
from varlog.ports.metadata import Change, MetadataStore, Transaction, Versioned
from varlog.ports.network import Channel, ChannelHandler, Listener, Network

__all__ = [
    "Archives",
    "Change",
    "Channel",
    "ChannelHandler",
    "Clock",
    "Disk",
    "ElectiveStore",
    "File",
    "Leader",
    "Leadership",
    "Listener",
    "MetadataStore",
    "Network",
    "Random",
    "Timer",
    "Transaction",
    "Versioned",
    "World",
]


@dataclass(frozen=True, slots=True)
class World:
    """What one process (a node, a repository, a client) may touch. Disks are handed over separately."""

    clock: Clock
    network: Network
    random: Random
    archives: Archives | None = None
    """Of logs, for clients; None: those in folders and on S3."""
