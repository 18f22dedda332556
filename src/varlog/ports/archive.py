"""Archives of logs, as readers see them: entries that the nodes have given up, by position and by time."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from varlog.base.ids import Glsn, Slot, StreamId
from varlog.wire.batch import Batch
from varlog.wire.proto import varlog_pb2 as pb


class ArchivedBatch(NamedTuple):
    """Entries of one stream at consecutive positions; the first has `slot` and `glsn`."""

    batch: Batch
    stream: StreamId
    slot: Slot
    glsn: Glsn


class Archives(Protocol):
    """Reads the archive that a log's record names, as of that record: positions `[archive.first, archived)`."""

    def batches(
        self, log: pb.LogInfo, start: Glsn, stop: Glsn, stream: StreamId | None
    ) -> AsyncGenerator[list[ArchivedBatch], None]:
        """Everything in `[start, stop)`, or what one stream has of it, in order; both bounds lie in the archive.

        A batch may begin before `start` and end behind `stop`.
        """
        ...

    async def find(self, log: pb.LogInfo, time_us: int) -> Glsn | None:
        """The first position whose time is this or later; None if there is none."""
        ...
