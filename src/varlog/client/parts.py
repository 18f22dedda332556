"""What a READ brings: runs of stored records and the bindings of their slots, as batches with positions."""

from typing import NamedTuple

from varlog.base.errors import Corrupt
from varlog.base.ids import Glsn, Slot
from varlog.wire.batch import Batch
from varlog.wire.frame import Buffer
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

_BATCH = int(RecordKind.BATCH)


class Placed(NamedTuple):
    """A batch, its first slot and its first position."""

    batch: Batch
    slot: Slot
    glsn: Glsn


def placed_batches(part: pb.ReadPart, body: Buffer) -> list[Placed]:
    """All batches of a part, each checked against its checksum and found in the bindings."""
    found: list[Placed] = []
    view = memoryview(body)
    bindings = [(each.slot, each.slot + each.count, each.glsn - each.slot) for each in part.bindings]
    at = 0
    for record in walk_records(view):
        if record.kind != _BATCH:
            continue
        batch = Batch(view[record.body : record.body + record.length])
        slot, end = record.slot, record.slot + len(batch)
        while at < len(bindings) and bindings[at][1] <= slot:
            at += 1
        if at == len(bindings) or not bindings[at][0] <= slot < end <= bindings[at][1]:
            raise Corrupt(f"a batch of slots {slot} to {end - 1} came without its positions", slot)
        found.append(Placed(batch, Slot(slot), Glsn(slot + bindings[at][2])))
    return found
