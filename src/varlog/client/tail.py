"""How far a log is, as fresh as the call (I10), with no repository where the members number the last segment.

cut                    the repository is asked: nobody else knows what is committed
leader, sequencer      the members are asked (`core.ordering.tail`), and beside them, if they do not show it at once,
                       the repository, which knows what follows, or will soon. The first good answer is taken: it
                       matters little that members are slow or away, or the repository is, while the others are not

Callers share the questions (`together`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from varlog.base.errors import Timeout, Unavailable, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, Slot
from varlog.client.chain import Over
from varlog.client.context import LogContext
from varlog.client.limits import (
    ATTEMPT_SECONDS,
    FIRST_PAUSE_AT_END_SECONDS,
    MEMBERS_FIRST_SECONDS,
    SHORTEST_ATTEMPT_SECONDS,
    STORE_SECONDS,
)
from varlog.client.questions import LastSegment, ask_by_id, ask_tail, complete_last_segment, last_segment
from varlog.client.repository import pause
from varlog.core.ordering.tail import JournalTail, NumberedTail, Tail, Word, open_enough
from varlog.runtime.polling import Heard, poll
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def fresh_tail(context: LogContext, timeout: float) -> Glsn:
    """The last committed position; 0 if there is none."""
    return await context.tails.ask(partial(_fresh_tail, context), timeout)


async def _fresh_tail(context: LogContext, timeout: float) -> Glsn:
    clock = context.world.clock
    deadline = clock.now() + timeout
    info = await context.routes.resolve(timeout)
    if not info.sealed and info.chain[-1].ordering != "cut":
        last = last_segment(context)
        found = await _Question(context, info, partial(ask_tail, context), deadline).first_answer()
        if isinstance(found, pb.TailReply):
            return Glsn(found.tail)
        try:
            await within(clock, max(0.0, deadline - clock.now()), complete_last_segment(context, last, found))
            if last_segment(context) == last:
                return Glsn(found - 1)
            raise Over
        except Timeout:
            raise
        except (Over, VarlogError):
            return await _ask_what_follows(context, deadline)
    return Glsn((await ask_tail(context, max(0.001, deadline - clock.now()))).tail)


async def _ask_what_follows(context: LogContext, deadline: float) -> Glsn:
    """Of a segment that has just ended: while its end is not on record the repository cannot tell either."""
    clock = context.world.clock
    failures = 0
    while True:
        try:
            return Glsn((await ask_tail(context, max(0.001, deadline - clock.now()))).tail)
        except VarlogError as error:
            left = deadline - clock.now()
            if not error.retryable or left <= SHORTEST_ATTEMPT_SECONDS:
                raise
            failures += 1
            await clock.sleep(min(left, pause(context.world, failures, FIRST_PAUSE_AT_END_SECONDS)))


async def is_last_segment(context: LogContext, log: LogId, epoch: Epoch) -> bool:
    """Whether it was certain a moment ago that no other segment had followed this one, nor the log been sealed."""
    info = context.routes.info
    this = LastSegment(log, epoch, sealed=False)
    if info is None or last_segment(context) != this:
        return False

    async def ask_repository(timeout: float) -> pb.TailReply:
        answer = await ask_by_id(context, Method.TAIL, lambda log: pb.TailRequest(log=log), timeout)
        return cast(pb.TailReply, answer)

    deadline = context.world.clock.now() + ATTEMPT_SECONDS
    found = await _Question(context, info, ask_repository, deadline).first_answer()
    if not isinstance(found, pb.TailReply):
        return True
    return found.segment == epoch and not found.sealed and last_segment(context) == this


class _Question:
    """For the tail: members of the last segment, as it is known here, are asked, and after a moment the repository."""

    def __init__(
        self,
        context: LogContext,
        info: pb.LogInfo,
        repository: Callable[[float], Awaitable[pb.TailReply]],
        deadline: float,
    ) -> None:
        """`repository` asks it, for so many seconds at most."""
        self._context = context
        self._clock = context.world.clock
        self._info = info
        self._segment = info.chain[-1]
        self._stream = self._segment.streams[0]
        self._tail = _tail_of(self._segment, len(self._stream.members))
        self._in_vain = asyncio.Event()
        """Too few members are open: only the repository is left."""
        self._repository = repository
        self._reply: pb.TailReply | None = None
        self._error: VarlogError = Unavailable("too few members of its last segment are open")
        self._deadline = deadline

    async def first_answer(self) -> Glsn | pb.TailReply:
        """Of members: one past the last position; or else that of the repository. Raises why it has none."""
        members = [partial(self._ask_member, member) for member in range(self._tail.members)]
        await poll(self._clock, [*members, self._ask_repository], f"tail of {self._info.name}")
        if self._tail.end is not None:
            return self._tail.end
        if self._reply is None:
            raise self._error
        return self._reply

    async def _ask_member(self, member: int) -> Heard:
        segment, stream = self._segment, self._stream
        place = self._context.routes.place(NodeId(stream.members[member]))
        peer = self._context.pool.connected(place) or await self._context.pool.get(place)
        # Who numbers entries is asked as the repository asks him: one that was started since then refuses.
        numbers = not member and not segment.journal
        name = pb.ReplicaId(log=self._info.id, segment=segment.epoch, stream=stream.id)
        request = pb.LeadRequest(replica=name, base=segment.base if numbers else 0)
        status = (await peer.call(Method.LEAD, request, timeout=STORE_SECONDS)).message
        if status.state == pb.REPLICA_OPEN:
            numbered = Glsn(status.granted or segment.base + status.committed)
            self._tail.heard(member, Word(Slot(status.contiguous), Slot(status.committed), numbered))
        else:
            self._tail.out(member)
        if self._tail.end is not None:
            return Heard.ENOUGH
        if self._tail.is_over:
            self._in_vain.set()
            return Heard.ALL
        return Heard.AGAIN if self._tail.may_say_more(member) else Heard.ALL

    async def _ask_repository(self) -> Heard:
        try:
            await within(self._clock, min(MEMBERS_FIRST_SECONDS, self._left / 2), self._in_vain.wait())
        except Timeout:
            pass  # they have not said so
        try:
            self._reply = await self._repository(self._left)
        except VarlogError as error:
            self._error = error
            if error.retryable and self._left > SHORTEST_ATTEMPT_SECONDS:
                return Heard.AGAIN  # until then members may answer, or it may know what follows
        return Heard.ENOUGH

    @property
    def _left(self) -> float:
        return max(SHORTEST_ATTEMPT_SECONDS, self._deadline - self._clock.now())


def _tail_of(segment: pb.SegmentInfo, members: int) -> Tail:
    if segment.journal:
        return JournalTail(Glsn(segment.base), members, segment.ack, open_enough(members, segment.ack))
    return NumberedTail(members, segment.ack)
