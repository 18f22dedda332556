"""Trims what a log need not keep any more: what is too old, or more than it may hold; if it says so, only what is
archived.

    segment   1         2          3 (open)        by time: segment 2 began before the oldest time that is kept,
    |---------|---------|---------------▶          segment 3 after it. So all of 1 is too old, nothing of 3, and 2 is
      gone    |· asked ·|                          asked. By size: from the last segment back until there is enough;
                                                   the one in which that is, is asked, and those in which something
                                                   is not committed: it does not count, for it may be cut off yet

So one or two segments are asked at a look, each of their streams once, whatever the log's length. Nodes answer
by batches: what is trimmed ends where a batch does. Times are those that senders gave their batches; by what time a
segment began, the repository's own clock counts.

The point is recorded in the log's record, and nodes are brought there as by any other trim. A stream that nobody
answers for is kept: what is not known is not gone.
"""

from collections.abc import Iterator

from varlog.base.errors import Unavailable, VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.core.retention import Marks, kept_from
from varlog.ports import Clock
from varlog.ports.disk import DiskFailed
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks, is_hurt
from varlog.repository.positions import Positions
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

MOST = (1 << 63) - 1
"""Beyond every position."""
STEPS = 100
"""A time is kept to by so many steps: every change of the point is a change of the log's record."""


class Retention:
    """Looks after every log that says what it keeps."""

    def __init__(self, clock: Clock, catalog: Catalog, links: NodeLinks, positions: Positions, look_s: float) -> None:
        """`look_s`: how often a log is looked at, at most."""
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self._positions = positions
        self._look_s = look_s
        self._not_before: dict[LogId, float] = {}
        """When a log's times are looked at next."""
        self._troubles: dict[LogId, str] = {}

    def trouble(self, log: LogId) -> str:
        """Why a log keeps more than it is to, for people; empty if it does not."""
        return self._troubles.get(log, "")

    async def run(self) -> None:
        """Until cancelled. An error of the store ends it: what it has recorded is then not known."""
        while True:
            await self._clock.sleep(self._look_s)
            self._troubles = {log: why for log, why in self._troubles.items() if log in self._catalog.logs}
            self._not_before = {log: when for log, when in self._not_before.items() if log in self._catalog.logs}
            for number in list(self._catalog.logs):
                await self._look(number)

    async def _look(self, number: LogId) -> None:
        log = self._catalog.logs.get(number)
        if log is None or log.removing or not (log.retain_ms or log.retain_bytes) or _free(log) <= log.trimmed:
            self._troubles.pop(number, None)
            return
        try:
            point = max(await self._too_old(log), await self._too_much(log))
            await self._trim(log, min(point, _free(log)))
        except DiskFailed:
            raise  # our own store: whether it has the change is known only after a restart
        except VarlogError as error:
            self._troubles[number] = f"it keeps more than it is to: {error.message}"
        else:
            self._troubles.pop(number, None)

    async def _trim(self, asked: pb.LogInfo, point: int) -> None:
        """Unless the log is to keep something else by now."""
        if point <= asked.trimmed:
            return

        def trim_further(log: pb.LogInfo) -> None:
            if _wishes(log) == _wishes(asked):
                log.trimmed = max(log.trimmed, point)  # an archive never goes back: what was free still is

        number = LogId(asked.id)
        await self._catalog.change_log(number, trim_further)
        self._links.mend_all(number)

    # ------------------------------------------------------------ by time

    async def _too_old(self, log: pb.LogInfo) -> int:
        """The last position that is older than the log keeps."""
        now = self._clock.now()
        if not log.retain_ms or self._not_before.get(LogId(log.id), 0.0) > now:
            return 0
        oldest_us = self._clock.wall_us() - log.retain_ms * 1000
        begun = [segment for segment in log.chain if segment.created_us <= oldest_us]
        point = await self._older_in(log, begun[-1], oldest_us) if begun else 0
        self._not_before[LogId(log.id)] = now + log.retain_ms / 1000 / STEPS
        return point

    async def _older_in(self, log: pb.LogInfo, segment: pb.SegmentInfo, oldest_us: int) -> int:
        end = segment.end or self._positions.tail(log) + 1  # before anybody is asked
        committed = {name: self._positions.committed(name, stream) for name, stream in _left(log, segment)}
        for name, stream in _left(log, segment):
            reply = await self._ask(name, stream, pb.MarksRequest(time_us=oldest_us), committed[name])
            if reply.young_glsn:
                end = min(end, reply.young_glsn)
        return end - 1

    # ------------------------------------------------------------ by size

    async def _too_much(self, log: pb.LogInfo) -> int:
        """The last position that is not among the newest bytes that the log keeps."""
        left = log.retain_bytes
        for segment in reversed(log.chain) if left else ():
            rows = [self._rows(name, stream) for name, stream in _left(log, segment)]
            stored = sum(max((row.stored_bytes for row in each), default=0) for each in rows)
            if stored >= left or any(row.uncommitted_llsn_length for each in rows for row in each):
                marks = await self._marks(log, segment)
                if point := kept_from(marks, left):
                    return max(segment.base, point) - 1
                stored = sum(each[0][1] for each in marks if each)
            left -= stored
        return 0

    def _rows(self, name: ReplicaId, stream: pb.StreamInfo) -> list[pb.LogStreamUncommitReport]:
        """What the members of a stream reported last."""
        rows = (self._links.row(NodeId(node), name) for node in stream.members)
        return [row for row in rows if row is not None]

    async def _marks(self, log: pb.LogInfo, segment: pb.SegmentInfo) -> list[Marks]:
        """Of each stream: what is not committed is stored, too, and does not count."""
        found: list[Marks] = []
        for name, stream in _left(log, segment):
            reply = await self._ask(name, stream, pb.MarksRequest(sizes=True), 0)
            found.append([(mark.glsn, mark.bytes) for mark in reply.marks])
        return found

    # ------------------------------------------------------------ asking

    async def _ask(
        self, name: ReplicaId, stream: pb.StreamInfo, request: pb.MarksRequest, committed: int
    ) -> pb.MarksReply:
        """Of the first member that is whole, answers, and knows of all that is committed."""
        request.replica.CopyFrom(pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream))
        why = "no member is well"
        for node in map(NodeId, stream.members):
            row = self._links.row(node, name)
            if row is None or is_hurt(row):
                continue
            try:
                reply = await self._links.ask(node, Method.MARKS, request)
            except VarlogError as error:
                why = error.message
                continue
            assert isinstance(reply, pb.MarksReply)
            if reply.committed >= committed:
                return reply
            why = f"node {node} is behind"
        raise Unavailable(f"stream {name.stream} cannot be asked: {why}")


def _left(log: pb.LogInfo, segment: pb.SegmentInfo) -> Iterator[tuple[ReplicaId, pb.StreamInfo]]:
    """The streams of a segment of which something may be left."""
    for stream in segment.streams:
        if not stream.until_glsn or stream.until_glsn > log.trimmed + 1:
            yield ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id)), stream


def _free(log: pb.LogInfo) -> int:
    """Up to where a log may be trimmed whatever it holds."""
    return max(0, log.archived - 1) if log.retain_archived else MOST


def _wishes(log: pb.LogInfo) -> tuple[int, int, bool]:
    return log.retain_ms, log.retain_bytes, log.retain_archived
