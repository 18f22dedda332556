"""Takes from another member what this replica lacks of a stream: all members have beginnings of the same one."""

from varlog.base.errors import Corrupt
from varlog.base.ids import Slot
from varlog.node.replica import Replica
from varlog.transport.peer import Peer
from varlog.wire.batch import check_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

READ_TIMEOUT_S = 5.0


async def catch_up(replica: Replica, peer: Peer, end: Slot, *, settle: bool) -> None:
    """Take everything before `end` that a member is said to have, and that is missing here."""
    while replica.log.appended < end:
        start = replica.log.appended
        await _read(replica, peer, start, end, settle=settle)
        if replica.log.appended <= start:
            raise Corrupt(f"{peer.remote} said it had more than slot {start} of {replica.id}, and gave nothing")


async def _read(replica: Replica, peer: Peer, start: Slot, end: Slot, *, settle: bool) -> None:
    name = replica.id
    request = pb.ReadRequest(log=name.log, segment=name.segment, stream=name.stream, slot=start, stored=True)
    async with peer.stream(Method.READ, request, timeout=READ_TIMEOUT_S) as parts:
        async for part in parts:
            slot = first = Slot(part.message.slot)
            batches = []
            for batch in batches_in(part.body):
                header = check_batch(batch)
                if slot < end:
                    batches.append((batch, header))
                slot = Slot(slot + header.count)
            if batches:
                await replica.store(first, batches, settle=settle)
            if slot >= end:
                return
