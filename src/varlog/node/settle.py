"""Settles a sealed replica whose positions follow from its slots: complete to the end, all of it bound.

What is missing before the end is taken from the other members. A slot before the end that nobody has cannot be:
the end was chosen so that some sealed member has everything before it. If that one is away, the replica waits. One
that is so far behind that the others have trimmed what it lacks gives up, and is copied as a whole.
"""

from collections.abc import Sequence

from varlog.base.errors import InvalidArgument, Trimmed, Unavailable, VarlogError
from varlog.base.ids import Glsn, NodeId, Slot
from varlog.core.replica import ReplicaState
from varlog.node.catch_up import READ_TIMEOUT_S, catch_up
from varlog.node.copier import Connect
from varlog.node.replica import Replica
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def settle(replica: Replica, base: Glsn, end: Slot, sources: Sequence[NodeId], connect: Connect) -> None:
    """On return the replica has and has bound all slots before `end`, and can be finished there."""
    if replica.state is ReplicaState.FINISHED:
        return
    if replica.state is ReplicaState.OPEN:
        raise InvalidArgument(f"{replica.id} must be sealed before it is settled")
    await replica.flush()
    why = "it was given no other members to ask"
    trimmed: Trimmed | None = None
    for source in sources:
        if replica.log.durable >= end:
            break
        try:
            peer = await connect(source)
            await catch_up(replica, peer, min(end, await _tail(replica, peer)), settle=True)
        except Trimmed as error:
            trimmed = error
        except VarlogError as error:
            why = f"node {source}: {error.message}"
    if replica.log.durable < end and trimmed is not None:
        # What it lacks is gone for good, and was to go. It cannot be made whole slot by slot, only copied anew.
        replica.fail(Unavailable(f"it lacks slots from {replica.log.durable} on, which the others have trimmed"))
    if replica.log.durable < end:
        raise Unavailable(f"{replica.id} lacks slots {replica.log.durable} to {end - 1}: {why}")
    replica.release(base, end)


async def _tail(replica: Replica, peer: Peer) -> Slot:
    """How far another member is."""
    name = replica.id
    request = pb.SealRequest(replica=pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream))
    status = (await peer.call(Method.SEAL, request, timeout=READ_TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return Slot(status.contiguous)
