"""What the repository knows of a log's archive: where it is, and up to where it holds the log (P4).

    archive     [first ............ archived)          written, verified, committed as a snapshot; then recorded
    nodes                   (trimmed ................ tail]
                            ^ what retention may give up: nothing that is not below `archived`

Whoever archives says up to where the archive was when it began. If it is elsewhere by now, nothing changes, and
it is told where: of two that archive at once one goes on from what the other has done.
"""

from urllib.parse import urlsplit

from varlog.base.errors import Conflict, InvalidArgument, Trimmed
from varlog.wire.proto import varlog_pb2 as pb

MOST_CHARACTERS = 2048
"""Of each text in the record of an archive."""


def record_archive(log: pb.LogInfo, request: pb.RecordArchiveRequest) -> None:
    """Change a log's record as asked; raises what is wrong with it, and then nothing is changed."""
    wanted = _checked(request.archive)
    if request.expected != log.archived:
        raise Conflict(
            f"log {log.name!r} is archived up to {log.archived - 1 if log.archived else 'nowhere'} by now, not "
            f"{request.expected - 1}: go on from there",
            log.archived,
        )
    if request.archived < request.expected:
        raise InvalidArgument(f"an archive that reaches up to {request.expected - 1} does not go back")
    known = (log.archive.location, log.archive.first) if log.HasField("archive") else None
    if known != (wanted.location, wanted.first):
        _check_another(log, wanted, request.archived)
    log.archive.CopyFrom(wanted)
    log.archived = request.archived


def _check_another(log: pb.LogInfo, wanted: pb.ArchiveInfo, archived: int) -> None:
    """A log's first archive, or one that follows another."""
    if log.HasField("archive") and log.archived > max(log.archive.first, log.trimmed):
        raise Conflict(
            f"the archive of log {log.name!r} is {log.archive.location}, from position {log.archive.first} on: "
            f"a log has one",
            log.archived,
        )
    if wanted.first <= log.trimmed:
        raise Trimmed(f"log {log.name!r} is trimmed up to {log.trimmed}: an archive begins later", log.trimmed + 1)
    if archived != wanted.first or wanted.metadata or wanted.first < log.archived:
        raise InvalidArgument("an archive begins with nothing in it, and not before where an earlier one ended")


def _checked(archive: pb.ArchiveInfo) -> pb.ArchiveInfo:
    for text in (archive.location, archive.metadata, archive.endpoint, archive.region):
        if len(text) > MOST_CHARACTERS:
            raise InvalidArgument(f"the record of an archive holds at most {MOST_CHARACTERS} characters of each")
        if "@" in urlsplit(text).netloc:
            raise InvalidArgument("the record of an archive holds no secrets: leave user and password out of the URL")
    if "://" not in archive.location or not archive.first:
        raise InvalidArgument(
            "an archive has a location, as in file:///folder or s3://bucket/prefix, and a first position"
        )
    return archive
