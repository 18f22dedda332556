"""What nobody can read any more of a stream that has ended: which slots, at which positions, as exactly as is known.

Slots are exact. So are positions where a node that is here has said which, and where all positions between the
beginning and the end of the stream are its own; else they are among those between.
"""

from collections.abc import Sequence
from typing import NamedTuple

from varlog.wire.proto import varlog_pb2 as pb


class Missing(NamedTuple):
    """Slots `[slot, end)`, at positions in `[glsn, glsn_end)`; `glsn_end` 0: somewhere in the stream's."""

    slot: int
    end: int
    glsn: int = 0
    glsn_end: int = 0


def missing_ranges(end: int, serving: Sequence[pb.LogStreamUncommitReport]) -> list[Missing]:
    """What is whole on none of the replicas that are here, each of which has all slots before `end`."""
    missing = [Missing(0, end)] if end else []
    for row in serving:
        damaged = [Missing(each.slot, each.end_slot, each.glsn, each.end_glsn) for each in row.damage]
        pairs = [_both(one, other) for one in missing for other in damaged]
        missing = [each for each in pairs if each.slot < each.end]
    return missing


def _both(one: Missing, other: Missing) -> Missing:
    slot, end = max(one.slot, other.slot), min(one.end, other.end)
    if not one.glsn_end or not other.glsn_end:
        return Missing(slot, end, one.glsn or other.glsn, one.glsn_end or other.glsn_end)
    return Missing(slot, end, max(one.glsn, other.glsn), min(one.glsn_end, other.glsn_end))


def describe_missing(log: pb.LogInfo, stream: pb.StreamInfo, missing: Sequence[Missing]) -> str:
    """For people; empty if all of it is trimmed."""
    if stream.until_glsn and stream.until_glsn <= log.trimmed + 1:
        return ""
    return ", ".join(_named(log, stream, each) for each in missing)


def _named(log: pb.LogInfo, stream: pb.StreamInfo, missing: Missing) -> str:
    slots = f"slots {missing.slot} to {missing.end - 1}"
    if missing.glsn_end:
        return f"{slots} (positions {missing.glsn} to {missing.glsn_end - 1})"
    first, stop = max(stream.from_glsn, 1), stream.until_glsn
    if not stop:
        return slots
    alone = stop - first == stream.end_slot
    known = "positions" if alone else "among positions"
    trimmed = f", of which those up to {log.trimmed} are trimmed" if log.trimmed >= first else ""
    return f"{slots} ({known} {first} to {stop - 1}{trimmed})"
