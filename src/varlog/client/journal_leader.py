"""The leader of a journal, in the process of whoever appends: one round trip from append to commit.

    append --> lane --gather--> batch --> the segment it leads --> all members
                 ^                            |
                 `---- not in the log --------'   the segment has ended, and it leads the next

It leads one segment after the other, as long as the log's record names it. When its segment has ended, what lies
before the end is acknowledged, and the rest goes on in the next segment, in order, unseen by the caller. Once
another is named, or the log is no journal any more, everything that is not in the log ends in `Fenced`.
"""

import asyncio
from math import inf

from varlog.base import limits as shared
from varlog.base.errors import (
    Fenced,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    Timeout,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import Glsn, NodeId, Slot
from varlog.client.columns import Columns, check_compression
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.errors import again
from varlog.client.journal_lease import Lease
from varlog.client.journal_lines import LedSegment
from varlog.client.lane import Appends, Lane
from varlog.client.limits import (
    APPEND_BYTES,
    APPENDS_IN_FLIGHT,
    FULL_IN_FLIGHT,
    LEFT_BEHIND_SECONDS,
    RESIGN_SECONDS,
    SHARE_APPENDS,
)
from varlog.client.reconfigure import reconfigure_log
from varlog.client.repository import pause
from varlog.client.room import Room
from varlog.core.ordering.journal import Numbered
from varlog.core.ordering.leader import is_safe
from varlog.runtime.scope import Scope
from varlog.transport.deadlines import Deadlines
from varlog.wire.batch import encode_batch
from varlog.wire.proto import varlog_pb2 as pb


class Leadership:
    """Of one candidate: from its election on it leads, until it leaves or another takes over."""

    def __init__(
        self, context: LogContext, info: pb.LogInfo, leader: pb.JournalLeader, timeout: float, patience: float | None
    ) -> None:
        """`patience` is how long to wait for the election; None: for ever."""
        self._context = context
        self._world = context.world
        self._log = info.id
        self._id = leader.id
        self._timeout = timeout
        self._patience = patience
        self._lease = Lease(context, info.id, leader)
        self._lane = Lane(None, asyncio.get_running_loop().create_future)
        self._room = Room(self._world.clock, APPEND_BYTES)
        self._deadlines = Deadlines(self._world.clock, self._expire)
        self._scope = Scope()
        self._segment: LedSegment | None = None
        self._opened = False
        self._ended: VarlogError | None = Unavailable("not elected yet: lead inside `async with journal.lead()`")
        """Why nothing more can be appended."""
        self._over: LedSegment | None = None
        """The last one of which a member has said that it takes nothing more."""
        self._looking: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._shown = 0
        """The last segment of which a member has said that it is finished."""
        self._asked_at = -inf
        """When other members were last asked for."""

    @property
    def epoch(self) -> int:
        """The segment it leads; 0 if it does not, or not just now."""
        return self._segment.epoch if self._segment is not None else 0

    # ------------------------------------------------------------ coming and going

    async def open(self) -> None:
        """Wait until it is elected, which happens once: under its id there is perhaps a segment that it has left, and
        members would take what it sends now for what they have of that."""
        if self._opened:
            raise InvalidArgument("a candidate leads once; take another from journal.lead()")
        self._opened = True
        try:
            info = await self._lease.campaign(self._patience)
        except (VarlogError, asyncio.CancelledError):
            self._context.scope.spawn(self._lease.resign(), name="resign")
            raise
        self._ended = None
        self._context.on_close.append(self._abandon)
        self._context.routes.adopt(info)
        self._context.routes.listeners.append(self._changed)
        self._scope.spawn(self._lease.keep(self._context.routes.adopt), name="lease")
        self._changed()

    async def close(self) -> None:
        """See through what was sent, then leave; another may lead at once."""
        try:
            if self._ended is None and self._segment is not None:
                await self._see_through(self._segment)
        finally:
            led = self._ended is None
            self._abandon()
        await self._scope.close()
        if led:
            await self._lease.resign()

    async def _see_through(self, segment: LedSegment) -> None:
        clock = self._world.clock
        until = clock.now() + RESIGN_SECONDS
        while segment is self._segment and segment.tenure.waiting and clock.now() < until:
            await clock.sleep(0.001)
        await segment.release(RESIGN_SECONDS)

    def _abandon(self) -> None:
        """Stop at once. What was sent is of unknown outcome."""
        self._end(Unavailable("it leads no more"))
        for listeners, own in (
            (self._context.routes.listeners, self._changed),
            (self._context.on_close, self._abandon),
        ):
            if own in listeners:
                listeners.remove(own)
        self._scope.cancel()

    def _end(self, error: VarlogError) -> None:
        """Nothing more can be appended; what was sent and is not settled is of unknown outcome."""
        if self._ended is not None:
            return
        self._ended = error
        segment, self._segment = self._segment, None
        if self._asking is not None:
            self._asking.cancel()
        if segment is not None:
            segment.cancel()
            for numbered in segment.tenure.waiting:
                numbered.batch.fail(lambda _, __: OutcomeUnknown(f"the append was sent, but {error.message}"))
        for appends in self._lane.take_all():
            appends.fail(lambda _, __: again(error))
        self._room.close(error)
        self._deadlines.close()

    # ------------------------------------------------------------ appending

    async def append(self, columns: Columns, compress: bool, timeout: float | None) -> Ack:
        """Append entries at consecutive positions, waiting for whatever it takes."""
        seconds = self._timeout if timeout is None else timeout
        if not seconds > 0:
            raise InvalidArgument(f"a timeout is a positive number of seconds, not {timeout}")
        if compress:
            check_compression()
        clock = self._world.clock
        deadline = clock.now() + seconds
        self._refuse()
        if not self._room.try_enter(columns.cost):
            await self._room.enter(columns.cost, seconds)
        try:
            self._refuse()
            data = self._encode(columns, compress) if columns.cost > shared.BATCH_BYTES else None
        except VarlogError:
            self._room.leave(columns.cost)
            raise
        lane = self._lane
        future = lane.new_future()
        lane.add(columns, data, compress, deadline, future)
        self._schedule()
        if deadline < self._deadlines.at:
            self._deadlines.announce(deadline, clock.now())
        return await future

    def _refuse(self) -> None:
        if self._ended is not None:
            raise again(self._ended)

    def _schedule(self) -> None:
        if not self._lane.scheduled:
            self._lane.scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._lane.scheduled = False
        self._flush()

    def _flush(self) -> None:
        """Number and send what waits, as far as the batches on their way allow it."""
        lane, segment = self._lane, self._segment
        while lane and segment is not None and not segment.closed:
            depth = FULL_IN_FLIGHT if lane.full else APPENDS_IN_FLIGHT
            if len(segment.tenure.waiting) >= depth:
                return
            taken = lane.take(SHARE_APPENDS)
            appends = taken.awaited()
            if appends is not taken:
                self._room.leave(taken.cost - appends.cost)
            if appends.futures:
                data = appends.data or self._encode(appends.columns(), appends.compress)
                segment.store(appends, appends.entries, data)

    def _encode(self, columns: Columns, compress: bool) -> bytes:
        return encode_batch(
            columns.payloads,
            keys=columns.keys,
            headers=columns.headers,
            time_us=self._world.clock.wall_us(),
            compress=compress,
        )

    def _expire(self, now: float) -> float:
        """End what is due; the earliest deadline that is left."""
        following = inf
        for appends in self._lane:
            following = min(following, appends.fail(_not_sent, now))
        for numbered in self._segment.tenure.waiting if self._segment is not None else ():
            following = min(following, numbered.batch.fail(_not_answered, now))
        return following

    # ------------------------------------------------------------ from the segment

    def committed(self, segment: LedSegment, batches: list[Numbered[Appends]]) -> None:
        for slot, _, appends in batches:
            appends.acked(Glsn(segment.base + slot), segment.stream)
            self._room.leave(appends.cost)
        if self._lane and not self._lane.scheduled:
            self._flush()

    def is_over(self) -> None:
        """What has become of the segment? The repository knows, or will soon."""
        self._over = self._segment
        if self._looking is None:
            self._looking = self._scope.spawn(self._look(), name="look for the next segment")

    async def _look(self) -> None:
        """Less and less often; also for one that begins, and is over, while it looks."""
        looks = 0
        while self._is_looked_for():
            try:
                await self._context.routes.refresh(self._timeout)
            except VarlogError:
                pass  # asked again
            if self._is_looked_for():
                await self._world.clock.sleep(pause(self._world, looks))
            looks += 1
        self._looking = None

    def _is_looked_for(self) -> bool:
        """What follows the segment; not once its end is known, and others have to take what it ends with."""
        segment = self._segment
        return segment is not None and segment is self._over and not segment.closed

    def left_behind(self, node: NodeId) -> None:
        """Ask for the next segment, in which nobody lacks anything. Appends go on meanwhile."""
        now = self._world.clock.now()
        if now - self._asked_at >= LEFT_BEHIND_SECONDS and self._segment is not None:
            self._asked_at = now
            self._scope.spawn(self._ask_for_next(), name=f"leave node {node} behind")

    async def _ask_for_next(self) -> None:
        try:
            await reconfigure_log(self._context, pb.ReconfigureLogRequest(roll=True), self._timeout)
        except VarlogError:
            pass  # the line goes on finding out that it cannot go on, and asks again

    # ------------------------------------------------------------ from the log's record

    def _changed(self) -> None:
        """The log has changed: has the segment ended, and who leads the next?"""
        info = self._context.routes.info
        if self._ended is not None:
            return
        if info is None or info.id != self._log:
            self._end(NotFound(f"log {self._context.routes.name!r} was removed"))
            return
        last = info.chain[-1]
        segment = self._segment
        if segment is not None and (ended := info.chain[segment.epoch - 1]).end:
            if not self._is_shown(segment, ended):
                self._wait_for_others(segment)
                return
            self._finish(segment, ended)
        sealed = self._context.routes.sealed
        if sealed is not None:
            self._end(sealed)
        elif not info.journal:
            self._end(Fenced(f"{info.name!r} is no journal any more: everybody may append to it", last.epoch))
        elif last.leader.id != self._id:
            self._end(Fenced(f"another has taken over {info.name!r}, under epoch {last.epoch}", last.epoch))
        elif self._segment is None:
            self._segment = LedSegment(self._context, self._log, last, self)
            self._flush()

    def _is_shown(self, segment: LedSegment, info: pb.SegmentInfo) -> bool:
        """Whether what lies before its end may be acknowledged. What was on its way then may be on one member alone."""
        [stream] = info.streams
        return (
            segment.epoch == self._shown
            or is_safe(len(stream.held_by), info.ack)
            or not segment.tenure.waits_before(Slot(info.end - info.base))
        )

    def _wait_for_others(self, segment: LedSegment) -> None:
        segment.cancel()
        if self._asking is None:
            self._asking = self._scope.spawn(self._wait_until_shown(segment), name="ask for what is shown")

    async def _wait_until_shown(self, segment: LedSegment) -> None:
        await segment.wait_until_shown()
        self._shown, self._asking = segment.epoch, None
        self._changed()

    def _finish(self, segment: LedSegment, info: pb.SegmentInfo) -> None:
        """Where it ended is known: so is what became of every append."""
        self._segment = None
        segment.cancel()
        inside, outside = segment.tenure.finish(Slot(info.end - info.base))
        for numbered in reversed(outside):
            self._lane.put_back(numbered.batch)
        self.committed(segment, inside)


def _not_sent(_: int, __: int) -> VarlogError:
    return Timeout("the append was not sent in time: too many are on their way, or nobody may be written to just now")


def _not_answered(_: int, __: int) -> VarlogError:
    return OutcomeUnknown("the append was sent, and not decided in time")
