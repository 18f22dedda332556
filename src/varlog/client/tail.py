"""How far a log is, as fresh as the call (I10), with no repository where the members number the last segment.

cut                    the repository is asked: nobody else knows what is committed
leader, sequencer      the members are asked (`core.ordering.tail`). Where they do not show it, as the segment is
                       ending or too many are away, the repository is, which knows what follows, or will soon
"""

from functools import partial
from typing import cast

from varlog.base.errors import Unavailable, VarlogError
from varlog.base.ids import Glsn, NodeId, Slot
from varlog.client.chain import Over
from varlog.client.context import LogContext
from varlog.client.limits import ATTEMPT_SECONDS, MEMBERS_TAIL_SECONDS, STORE_SECONDS
from varlog.client.questions import ask_by_id, ask_tail, complete_last_segment, last_segment
from varlog.core.ordering.tail import JournalTail, NumberedTail, Tail, Word, open_enough
from varlog.runtime.polling import Heard, poll
from varlog.runtime.timeout import within
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def fresh_tail(context: LogContext, timeout: float) -> Glsn:
    """The last committed position; 0 if there is none."""
    clock = context.world.clock
    deadline = clock.now() + timeout
    info = await context.routes.resolve(timeout)
    if not info.sealed and info.chain[-1].ordering != "cut":
        last = last_segment(context)
        try:
            end = await within(clock, min(timeout, MEMBERS_TAIL_SECONDS), _ask_members(context, info))
            await within(clock, max(0.0, deadline - clock.now()), complete_last_segment(context, end))
            if last_segment(context) == last:
                return Glsn(end - 1)
        except (Over, VarlogError):
            pass
    return Glsn((await ask_tail(context, max(0.001, deadline - clock.now()))).tail)


async def is_last_segment(context: LogContext, epoch: int) -> bool:
    """Whether it was certain a moment ago that no other segment had followed this one, nor the log been sealed."""
    info = context.routes.info
    if info is None or info.sealed or len(info.chain) != epoch:
        return False
    try:
        await within(context.world.clock, MEMBERS_TAIL_SECONDS, _ask_members(context, info))
    except VarlogError:
        answer = await ask_by_id(context, Method.TAIL, lambda log: pb.TailRequest(log=log), ATTEMPT_SECONDS)
        return cast(pb.TailReply, answer).segment == epoch and last_segment(context) == (epoch, False)
    return True


async def _ask_members(context: LogContext, info: pb.LogInfo) -> Glsn:
    """One past the last position of the last segment, as it is known here; `Unavailable` if they do not show it."""
    segment = info.chain[-1]
    stream = segment.streams[0]
    name = pb.ReplicaId(log=info.id, segment=segment.epoch, stream=stream.id)
    tail = _question(segment, len(stream.members))

    async def ask(member: int) -> Heard:
        place = context.routes.place(NodeId(stream.members[member]))
        peer = context.pool.connected(place) or await context.pool.get(place)
        # Who numbers entries is asked as the repository asks him: one that was started since then refuses.
        numbers = not member and not segment.journal
        request = pb.LeadRequest(replica=name, base=segment.base if numbers else 0)
        status = (await peer.call(Method.LEAD, request, timeout=STORE_SECONDS)).message
        if status.state == pb.REPLICA_OPEN:
            numbered = Glsn(status.granted or segment.base + status.committed)
            tail.heard(member, Word(Slot(status.contiguous), Slot(status.committed), numbered))
        else:
            tail.out(member)
        if tail.is_over or tail.end is not None:
            return Heard.ENOUGH
        return Heard.AGAIN if tail.may_say_more(member) else Heard.ALL

    await poll(context.world.clock, [partial(ask, member) for member in range(tail.members)], f"tail of {info.name}")
    if tail.is_over or tail.end is None:
        raise Unavailable("too few members of its last segment are open")
    return tail.end


def _question(segment: pb.SegmentInfo, members: int) -> Tail:
    enough = open_enough(members, segment.ack)
    if segment.journal:
        return JournalTail(Glsn(segment.base), members, segment.ack, enough)
    return NumberedTail(members, enough)
