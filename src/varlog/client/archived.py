"""The seam between a log's nodes and its archive: which of the two has a position, and reading what the archive has.

    archive    [first ................. archived)
    nodes                  (trimmed ..................... tail]
                            ^ whoever reads on from here finds both, and goes over to the nodes

What nodes have given up is looked for in the archive, by the log's record as of now: retention trims nothing that is
not on record, so a record that is asked for after a node said "trimmed" knows of everything it gave up.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from varlog.base.errors import Corrupt, Junk, Trimmed
from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client.context import LogContext
from varlog.client.entry import Entry, ReadBatch
from varlog.ports.archive import ArchivedBatch
from varlog.runtime.timeout import within
from varlog.wire.proto import varlog_pb2 as pb


def covers(info: pb.LogInfo, glsn: int) -> bool:
    """Whether the archive has a position."""
    return info.HasField("archive") and info.archive.first <= glsn < info.archived


def earliest(info: pb.LogInfo, trimmed: int) -> Glsn:
    """The first position from which the log can be read without a gap."""
    return Glsn(info.archive.first if covers(info, trimmed) else trimmed + 1)


async def archived_at(context: LogContext, glsn: int, left: int, timeout: float) -> pb.LogInfo:
    """The log's record, if its archive has a position that the nodes have given up; else raises `Trimmed`.

    `left` is the first position that they have not, as far as they have told.
    """
    info = await context.routes.resolve(timeout)
    if not covers(info, glsn):
        await context.routes.refresh(timeout)
        info = await context.routes.resolve(timeout)
    if covers(info, glsn):
        return info
    first = earliest(info, info.trimmed)
    if glsn >= first:  # we know less than the nodes, or an archive that was given up lies before it
        first = Glsn(max(info.trimmed + 1, left))
    raise Trimmed(f"log {info.name!r} is trimmed up to {first - 1}", first)


def archive_end(info: pb.LogInfo, start: int, stop: int | None) -> Glsn:
    """Up to where to read from the archive: the nodes go on behind the trim point."""
    end = info.archived if info.trimmed < start else min(info.archived, info.trimmed + 1)
    return Glsn(end if stop is None else min(end, stop))


async def archived_runs(
    context: LogContext, info: pb.LogInfo, start: Glsn, stop: Glsn, stream: StreamId | None
) -> AsyncGenerator[list[ReadBatch], None]:
    """Positions `[start, stop)`, all of which the archive has."""
    at = start
    async with aclosing(context.archives.batches(info, start, stop, stream)) as batches:
        async for run in batches:
            cut = [_cut(batch, start, stop) for batch in run]
            for batch in cut:
                if batch.first < at or (stream is None and batch.first > at):
                    raise Corrupt(f"the archive of log {info.name!r} shows {batch.first} where {at} comes next")
                at = Glsn(batch.last + 1)
            yield cut
    if stream is None and at < stop:
        raise Corrupt(f"the archive of log {info.name!r} ends before {at}, though {stop - 1} is archived")


def _cut(archived: ArchivedBatch, start: int, stop: int) -> ReadBatch:
    low, high = max(0, start - archived.glsn), min(len(archived.batch), stop - archived.glsn)
    first, slot = Glsn(archived.glsn + low), Slot(archived.slot + low)
    return ReadBatch(archived.batch, first, archived.stream, slot, low, high)


async def archived_entry(context: LogContext, glsn: Glsn, left: int, timeout: float) -> Entry:
    """The entry at a position that the nodes have given up."""
    info = await archived_at(context, glsn, left, timeout)
    return await within(context.world.clock, timeout, _entry(context, info, glsn))


async def _entry(context: LogContext, info: pb.LogInfo, glsn: Glsn) -> Entry:
    async with aclosing(archived_runs(context, info, glsn, Glsn(glsn + 1), None)) as runs:
        async for run in runs:
            if run[0].junk:
                raise Junk(f"position {glsn} was given up: it holds no entry, and never will", glsn)
            return run[0].entries()[0]
    raise Corrupt(f"the archive of log {info.name!r} has nothing at {glsn}")


async def archive_behind(context: LogContext, trimmed: int, timeout: float) -> pb.LogInfo | None:
    """The log's record, if its archive has what lies at and below a trim point."""
    if not trimmed:
        return None
    info = await context.routes.resolve(timeout)
    if not covers(info, trimmed):
        await context.routes.refresh(timeout)
        info = await context.routes.resolve(timeout)
    return info if covers(info, trimmed) else None


async def archived_time(context: LogContext, info: pb.LogInfo, time_us: int, timeout: float) -> Glsn | None:
    """The first position of the archive at or after a time."""
    return await within(context.world.clock, timeout, context.archives.find(info, time_us))
