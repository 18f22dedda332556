"""How far a journal is committed, asked of its members: its leader is a client, whom nobody can ask.

What W members have is committed, and what one was told to be. A member that stays silent may be one of the W that
something was acknowledged by: then all are asked again until as much is committed as may have been acknowledged at
first (I10).
"""

import asyncio

from varlog.base.errors import Unavailable, VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.leader import seal_quorum, tail_between
from varlog.ports import Clock
from varlog.repository.links import NodeLinks
from varlog.runtime.timeout import within
from varlog.wire.proto import varlog_pb2 as pb

ASK_S = 0.3
"""So long a member is waited for."""
PAUSE_S = 0.005
"""After the first round; a member that is on its way answers in the next."""
LONGEST_PAUSE_S = 0.1
"""Between later ones: one that is away stays so for longer, and all who want to know ask for themselves."""
ROUNDS = 20


async def journal_tail(links: NodeLinks, clock: Clock, log: pb.LogInfo) -> Slot:
    """Of the last segment, as fresh as this call; `Unavailable` if too few members answer, or are open."""
    segment = log.chain[-1]
    stream = segment.streams[0]
    name = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
    wanted: Slot | None = None
    pause = PAUSE_S
    for _ in range(ROUNDS):
        found = await asyncio.gather(*(_ask(links, clock, NodeId(node), name) for node in stream.members))
        told = [status for status in found if status is not None]
        tails = [Slot(status.contiguous) for status in told]
        if len(tails) < seal_quorum(len(stream.members), segment.ack):
            raise Unavailable(f"{len(tails)} of its {len(stream.members)} members answer, and are open")
        least, most = tail_between(tails, len(stream.members), segment.ack)
        least = max(least, *(Slot(status.committed) for status in told))
        wanted = most if wanted is None else wanted
        if least >= wanted:
            return least
        await clock.sleep(pause)
        pause = min(LONGEST_PAUSE_S, 2 * pause)
    raise Unavailable("a member that does not answer may have more than the others")


async def _ask(links: NodeLinks, clock: Clock, node: NodeId, name: ReplicaId) -> pb.ReplicaStatus | None:
    """How far an open member is; None if it is not, or does not answer."""
    try:
        status = await within(clock, ASK_S, links.status(node, name))
    except VarlogError:
        return None
    return status if status.state == pb.REPLICA_OPEN else None
