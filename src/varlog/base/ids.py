"""Names and positions, each with a type of its own, so that a slot is never taken for a GLSN.

All ranges are half-open. `tail` always means the last position that exists (as in `log.tail()`);
`end` always means one past it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, NewType

Glsn = NewType("Glsn", int)
"""Position in the whole log, from 1 on."""

Slot = NewType("Slot", int)
"""Position inside one stream, from 0 on; LLSN in the seed documents, less one."""

LogId = NewType("LogId", int)
"""Never reused, also not when a log is removed and one of the same name is made."""

Epoch = NewType("Epoch", int)
"""Index of a segment in its log's chain, from 1 on."""

StreamId = NewType("StreamId", int)
"""Unique inside one log, from 1 on, never reused."""

NodeId = NewType("NodeId", int)
"""A storage node, from 1 on. A node that comes back without its data gets another id."""

FIRST_GLSN = Glsn(1)
FIRST_SLOT = Slot(0)
FIRST_EPOCH = Epoch(1)


class ReplicaId(NamedTuple):
    """A stream's copy on one node is named by what it is a copy of."""

    log: LogId
    segment: Epoch
    stream: StreamId

    def __str__(self) -> str:
        return f"{self.log}.{self.segment}.{self.stream}"


@dataclass(frozen=True, slots=True)
class ProducerToken:
    """The identity of one send. The same token is in the log at most once.

    `sequence` is dense, from 0 on, per producer and stream. It numbers batches: the send in question
    are entries `[index, index + count)` of that batch, whose bytes go with the token, so that it can
    be sent again exactly as it was, from another process too.
    """

    producer: bytes
    """16 bytes."""
    sequence: int
    stream: StreamId
    log: LogId = LogId(0)
    segment: Epoch = Epoch(0)
    index: int = 0
    count: int = 1
    batch: bytes = field(default=b"", repr=False)
    slot: Slot | None = None
    """Where it was sent to, if the client chose that; it is nowhere else."""
