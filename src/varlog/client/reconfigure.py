"""Changing a log while it is used: what it is made of, and where its segments end."""

from collections.abc import Sequence
from typing import cast

from varlog.base.errors import Conflict, InvalidArgument
from varlog.client.bounds import check_bytes, check_count, check_milliseconds, check_names
from varlog.client.context import LogContext
from varlog.client.repository import Doubt
from varlog.core.ordering.leader import BROADCAST
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def reconfiguration(
    *,
    ordering: str | None,
    replicas: int | None,
    streams: int | None,
    ack: int | None,
    unit: int | None,
    members: Sequence[int],
    roll_bytes: int | None,
    roll_seconds: float | None,
    retain_bytes: int | None,
    retain_seconds: float | None,
    retain_archived: bool | None,
    roll: bool,
    pin: Sequence[str],
    unpin: Sequence[str],
    replication: str | None,
    journal: bool | None,
) -> pb.ReconfigureLogRequest:
    """The request for all that is given; raises `InvalidArgument` if nothing is."""
    request = pb.ReconfigureLogRequest(ordering=ordering or "", roll=roll, replication=replication or "")
    request.replicas = 0 if replicas is None else check_count(replicas, "replicas")
    request.streams = 0 if streams is None else check_count(streams, "streams")
    request.ack = 0 if ack is None else check_count(ack, "ack")
    request.unit = 0 if unit is None else check_count(unit, "unit")
    request.members.extend(check_count(node, "a node id") for node in members)
    if len(set(members)) != len(members):
        raise InvalidArgument("a member is named once")
    if roll_bytes is not None:
        request.roll_bytes = check_bytes(roll_bytes, "roll_bytes")
    if roll_seconds is not None:
        request.roll_ms = check_milliseconds(roll_seconds, "roll_seconds")
    if retain_bytes is not None:
        request.retain_bytes = check_bytes(retain_bytes, "retain_bytes")
    if retain_seconds is not None:
        request.retain_ms = check_milliseconds(retain_seconds, "retain_seconds")
    if retain_archived is not None:
        request.retain_archived = retain_archived
    if journal is not None:
        request.journal = journal
    request.pin.extend(check_names(pin, "pin"))
    request.unpin.extend(check_names(unpin, "unpin"))
    if request == pb.ReconfigureLogRequest():
        raise InvalidArgument(
            "nothing is to change: give ordering, replicas, streams, ack, unit, replication, journal, members, roll, "
            "pins or a limit"
        )
    return request


async def reconfigure_log(context: LogContext, request: pb.ReconfigureLogRequest, timeout: float) -> pb.LogInfo:
    """Have it done once, however often it has to be asked for."""
    await context.routes.refresh(timeout)
    info = await context.routes.resolve(timeout)
    request.log = info.id
    once = request.roll or bool(request.members)
    if once:
        request.epoch = info.chain[-1].epoch
    doubt = Doubt()
    try:
        answer = await context.repositories.call(
            Method.RECONFIGURE_LOG, request, timeout=timeout, changes=True, doubt=doubt
        )
    except Conflict:
        if not (once and doubt.repeated):
            raise
        # An earlier attempt was carried out, though its answer was lost; or another's was, which may be as good.
        await context.routes.refresh(timeout)
        found = await context.routes.resolve(timeout)
        if not is_done(request, found):
            raise
        return found
    changed = cast(pb.LogInfo, answer)
    context.routes.adopt(changed)
    return changed


OF_THE_SEGMENT = ("ordering", "unit", "journal")
OF_THE_LOG = ("replicas", "ack", "streams", "roll_bytes", "roll_ms", "retain_bytes", "retain_ms", "retain_archived")


def is_done(request: pb.ReconfigureLogRequest, info: pb.LogInfo) -> bool:
    """Whether what follows the segment that was to end is what was asked for, whoever had it made.

    Another may have come first: the cluster itself, when a node was lost, with the settings as they were.
    """
    made = next((segment for segment in info.chain if segment.epoch == request.epoch + 1), None)
    if made is None:
        return False
    members = [node for stream in made.streams for node in stream.members]
    asked = [field.name for field, _ in request.ListFields()]
    return (
        all(getattr(made, name) == getattr(request, name) for name in OF_THE_SEGMENT if name in asked)
        and all(getattr(info, name) == getattr(request, name) for name in OF_THE_LOG if name in asked)
        and (made.replication or BROADCAST) == (request.replication or made.replication or BROADCAST)
        and all(not request.members or node in request.members for node in members)
        and all(name in info.pinned for name in request.pin)
        and not any(name in info.pinned for name in request.unpin)
    )
