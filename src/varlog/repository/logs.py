"""Making, changing, sealing and removing logs: what operators and clients ask for (M7, W13)."""

from dataclasses import replace

from varlog.base.errors import AlreadyExists, Conflict, InvalidArgument, Sealed, Unsupported
from varlog.base.ids import FIRST_EPOCH, FIRST_GLSN, LogId, NodeId
from varlog.base.limits import BATCH_ENTRIES
from varlog.base.names import check_name
from varlog.core.ordering.leader import BROADCAST, CHAIN, default_ack
from varlog.core.ordering.sequencer import DEFAULT_UNIT
from varlog.core.placement import place_streams
from varlog.core.policy import all_acknowledge
from varlog.ports import Clock
from varlog.repository.catalog import REFUSED, Catalog
from varlog.repository.changes import Changes
from varlog.repository.coming import NEW_LOG
from varlog.repository.copies import members_for
from varlog.repository.links import NodeLinks
from varlog.repository.opening import candidates, open_replicas
from varlog.repository.orderer import Orderer
from varlog.repository.pins import checked_pins, pinned_after, refuse_loss
from varlog.repository.reconfigure import (
    Note,
    Reconfigurer,
    Settings,
    nothing,
    open_streams,
    settings_of,
)
from varlog.transport.peer import Request
from varlog.wire.proto import varlog_pb2 as pb

ORDERINGS = ("cut", "leader", "sequencer")
MOST_REPLICAS = 16
MOST_STREAMS = 1024
LEAST = {"roll_bytes": 1 << 20, "roll_ms": 1000, "retain_bytes": 1 << 16, "retain_ms": 1000}
"""Every segment costs files on its nodes and a line in the log's record, and every trim a change of that record: not
one for every few entries."""
LIMITS = (*LEAST, "retain_archived")


class Logs:
    """Handlers that change the set of logs, and what each is made of."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        orderer: Orderer,
        links: NodeLinks,
        reconfigurer: Reconfigurer,
        changes: Changes,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._reconfigurer = reconfigurer
        self._changes = changes

    # ------------------------------------------------------------ making

    async def create(self, request: Request) -> None:
        """Place the streams, open every replica, then let the log exist (W13, M7)."""
        message: pb.CreateLogRequest = request.message
        check_name(message.name)
        limits = _checked_limits(pb.LogInfo(), message)
        replication = message.replication or BROADCAST
        wanted = _checked(
            Settings(
                message.ordering,
                message.replicas,
                message.ack,
                message.streams,
                message.unit,
                replication,
                message.journal,
            )
        )
        refuse_loss(checked_pins(message.pin), wanted.ordering, wanted.streams, journal=wanted.journal)
        if any(log.name == message.name for log in self._catalog.logs.values()):
            raise AlreadyExists(f"a log named {message.name!r} exists")
        granting = wanted.ordering == "sequencer"
        free = candidates(self._catalog, self._links)
        placed = place_streams(wanted.streams, wanted.replicas, free, granting=granting)
        nodes = sorted({node for members in placed for node in members})
        with self._catalog.coming.counted(NEW_LOG, placed, journal=message.journal, granting=granting):
            number = await self._catalog.reserve_log(nodes)
            self._links.creating[number] = None
            try:
                log = self._new_log(number, message, wanted, placed)
                log.MergeFrom(limits)
                await open_replicas(self._links, log, log.chain[0], log.chain[0].streams)
                await self._catalog.add_log(log)
                self._orderer.add(log)
            finally:
                del self._links.creating[number]
        self._links.begin_to_lead(number)
        request.reply(self._catalog.served(log))

    def _new_log(
        self, number: LogId, message: pb.CreateLogRequest, wanted: Settings, placed: list[tuple[NodeId, ...]]
    ) -> pb.LogInfo:
        now = self._clock.wall_us()
        segment = pb.SegmentInfo(
            epoch=FIRST_EPOCH,
            ordering=wanted.ordering,
            base=FIRST_GLSN,
            replicas=wanted.replicas,
            ack=wanted.replicas if all_acknowledge(wanted.ordering, wanted.replication) else wanted.ack,
            unit=wanted.unit,
            replication=wanted.replication,
            journal=wanted.journal,
            streams=[
                pb.StreamInfo(id=index, members=members, from_glsn=FIRST_GLSN)
                for index, members in enumerate(placed, 1)
            ],
            created_us=now,
        )
        return pb.LogInfo(
            id=number,
            name=message.name,
            ordering=wanted.ordering,
            replicas=wanted.replicas,
            ack=wanted.ack,
            streams=wanted.streams,
            unit=wanted.unit,
            next_stream=wanted.streams + 1,
            journal=wanted.journal,
            pinned=checked_pins(message.pin),
            replication=wanted.replication,
            chain=[segment],
            created_us=now,
        )

    # ------------------------------------------------------------ changing

    async def reconfigure(self, request: Request) -> None:
        """Another replication, other members, more or fewer streams, other limits; live."""
        message: pb.ReconfigureLogRequest = request.message
        number = LogId(message.log)
        async with self._changes.of(number):
            log = self._catalog.log(number)
            asked = [field.name for field, _ in message.ListFields() if field.name not in ("log", "epoch")]
            if log.sealed and any(not name.startswith("retain_") for name in asked):
                raise Sealed(
                    f"log {log.name!r} is sealed: only what it keeps can be changed (retain_seconds, retain_bytes)",
                    log.chain[-1].end,
                )
            if message.epoch and message.epoch != log.chain[-1].epoch:
                raise Conflict(f"the last segment of log {log.name!r} is {log.chain[-1].epoch} by now")
            wanted = _checked(_wanted(log, message))
            pinned = pinned_after(log, message)
            refuse_loss(pinned, wanted.ordering, wanted.streams, journal=wanted.journal)
            note = _note(log, message, pinned)
            reshaped = any(name not in LIMITS for name in asked) and await self._reshape(log, wanted, message, note)
            if note is not nothing and not reshaped:
                await self._catalog.change_log(number, note)
        request.reply(self._catalog.served(self._catalog.log(number)))

    async def _reshape(self, log: pb.LogInfo, wanted: Settings, message: pb.ReconfigureLogRequest, note: Note) -> bool:
        """Whether anything had to be; the note is then in the record, too."""
        number = LogId(log.id)
        if message.roll or message.members or _needs_segment(log, wanted, message):
            nodes = [NodeId(node) for node in message.members]
            members = self._members(log, wanted, message)
            await self._reconfigurer.next_segment(number, wanted, nodes, members=members, also=note)
            return True
        there = open_streams(log)
        if not message.streams or wanted.streams == log.streams == len(there):
            return False

        def change(changed: pb.LogInfo) -> None:
            note(changed)
            changed.streams = wanted.streams

        # The newest go first; the others never stop.
        members = self._members(log, wanted, message)
        await self._reconfigurer.replace(
            number, there[wanted.streams :], max(0, wanted.streams - len(there)), members=members, also=change
        )
        return True

    def _members(self, log: pb.LogInfo, wanted: Settings, message: pb.ReconfigureLogRequest) -> int:
        """Of what comes next. As many as were asked for; who did not name a number makes do with those there can be."""
        if message.replicas or message.members:
            return wanted.replicas
        return members_for(self._catalog, self._links, LogId(log.id), wanted, urgent=False)

    async def seal(self, request: Request) -> None:
        """The log ends at its last position, and stays readable."""
        number = LogId(request.message.log)
        async with self._changes.of(number):
            log = self._catalog.log(number)
            if not log.sealed:
                log = await self._reconfigurer.seal(number)
        request.reply(self._catalog.served(log))

    async def remove(self, request: Request) -> None:
        number = LogId(self._catalog.log_named(request.message.name).id)
        async with self._changes.of(number):
            log = self._catalog.log(number)  # that one, though another may have its name by now
            try:
                await self._orderer.close(number)
                await self._catalog.remove_log(log)
            except REFUSED:
                # After any other error the store may have the change: then no cut may be made in this life.
                self._orderer.reopen(number)
                raise
            self._orderer.remove(number)
        self._links.mend_all(number)
        request.reply(pb.Empty())


def _note(log: pb.LogInfo, message: pb.ReconfigureLogRequest, pinned: list[str]) -> Note:
    """The change of what is no matter of segments."""
    limits = _checked_limits(log, message)
    if pinned == list(log.pinned) and all(getattr(limits, name) == getattr(log, name) for name in LIMITS):
        return nothing

    def change(changed: pb.LogInfo) -> None:
        for name in LIMITS:
            setattr(changed, name, getattr(limits, name))
        changed.pinned[:] = pinned

    return change


def _wanted(log: pb.LogInfo, message: pb.ReconfigureLogRequest) -> Settings:
    stays = log.journal and message.ordering in ("", "leader")
    journal = message.journal if message.HasField("journal") else stays
    ordering = message.ordering or ("leader" if journal else log.ordering)
    replicas = message.replicas or log.replicas
    replication = message.replication or (log.replication if ordering == log.ordering else "") or BROADCAST
    return Settings(
        ordering=ordering,
        replicas=replicas,
        ack=message.ack or (log.ack if replicas == log.replicas else 0),
        streams=message.streams or (1 if ordering == "leader" else log.streams),
        unit=message.unit or (log.unit if ordering == "sequencer" else 0),
        replication=replication,
        journal=journal,
    )


def _needs_segment(log: pb.LogInfo, wanted: Settings, message: pb.ReconfigureLogRequest) -> bool:
    """Under `cut` streams come and go inside a segment; what they are made of does not change.

    The last segment may have fewer members than the log wants; that matters only to who asks for a number of them.
    """
    last = log.chain[-1]
    moved = wanted.ordering == "sequencer" and wanted.streams != len(last.streams)
    members = {len(stream.members) for stream in last.streams if stream.state != pb.STREAM_FINALIZED}
    short = bool(message.replicas) and members != {wanted.replicas}
    return moved or short or wanted != replace(settings_of(log), streams=wanted.streams)


def _checked(wanted: Settings) -> Settings:
    """The settings with what was left open filled in; raises what is wrong with them."""
    if wanted.ordering not in ORDERINGS:
        raise Unsupported(f"ordering {wanted.ordering!r}: this release has {', '.join(ORDERINGS)}")
    if not 1 <= wanted.replicas <= MOST_REPLICAS:
        raise InvalidArgument(f"a log has 1 to {MOST_REPLICAS} replicas, not {wanted.replicas}")
    if not 1 <= wanted.streams <= MOST_STREAMS:
        raise InvalidArgument(f"a log has 1 to {MOST_STREAMS} streams, not {wanted.streams}")
    if wanted.unit and wanted.ordering != "sequencer":
        raise InvalidArgument(f"under `{wanted.ordering}` positions are not striped over streams: there is no unit")
    if wanted.ordering == "leader":
        return _checked_leader(wanted)
    if wanted.journal:
        raise Unsupported(f"a journal has a leader: its ordering is 'leader', and cannot be {wanted.ordering!r}")
    if wanted.replication != BROADCAST:
        raise InvalidArgument(f"replication {wanted.replication!r} is for logs under `leader`")
    unit = (wanted.unit or DEFAULT_UNIT) if wanted.ordering == "sequencer" else 0
    if unit > BATCH_ENTRIES:
        raise InvalidArgument(f"a stripe has at most {BATCH_ENTRIES} positions, not {unit}")
    return replace(wanted, ack=_checked_ack(wanted), unit=unit)


def _checked_leader(wanted: Settings) -> Settings:
    """One leader has one stream."""
    if wanted.streams != 1:
        raise InvalidArgument(f"under `leader` a log has 1 stream, not {wanted.streams}: one leader numbers entries")
    if wanted.replication not in (BROADCAST, CHAIN):
        raise InvalidArgument(f"replication is {BROADCAST!r} or {CHAIN!r}, not {wanted.replication!r}")
    return replace(wanted, ack=_checked_ack(wanted))


def _checked_ack(wanted: Settings) -> int:
    """How many copies acknowledge. One of several would need every member's seal: one loss, and nobody goes on.

    Where all acknowledge that is no matter: one that is sealed is enough, and one copy is what a log may go on with.
    """
    ack = wanted.ack or default_ack(wanted.replicas)
    if ack > wanted.replicas:
        raise InvalidArgument(f"an acknowledgement cannot need {ack} copies of {wanted.replicas}")
    if 1 == ack < wanted.replicas and not all_acknowledge(wanted.ordering, wanted.replication):
        raise InvalidArgument(
            f"with an ack of 1 of {wanted.replicas} copies, the loss of any node would keep the segment from being "
            f"sealed for good: ack is 2{f' to {wanted.replicas}' * (wanted.replicas > 2)}"
        )
    return ack


def _too_low(name: str, least: int, given: int) -> str:
    """In the words of who asks: times are given in seconds."""
    if name.endswith("_ms"):
        return f"{name.removesuffix('ms')}seconds is at least {least / 1000:g}, or 0 for no limit, not {given / 1000:g}"
    return f"{name} is at least {least:,}, or 0 for no limit, not {given:,}"


def _checked_limits(log: pb.LogInfo, message: pb.CreateLogRequest | pb.ReconfigureLogRequest) -> pb.LogInfo:
    """A log's limits with what the message says of them, and nothing else; raises what is wrong with them."""
    limits = pb.LogInfo(**{name: getattr(log, name) for name in LIMITS})
    for field, value in message.ListFields():
        if field.name in LIMITS:
            setattr(limits, field.name, value)
    for name, least in LEAST.items():
        if 0 < getattr(limits, name) < least:
            raise InvalidArgument(_too_low(name, least, getattr(limits, name)))
    if limits.retain_archived and not (limits.retain_bytes or limits.retain_ms):
        raise InvalidArgument(
            "retain_archived says that nothing is trimmed before it is archived; what is trimmed at all, and when, "
            "retain_seconds or retain_bytes has to say"
        )
    return limits
