"""Telling the repository how far a log is archived."""

from typing import cast

from varlog.base.errors import Conflict, InvalidArgument
from varlog.client.bounds import check_position
from varlog.client.context import LogContext
from varlog.client.describe import ArchiveDescription
from varlog.client.repository import Doubt
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


async def record_archive(context: LogContext, archive: ArchiveDescription, expected: int, timeout: float) -> pb.LogInfo:
    """Move the end of the archive from `expected` to where it is now; `Conflict` has where it is instead."""
    info = await context.routes.resolve(timeout)
    request = _request(archive, expected)
    request.log = info.id
    doubt = Doubt()
    try:
        answer = await context.repositories.call(
            Method.RECORD_ARCHIVE, request, timeout=timeout, changes=True, doubt=doubt
        )
    except Conflict:
        if not doubt.repeated:
            raise
        # An earlier attempt may have been carried out, though its answer was lost.
        await context.routes.refresh(timeout)
        found = await context.routes.resolve(timeout)
        if (found.archive, found.archived) != (request.archive, request.archived):
            raise
        return found
    recorded = cast(pb.LogInfo, answer)
    context.routes.adopt(recorded)
    return recorded


def _request(archive: ArchiveDescription, expected: int) -> pb.RecordArchiveRequest:
    if not isinstance(archive, ArchiveDescription):
        raise InvalidArgument(f"an archive is told of by an ArchiveDescription, not {type(archive).__name__}")
    return pb.RecordArchiveRequest(
        archive=pb.ArchiveInfo(
            location=archive.location,
            metadata=archive.metadata,
            endpoint=archive.endpoint,
            region=archive.region,
            first=check_position(archive.first, "first"),
        ),
        expected=check_position(expected, "expected", 0),
        archived=check_position(archive.stop, "stop"),
    )
