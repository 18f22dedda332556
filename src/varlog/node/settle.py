"""Settles a sealed replica whose positions follow from its slots: complete to the end, all of it bound.

What is missing before the end is taken from the other members. Slots before the end that nobody had when the segment
was sealed are named (`junk`), and filled: by then it is recorded that they are nobody's. All others some sealed
member has. If that one is away, the replica waits. One that is so far behind that the others have trimmed what it
lacks gives up, and is copied as a whole; so does one that has something where junk was decided without it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from varlog.base.errors import InvalidArgument, Taken, Trimmed, Unavailable, VarlogError
from varlog.base.ids import FIRST_GLSN, Glsn, NodeId, Slot
from varlog.base.limits import BATCH_ENTRIES
from varlog.core.ordering.sequencer import Stripes
from varlog.core.replica import ReplicaState
from varlog.node.catch_up import catch_up
from varlog.node.copier import Connect
from varlog.node.replica import Replica
from varlog.transport.peer import Peer
from varlog.wire.batch import check_batch, junk_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

TAIL_TIMEOUT_S = 1.5
"""For a member to say how far it is. One that is silent must not take all the time that there is to ask the others."""

MOST_PIECES = 4096
"""Of junk, staged at once."""


async def settle(
    replica: Replica,
    base: Glsn,
    end: Slot,
    junk: Slot | None,
    sources: Sequence[NodeId],
    connect: Connect,
    *,
    take: bool,
) -> None:
    """On return the replica has and has bound all slots before `end`, and can be finished there.

    With `take` it has what others had, and has bound none of it: others are to have that, too, before it is shown.
    """
    if replica.state is ReplicaState.FINISHED:
        return
    if replica.state is ReplicaState.OPEN:
        raise InvalidArgument(f"{replica.id} must be sealed before it is settled")
    await replica.flush()
    await _take_what_is_missing(replica, end if junk is None else junk, sources, connect)
    if take:
        return
    if junk is not None:
        await _fill(replica, junk, end)
    replica.release(base, end)


async def _take_what_is_missing(replica: Replica, end: Slot, sources: Sequence[NodeId], connect: Connect) -> None:
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


async def _fill(replica: Replica, start: Slot, end: Slot) -> None:
    """Junk, piece by piece. What an earlier try has filled is found to be the same."""
    pieces = _pieces(replica.spec, start, end)
    try:
        while some := list(islice(pieces, MOST_PIECES)):
            batches = [junk_batch(count) for _, count in some]
            await replica.store(some[0][0], [(batch, check_batch(batch)) for batch in batches], settle=True)
    except Taken as error:
        why = f"it has slots from {start} on, which were given up without it"
        if replica.log.committed <= start:
            replica.give_up(why)
        else:
            replica.fail(Unavailable(why))
        raise Unavailable(f"{replica.id} is to be copied anew") from error


def _pieces(spec: pb.ReplicaSpec, start: Slot, end: Slot) -> Iterator[tuple[Slot, int]]:
    """Where batches of junk are to lie, and of how many slots each: no larger than a batch may be, nor a stretch of
    positions that follow each other."""
    for stretch in Stripes(FIRST_GLSN, spec.unit, spec.streams).bindings(spec.index, start, end):
        for slot in range(stretch.slot, stretch.slot_end, BATCH_ENTRIES):
            yield Slot(slot), min(BATCH_ENTRIES, stretch.slot_end - slot)


async def _tail(replica: Replica, peer: Peer) -> Slot:
    """How far another member is."""
    name = replica.id
    request = pb.SealRequest(replica=pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream))
    status = (await peer.call(Method.SEAL, request, timeout=TAIL_TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return Slot(status.contiguous)
