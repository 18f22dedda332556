"""Follows a segment that has grown too large or too old by the next one, on the nodes that have most room by then.

No data moves: what is in the old segment stays where it is, immutable, and can be archived or trimmed as a whole.
"""

from collections.abc import Iterator

from varlog.base.errors import VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.ports import Clock
from varlog.ports.disk import DiskFailed
from varlog.repository.catalog import Catalog
from varlog.repository.changes import Changes
from varlog.repository.copies import members_for
from varlog.repository.links import NodeLinks
from varlog.repository.reconfigure import Reconfigurer, settings_of
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 0.5
"""How often segments are looked at."""
PAUSE_S = 5.0
"""After a log could not be rolled, before it is tried again."""


class Roller:
    """Looks after the last segment of every log that has a limit."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        links: NodeLinks,
        reconfigurer: Reconfigurer,
        changes: Changes,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self._reconfigurer = reconfigurer
        self._changes = changes
        self._not_before: dict[LogId, float] = {}
        self._troubles: dict[LogId, str] = {}

    def trouble(self, log: LogId) -> str:
        """Why a log's segment is not followed by the next, for people; empty if it is or need not be."""
        return self._troubles.get(log, "")

    async def run(self) -> None:
        """Until cancelled. An error of the store ends it: what it has recorded is then not known."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._forget_removed()
            for number in list(self._catalog.logs):
                if self._not_before.get(number, 0.0) <= self._clock.now() and self._is_due(number):
                    await self._roll(number)

    def _forget_removed(self) -> None:
        logs = self._catalog.logs
        self._troubles = {log: why for log, why in self._troubles.items() if log in logs}
        self._not_before = {log: until for log, until in self._not_before.items() if log in logs}

    async def _roll(self, number: LogId) -> None:
        try:
            async with self._changes.of(number):
                if self._is_due(number):  # it may have been changed while we waited
                    log = self._catalog.log(number)
                    wanted = settings_of(log)
                    members = members_for(self._catalog, self._links, number, wanted, urgent=False)
                    await self._reconfigurer.next_segment(number, wanted, members=members)
        except DiskFailed:
            raise  # our own store: whether it has the change is known only after a restart
        except VarlogError as error:
            self._troubles[number] = f"its segment is not followed by the next: {error.message}"
            self._not_before[number] = self._clock.now() + PAUSE_S
        else:
            self._troubles.pop(number, None)
            self._not_before.pop(number, None)

    def _is_due(self, number: LogId) -> bool:
        log = self._catalog.logs.get(number)
        if log is None or log.sealed or log.removing:
            return False
        segment = log.chain[-1]
        if not self._holds_anything(number, segment):
            return False  # an empty one is as good as new
        if log.roll_ms and self._clock.wall_us() - segment.created_us >= log.roll_ms * 1000:
            return True
        return bool(log.roll_bytes) and self._stored(number, segment) >= log.roll_bytes

    def _holds_anything(self, number: LogId, segment: pb.SegmentInfo) -> bool:
        return any(row.uncommitted_llsn_offset > 1 for rows in self._rows(number, segment) for row in rows)

    def _stored(self, number: LogId, segment: pb.SegmentInfo) -> int:
        """Bytes of one copy of each of its streams, as last reported."""
        return sum(max((row.stored_bytes for row in rows), default=0) for rows in self._rows(number, segment))

    def _rows(self, number: LogId, segment: pb.SegmentInfo) -> Iterator[list[pb.LogStreamUncommitReport]]:
        """Of each stream, what its members reported last."""
        for stream in segment.streams:
            name = ReplicaId(number, Epoch(segment.epoch), StreamId(stream.id))
            rows = (self._links.row(NodeId(node), name) for node in stream.members)
            yield [row for row in rows if row is not None]
