"""Who leads each journal: candidates wait here, one is elected under a lease, and leads until that runs out.

    CAMPAIGN --> waits ---------------.
    RENEW    --> the lease is longer   >-- lease over, or resigned --> next segment, led by the next candidate
    RESIGN   --> the lease is over ---'

A lease is for liveness alone: nobody who appends looks at it. What keeps an old leader from acknowledging anything
is the end of its segment, which is sealed before the next one begins. So leases are kept in memory: a repository
that begins to lead gives every leader one more ttl, and time to find it. With nobody waiting the segment ends all the
same, so that what the lost leader had acknowledged can be read, and the next one is led by nobody until a candidate
comes.
"""

import asyncio
from dataclasses import dataclass
from math import inf

from varlog.base.errors import Fenced, InvalidArgument, Sealed, Unsupported, VarlogError
from varlog.base.ids import LogId
from varlog.ports import Clock
from varlog.ports.disk import DiskFailed
from varlog.repository.catalog import Catalog
from varlog.repository.changes import Changes
from varlog.repository.copies import members_for
from varlog.repository.links import NodeLinks
from varlog.repository.reconfigure import Reconfigurer, settings_of
from varlog.runtime.scope import Scope
from varlog.transport.peer import Peer, Request
from varlog.wire.proto import varlog_pb2 as pb

PARK_S = 1.0
"""So long a candidate waits for an answer, before it is told to ask again."""
AWAY_S = 0.5
"""So long one that was told so counts as waiting."""
LOOK_S = 1.0
"""How often it is looked whether there is something to do that nobody has told of."""
SOON_S = 0.001
"""Less than this is not waited for: a clock need not even move in so little."""
PAUSE_S = 0.1
"""After a leader could not be replaced, before it is tried again."""
FIND_AGAIN_S = 2.0
"""So long a leader may take to find a repository that has just begun to lead, however short its lease is."""
LEAST_TTL_MS, MOST_TTL_MS = 50, 3_600_000
ELECTED_AT_ONCE = 12
"""Fewer journals than logs may be changed at once: a client's death may end the leases of many."""
MOST_CANDIDATES = 1024
"""That wait for one journal."""
NAME_CHARACTERS = 128


@dataclass(slots=True)
class _Candidate:
    leader: pb.JournalLeader
    peer: Peer
    """Who asks for it."""
    asking: Request
    """Its last question."""
    until: float
    """It counts as waiting until then, unless it asks again."""


class Elections:
    """Of all journals, in one term of the repository."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        links: NodeLinks,
        scope: Scope,
        reconfigurer: Reconfigurer,
        changes: Changes,
    ) -> None:
        """Leaders are elected in `scope`."""
        self._clock = clock
        self._scope = scope
        self._catalog = catalog
        self._links = links
        self._reconfigurer = reconfigurer
        self._changes = changes
        self._began = clock.now()
        self._leases: dict[LogId, tuple[int, float]] = {}
        """The leader's id, and when its lease is over."""
        self._candidates: dict[LogId, dict[int, _Candidate]] = {}
        """In the order in which they came."""
        self._electing: dict[LogId, None] = {}
        """Journals of which the leader is being replaced."""
        self._elected: dict[LogId, int] = {}
        """For whom next segments are being made; without those who have resigned since."""
        self._peers: dict[Peer, None] = {}
        """Those whose end we are told of, once each: a connection may bring candidates for as long as it lives."""
        self._not_before: dict[LogId, float] = {}
        self._troubles: dict[LogId, str] = {}
        self._wake = asyncio.Event()

    def trouble(self, log: LogId) -> str:
        """Why nobody new can lead a journal, for people; empty if somebody can or does."""
        return self._troubles.get(log, "")

    # ------------------------------------------------------------ asked by candidates

    def lead(self, request: Request) -> None:
        """LEAD_LOG."""
        message: pb.LeadLogRequest = request.message
        log = self._catalog.log(message.log)
        if not log.journal and message.act == pb.RESIGN:
            self._resign(request, LogId(log.id), message.leader.id, leads=False)
            return
        if not log.journal and message.act == pb.RENEW:
            raise Fenced(f"log {log.name!r} is no journal any more", log.chain[-1].epoch)
        if not log.journal:
            raise Unsupported(
                f"log {log.name!r} is no journal: its leader is a node, and everybody may append; "
                "a journal is made by cluster.journal(name), create_log(..., journal=True) or reconfigure(journal=True)"
            )
        if not message.leader.id or not LEAST_TTL_MS <= message.leader.ttl_ms <= MOST_TTL_MS:
            least, most = LEAST_TTL_MS / 1000, MOST_TTL_MS / 1000
            raise InvalidArgument(f"a leader has an id, and a ttl of {least:g} to {most:g} s")
        leads = log.chain[-1].leader.id == message.leader.id and not log.sealed
        if message.act == pb.RESIGN:
            self._resign(request, LogId(log.id), message.leader.id, leads=leads)
        elif leads:
            self._extend(LogId(log.id), message.leader)
            self._answer(request, elected=True)
        elif log.sealed:
            raise Sealed(f"log {log.name!r} is sealed", log.chain[-1].end)
        elif message.act == pb.RENEW:
            raise Fenced(f"another has taken over log {log.name!r}", log.chain[-1].epoch)
        else:
            self._wait_for_election(request, LogId(log.id), message.leader)

    def _resign(self, request: Request, number: LogId, leader: int, *, leads: bool) -> None:
        self._candidates.get(number, {}).pop(leader, None)
        if self._elected.get(number) == leader:
            del self._elected[number]
        if leads:
            self._leases[number] = (leader, -inf)
            self._wake.set()
        self._answer(request, elected=False)

    def _wait_for_election(self, request: Request, number: LogId, leader: pb.JournalLeader) -> None:
        waiting = self._candidates.setdefault(number, {})
        peer = request.peer
        if leader.id not in waiting and len(waiting) >= MOST_CANDIDATES:
            raise InvalidArgument(f"{MOST_CANDIDATES} candidates wait for this journal already")
        named = pb.JournalLeader(
            id=leader.id, ttl_ms=leader.ttl_ms, name=(leader.name or peer.remote)[:NAME_CHARACTERS]
        )
        waiting[leader.id] = _Candidate(named, peer, request, self._clock.now() + PARK_S + AWAY_S)
        if peer not in self._peers:
            self._peers[peer] = None
            peer.on_close(lambda _: self._gone(peer))
        self._clock.call_later(PARK_S, lambda: self._answer(request, elected=False))
        self._wake.set()

    def _gone(self, peer: Peer) -> None:
        """Its connection has ended: who is not there cannot be elected."""
        del self._peers[peer]
        for waiting in self._candidates.values():
            for each in [each for each, candidate in waiting.items() if candidate.peer is peer]:
                del waiting[each]

    def _answer(self, request: Request, *, elected: bool) -> None:
        if request.done:
            return
        log = self._catalog.logs.get(LogId(request.message.log))
        reply = pb.LeadLogReply(elected=elected)
        if log is not None:
            reply.log.CopyFrom(self._catalog.served(log))
        request.reply(reply)

    def _extend(self, number: LogId, leader: pb.JournalLeader) -> None:
        known = self._leases.get(number)
        if known is None or known != (leader.id, -inf):
            self._leases[number] = (leader.id, self._clock.now() + leader.ttl_ms / 1000)

    # ------------------------------------------------------------ electing

    async def run(self) -> None:
        """Until cancelled: one journal whose members do not answer keeps nobody else from leading."""
        self._began = self._clock.now()  # until now nobody could give word, however long it took to read the logs
        while True:
            timer = self._clock.call_later(max(SOON_S, self._next() - self._clock.now()), self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()  # what is told from here on is looked at in the next round
            self._forget_removed()
            for number in list(self._catalog.logs):
                if number not in self._electing and self._is_due(number) and len(self._electing) < ELECTED_AT_ONCE:
                    self._electing[number] = None
                    self._scope.spawn(self._elect(number), name=f"elect who leads log {number}")

    def _next(self) -> float:
        """When the next lease is over, or the next pause."""
        now = self._clock.now()
        ends = [self._over_at(log) for log in self._catalog.logs.values() if log.journal and log.chain[-1].leader.id]
        return min([now + LOOK_S, *(end for end in ends if end > now), *self._not_before.values()])

    def _over_at(self, log: pb.LogInfo) -> float:
        leader = log.chain[-1].leader
        known = self._leases.get(LogId(log.id))
        if known is not None and known[0] == leader.id:
            return known[1]
        return self._began + max(FIND_AGAIN_S, leader.ttl_ms / 1000)

    def _is_due(self, number: LogId) -> bool:
        log = self._catalog.logs.get(number)
        if log is None or not log.journal or log.sealed or log.removing:
            self._forget(number)
            return False
        if self._not_before.get(number, -inf) > self._clock.now():
            return False
        self._not_before.pop(number, None)
        if not log.chain[-1].leader.id:
            return self._first(number) is not None
        return self._over_at(log) <= self._clock.now()

    def _forget_removed(self) -> None:
        known = dict.fromkeys((*self._leases, *self._not_before, *self._troubles, *self._candidates))
        for number in known:
            if number not in self._catalog.logs:
                self._forget(number)

    def _forget(self, number: LogId) -> None:
        self._leases.pop(number, None)
        self._not_before.pop(number, None)
        self._troubles.pop(number, None)
        for candidate in self._candidates.pop(number, {}).values():
            self._answer(candidate.asking, elected=False)

    def _first(self, number: LogId) -> _Candidate | None:
        """Who has waited longest."""
        now = self._clock.now()
        waiting = self._candidates.get(number, {})
        for each in [each for each, candidate in waiting.items() if candidate.until <= now]:
            del waiting[each]
        return next(iter(waiting.values()), None)

    async def _elect(self, number: LogId) -> None:
        try:
            async with self._changes.of(number):
                if self._is_due(number):  # it may have changed while we waited
                    await self._begin(number, self._first(number))
        except DiskFailed:
            raise  # our own store: whether it has the change is known only after a restart, so the term ends here
        except VarlogError as error:
            self._troubles[number] = f"nobody new can lead it: {error.message}"
            self._not_before[number] = self._clock.now() + PAUSE_S
        else:
            self._troubles.pop(number, None)
        finally:
            del self._electing[number]
        self._wake.set()  # there is a place for another

    async def _begin(self, number: LogId, candidate: _Candidate | None) -> None:
        log = self._catalog.log(number)
        leader = candidate.leader if candidate is not None else pb.JournalLeader()
        wanted = settings_of(log)
        members = members_for(self._catalog, self._links, number, wanted, urgent=True)
        self._elected[number] = leader.id
        try:
            await self._reconfigurer.next_segment(number, wanted, members=members, stay=True, leader=leader)
        finally:
            resigned = self._elected.pop(number, None) is None
        self._leases.pop(number, None)
        if resigned:
            self._leases[number] = (leader.id, -inf)  # it is recorded as the leader, and nobody is there
            self._wake.set()
        elif candidate is not None:
            last = self._candidates[number].pop(leader.id, candidate)
            self._leases[number] = (leader.id, self._clock.now() + leader.ttl_ms / 1000)
            self._answer(last.asking, elected=True)
