"""Keeps every log writable when nodes are lost (S6, W4): the streams they were in end, others take their place.

    a member is away too long, or its replica has failed
        1. choose members for as many new streams as are hurt, and open their replicas
        2. no more cuts for the hurt streams: each ends at its last one
        3. one change of the log's record: these are finalized with these ends, those are new
        4. members that are left seal and finish; who waits for an append there learns what became of it

One node's death hurts many logs: they are healed together, up to `HEALED_AT_ONCE` at a time, and each is put off by
itself if it cannot be. So one that takes long, or hangs until a call is given up, keeps the others from nothing.
Those that take no appends meanwhile come first.

Streams with a member that drains, or with fewer than there could be by now, move in the same way, but are in no
hurry: they wait until nothing is hurt that can be healed, and go one log at a time. What is hurt meanwhile does not
wait for them.

Streams that are not hurt never stop. Nothing is ended before its replacement is open on every member: with too few
nodes left a stream gets fewer members (`copies`), or waits for its own to come back, which is all that can be done.
"""

from collections.abc import Iterable

from varlog.base.errors import VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, Slot, StreamId
from varlog.core.ordering.leader import CHAIN
from varlog.ports import Clock
from varlog.repository.absences import Absences
from varlog.repository.catalog import REFUSED, Catalog
from varlog.repository.changes import Changes
from varlog.repository.copies import Takers, members_for, takers
from varlog.repository.links import NodeLinks, is_hurt
from varlog.repository.orderer import Orderer
from varlog.repository.reconfigure import Reconfigurer, settings_of
from varlog.runtime.scope import Scope
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 0.1
"""How often it is looked whether something is missing, besides when a node is lost."""
PAUSE_S = 1.0
"""After a log could not be healed, before it is tried again."""
HEALED_AT_ONCE = 12
"""Fewer logs than may be changed at once: who asks for a change of another finds a place, whatever has died."""
RETRIED_AT_ONCE = 4
"""Of them, those that could not be healed when last tried: they leave the places to others, however long they take."""


class Healer:
    """Looks after all logs of the cluster."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        orderer: Orderer,
        links: NodeLinks,
        scope: Scope,
        reconfigurer: Reconfigurer,
        changes: Changes,
        absences: Absences,
        lost_s: float,
    ) -> None:
        """Logs are healed in `scope`. `absences` is kept here."""
        self._clock = clock
        self._scope = scope
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._reconfigurer = reconfigurer
        self._changes = changes
        self._lost_s = lost_s
        self._absences = absences
        self._urgent: dict[LogId, None] = {}
        """Logs that were hurt when last looked at, and wait to be healed, in this order."""
        self._healing: dict[LogId, None] = {}
        """Those that are being healed."""
        self._moving = False
        """Whether streams are leaving nodes that drain."""
        self._not_before: dict[tuple[LogId, bool], float] = {}
        """When a log that could not be healed is looked at again; whether for what is hurt, or for what drains."""
        self._troubles: dict[LogId, str] = {}
        self._draining: dict[NodeId, None] = {}
        """As of the last look."""
        self._takers = Takers(0, 0)
        """As of then, or of when the last log had its turn."""

    def trouble(self, log: LogId) -> str:
        """Why a log cannot be healed, for people; empty if it can or need not be."""
        return self._troubles.get(log, "")

    async def run(self) -> None:
        """Until cancelled: look who is lost, and what is to be done for it. Doing it is not waited for."""
        while True:
            await self._clock.sleep(self._absences.next_look(self._lost_s))
            back = self._absences.look()
            for node, away_s in back.items():
                if away_s >= self._lost_s:
                    self._links.standing.mishap(node)
            if back:
                self._not_before.clear()  # what could not be healed without those who are back may be now
            self._look_at_all()

    def _look_at_all(self) -> None:
        self._draining = {number: None for number, node in self._catalog.nodes.items() if node.draining}
        self._takers = takers(self._catalog, self._links)
        self._forget_removed()
        urgent, leaving = [], []
        for number in self._catalog.logs:
            hurt, leaves = self._hurt(number), self._leaving(number)
            if hurt and number not in self._healing and not self._is_put_off(number, urgent=True):
                urgent.append(number)
            if not hurt and number not in self._healing:
                self._not_before.pop((number, True), None)
            if leaves:
                leaving.append(number)
            elif not hurt:
                self._troubles.pop(number, None)
        self._urgent = dict.fromkeys(sorted(urgent, key=self._takes_appends))
        self._begin()
        if leaving and not self._moving and self._is_calm():
            self._moving = True
            leaving.sort(key=self._is_stuck)  # what hangs as it is healed would do so again
            self._scope.spawn(self._move(leaving), name="move streams")

    def _begin(self) -> None:
        """Heal as many as may be healed at once."""
        while len(self._healing) < HEALED_AT_ONCE and (number := self._next()) is not None:
            del self._urgent[number]
            self._healing[number] = None
            self._scope.spawn(self._heal(number), name=f"heal log {number}")

    def _next(self) -> LogId | None:
        """The first that has a place."""
        retried = sum(self._is_stuck(number) for number in self._healing)
        fit = (each for each in self._urgent if retried < RETRIED_AT_ONCE or not self._is_stuck(each))
        return next(fit, None)

    async def _heal(self, number: LogId) -> None:
        try:
            await self._look_at(number, urgent=True)
        finally:
            del self._healing[number]
        self._begin()

    def _is_calm(self) -> bool:
        """Nothing is hurt that can be healed, as far as is known."""
        return all(self._is_stuck(number) for number in (*self._urgent, *self._healing))

    def _is_stuck(self, number: LogId) -> bool:
        """It is hurt, and could not be healed when last tried."""
        return (number, True) in self._not_before

    async def _move(self, leaving: list[LogId]) -> None:
        """Have the streams of one log leave nodes that drain: of the first in which that works."""
        try:
            for number in leaving:
                if not self._is_calm() or (self._leaving(number) and await self._look_at(number, urgent=False)):
                    return
        finally:
            self._moving = False

    def _forget_removed(self) -> None:
        logs = self._catalog.logs
        self._troubles = {log: why for log, why in self._troubles.items() if log in logs}
        self._not_before = {key: until for key, until in self._not_before.items() if key[0] in logs}

    # ------------------------------------------------------------ one log

    async def _look_at(self, number: LogId, *, urgent: bool) -> bool:
        """Replace what is hurt or, if not urgent, what is to leave a node; whether it was done."""
        if self._is_put_off(number, urgent=urgent):
            return False
        try:
            async with self._changes.of(number):
                self._takers = takers(self._catalog, self._links)  # what was tried since the look may have failed
                ending = self._hurt(number) if urgent else self._leaving(number)
                log = self._catalog.logs.get(number)
                if ending and log is not None:  # it may have been sealed or removed while we waited
                    self._note_failures(log)
                    wanted = settings_of(log)
                    members = members_for(self._catalog, self._links, number, wanted, urgent=urgent)
                    if log.chain[-1].ordering == "cut":
                        await self._reconfigurer.replace(number, ending, self._wanted(log, ending), members=members)
                    else:
                        await self._reconfigurer.next_segment(number, wanted, members=members, stay=urgent)
        except REFUSED:
            self._put_off(number, urgent, "the metadata store does not take the change")
            return False
        except VarlogError as error:
            self._put_off(number, urgent, error.message)
            return False
        self._not_before.pop((number, urgent), None)
        return True

    def _is_put_off(self, number: LogId, *, urgent: bool) -> bool:
        return self._not_before.get((number, urgent), 0.0) > self._clock.now()

    def _put_off(self, number: LogId, urgent: bool, why: str) -> None:
        what = "streams that are hurt cannot be replaced"
        if not urgent:
            drains = any(self._drains(stream) for stream in _open(self._catalog.log(number)))
            what = f"streams cannot {'leave a node that drains' if drains else 'get the copies that they lack'}"
        self._troubles[number] = f"{what}: {why}"
        self._not_before[number, urgent] = self._clock.now() + PAUSE_S

    def _hurt(self, number: LogId) -> list[StreamId]:
        """Open streams that can take no more appends as they are."""
        log = self._catalog.logs.get(number)
        if log is None:
            return []
        segment = log.chain[-1]
        return [StreamId(stream.id) for stream in _open(log) if self._is_hurt(number, segment, stream)]

    def _leaving(self, number: LogId) -> list[StreamId]:
        """Open streams that have a member which drains, or fewer members than they could."""
        log = self._catalog.logs.get(number)
        if log is None:
            return []
        return [StreamId(stream.id) for stream in _open(log) if self._drains(stream) or self._is_thin(log, stream)]

    def _drains(self, stream: pb.StreamInfo) -> bool:
        return any(NodeId(node) in self._draining for node in stream.members)

    def _is_thin(self, log: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """It has fewer members than are wanted, and by now there are nodes for more that can be counted on."""
        return len(stream.members) < min(log.replicas, self._takers.steady)

    def _is_hurt(self, number: LogId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> bool:
        known = self._orderer.order(number).stream(StreamId(stream.id))
        if known is not None and known.stopped:
            return True
        return len(self._well(number, segment, stream)) < len(stream.members)

    def _well(self, number: LogId, segment: pb.SegmentInfo, stream: pb.StreamInfo) -> list[NodeId]:
        """Members that can go on."""
        name = ReplicaId(number, Epoch(segment.epoch), StreamId(stream.id))
        there = (node for node in map(NodeId, stream.members) if not self._absences.is_lost(node, self._lost_s))
        return [node for node in there if not self._is_out(node, name)]

    def _note_failures(self, log: pb.LogInfo) -> None:
        """Who could not keep a replica had better not get the next one, nor lead it who could not go on leading."""
        segment = log.chain[-1]
        for stream in _open(log):
            name = ReplicaId(LogId(log.id), Epoch(segment.epoch), StreamId(stream.id))
            for node in map(NodeId, stream.members):
                row = self._links.row(node, name)
                if row is not None and is_hurt(row):
                    self._links.standing.mishap(node)
                elif row is not None and row.leads == pb.LEADS_NO_MORE:
                    self._links.standing.lost_lead(node)

    def _takes_appends(self, number: LogId) -> bool:
        """Though it is hurt: who numbers its entries is there, and as many as have to acknowledge."""
        segment = self._catalog.logs[number].chain[-1]
        if segment.ordering != "leader" or segment.replication == CHAIN:
            return False
        stream = segment.streams[0]
        well = self._well(number, segment, stream)
        return len(well) >= segment.ack and (segment.journal or stream.members[0] in well)

    def _is_out(self, node: NodeId, replica: ReplicaId) -> bool:
        """Its replica has failed; or was sealed for a change that was not carried out; or was to lead, and cannot."""
        row = self._links.row(node, replica)
        if row is None:
            return self._absences.lacks(node, replica)
        if is_hurt(row) or row.state == pb.REPLICA_SEALED or row.leads == pb.LEADS_NO_MORE:
            return True
        committed = Slot(row.uncommitted_llsn_offset - 1)
        return not self._orderer.order(replica.log).can_catch_up(replica.stream, committed)

    def _wanted(self, log: pb.LogInfo, ending: Iterable[StreamId]) -> int:
        """How many new streams make the log whole again."""
        ended = dict.fromkeys(ending)
        staying = [stream for stream in _open(log) if StreamId(stream.id) not in ended]
        return max(0, log.streams - len(staying))


def _open(log: pb.LogInfo) -> list[pb.StreamInfo]:
    """Streams that can be replaced."""
    if log.sealed or log.removing:
        return []
    return [stream for stream in log.chain[-1].streams if stream.state != pb.STREAM_FINALIZED]
