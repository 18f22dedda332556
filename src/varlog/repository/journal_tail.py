"""How far a journal is committed, asked of its members: its leader is a client, whom nobody can ask.

What W members have is committed, and what one was told to be (`core.ordering.tail`). That no other segment has
followed the repository knows by itself, so that as many members are enough as a seal needs.
"""

from functools import partial

from varlog.base.errors import Timeout, Unavailable
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.leader import seal_quorum
from varlog.core.ordering.tail import JournalTail, Word
from varlog.ports import Clock
from varlog.repository.links import NodeLinks
from varlog.runtime.polling import Heard, poll
from varlog.runtime.timeout import within
from varlog.wire.proto import varlog_pb2 as pb

PATIENCE_S = 1.5
"""How long members are asked again. Who wants to know asks again, too."""


async def journal_tail(links: NodeLinks, clock: Clock, log: pb.LogInfo) -> Glsn:
    """One past its last position, as fresh as this call; `Unavailable` if too few members answer, or are open."""
    segment = log.chain[-1]
    [stream] = segment.streams
    name = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
    quorum = seal_quorum(len(stream.members), segment.ack)
    tail = JournalTail(Glsn(segment.base), len(stream.members), segment.ack, quorum)

    async def ask(member: int) -> Heard:
        status = await links.status(NodeId(stream.members[member]), name)
        if status.state == pb.REPLICA_OPEN:
            tail.heard(member, Word(Slot(status.contiguous), Slot(status.committed)))
        else:
            tail.out(member)
        if tail.is_over or tail.end is not None:
            return Heard.ENOUGH
        return Heard.AGAIN if tail.may_say_more(member) else Heard.ALL

    try:
        await within(
            clock, PATIENCE_S, poll(clock, [partial(ask, member) for member in range(tail.members)], f"tail of {name}")
        )
    except Timeout:
        raise Unavailable("too few members answer, or one that does not may have more than the others") from None
    if tail.is_over or tail.end is None:
        raise Unavailable(f"fewer than {quorum} of its {len(stream.members)} members are open")
    return tail.end
