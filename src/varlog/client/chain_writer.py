"""Carries batches to a segment under the `sequencer` ordering: a grant, then the chain of members (W9, W14).

    owner --submit--> [ GRANT: position ] --> [ STORE head, next, ..., last ] --> acked

A batch whose place was given up, because we were too slow, is granted another: it is certain that it is not at the
first. When the segment ends, each batch that had a place is looked for there; what is found is acknowledged, all
else is certainly not in the log, and goes on in the next segment. The caller sees none of it.

Once somebody was told that the outcome is unknown, and where the batch was sent, it is written there or nowhere.
"""

import asyncio

from varlog.base.errors import (
    Conflict,
    ConnectionLost,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    ReplicaFailed,
    Sealed,
    Timeout,
    Trimmed,
    Unavailable,
    VarlogError,
    WrongWriter,
)
from varlog.base.ids import Glsn, Slot
from varlog.client.chain import Chain, Lost, Over
from varlog.client.context import LogContext
from varlog.client.limits import RELEASE_SECONDS, STORE_SECONDS
from varlog.client.lookup import header_at
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.client.session import Flight, Session
from varlog.client.tail import is_last_segment
from varlog.client.writer import Carried, Owner
from varlog.ports.clock import Timer
from varlog.runtime.timeout import within
from varlog.transport.peer import Peer, Reply
from varlog.wire.batch import check_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class ChainWriter:
    """Batches for all streams of one segment; `route` is the first of them, whose head grants the positions."""

    def __init__(
        self,
        context: LogContext,
        route: StreamRoute,
        owner: Owner,
        *,
        depth: int,
        session: Session[Carried] | None = None,
    ) -> None:
        """With a `session` of a producer that has a name, the writer takes nothing behind a batch that is not in the
        log: that would hide its number, and whoever asks would be told that it is there."""
        self.broken: VarlogError | None = None
        self.stalled = False
        self._context = context
        self._world = context.world
        self._routes = context.routes
        self._owner = owner
        self._stripes = self._routes.stripes(route)
        siblings = self._routes.siblings(route)
        self.route = route
        self._first = siblings[0]
        self._chains = [Chain(context, each, self._stripes) for each in siblings]
        self._depth = depth
        self._named = session is not None
        self._session: Session[Carried] = session or Session(self._world.random.randbytes(16))
        self._peer: Peer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._over = asyncio.Event()
        """The log's record says where the segment ends, or that there is no such log any more."""
        self._carrying: dict[int, asyncio.Task[None]] = {}
        """Who asks members for a batch, by its sequence. Once the segment is over nobody waits for their answers."""
        self._release: Timer | None = None
        self._closed = False

    # ------------------------------------------------------------ for the owner

    @property
    def session(self) -> Session[Carried]:
        return self._session

    def sessions(self) -> list[Session[Carried]]:
        return [self._session]

    @property
    def ready(self) -> bool:
        """Connected to the sequencer, with room, and answering."""
        return (
            self._peer is not None
            and self._peer.closed_error is None
            and not self.stalled
            and self.broken is None
            and self.carries < self._depth
            and not self._over.is_set()
        )

    @property
    def carries(self) -> int:
        return len(self._session.unresolved)

    @property
    def idle(self) -> bool:
        return not self._session.unresolved

    @property
    def most_entries(self) -> int | None:
        """Of one batch; None: no limit but its size."""
        return None if self._stripes.streams == 1 else self._stripes.unit

    def prepare(self) -> None:
        """Connect to the sequencer, if need be; the owner is told when it worked."""
        if self._closed or self._connecting is not None:
            return
        if self._peer is None or self._peer.closed_error is not None:
            self._connecting = self._context.scope.spawn(self._connect(), name="connect a sequencer")

    def submit(self, batch: Carried) -> None:
        """Give a batch its identity, and send it."""
        batch.stamp(self._session.producer, self._session.next_sequence)
        flight = self._session.add(batch)
        self._context.scope.spawn(self._carry(flight), name="carry a batch down the chain")

    def hurry(self, session: Session[Carried]) -> None:
        """Everything that is unresolved is being carried."""

    def look(self) -> None:
        """The log has changed: has the segment ended?"""
        now = self._routes.now(self.route)
        if now.end is not None or self._routes.info is None or now not in self._routes.streams:
            self._over.set()
            carrying, self._carrying = self._carrying, {}
            for task in carrying.values():
                task.cancel()

    def close(self) -> list[Flight[Carried]]:
        """Send nothing more. What is left unanswered."""
        self._closed = True
        if self._release is not None:
            self._release.cancel()
        self._over.set()
        return list(self._session.unresolved.values())

    async def _connect(self) -> None:
        try:
            wait = self._not_before - self._world.clock.now()
            if wait > 0:
                await self._world.clock.sleep(wait)
            self._peer = await self._context.pool.get(self._routes.place(self._first.members[0]))
            self._failures = 0
        except VarlogError:
            self._peer = None
            self._routes.refresh_soon()  # it may have moved
            self._put_off()
        finally:
            self._connecting = None
        if self._closed:
            return
        if self.ready:
            self._owner.has_room()
        elif self._peer is None and not self._over.is_set():
            self.prepare()

    def _put_off(self) -> None:
        """The next attempt waits, longer with every failure in a row."""
        self._failures += 1
        self._not_before = self._world.clock.now() + pause(self._world, self._failures)

    # ------------------------------------------------------------ one batch

    async def _carry(self, flight: Flight[Carried]) -> None:
        batch = flight.batch
        placed: tuple[int, Slot] | None = None
        carrying = asyncio.current_task()
        assert carrying is not None, "it is run as a task of its own"
        self._carrying[flight.sequence] = carrying
        try:
            while placed is None:
                placed = await self._place(flight)
                if placed is None:
                    self._end(flight)
                    self._break("it was not sent in time")
                    self._owner.returned(self, [batch])  # those of it who still wait are told, too
                    return
                index, slot = placed
                try:
                    await self._chains[index].write(slot, batch.data, batch.count)
                except Lost:
                    if not self._may_move(flight):
                        return
                    placed = None
            self._acked(flight, *placed)
        except Over:
            await self._settle(flight, placed)
        except asyncio.CancelledError:
            if not self._is_interrupted(carrying):
                raise
            await self._settle(flight, placed)
        except VarlogError as error:
            self._end(flight)
            if not self._closed:
                self._fail(batch, error, certain=placed is None)

    def _is_interrupted(self, carrying: "asyncio.Task[None]") -> bool:
        """Whether it was `look` alone that cancelled it: a member that stands still would hold it up for long."""
        return self._over.is_set() and not self._closed and not carrying.uncancel()

    def _fail(self, batch: Carried, error: VarlogError, *, certain: bool) -> None:
        if certain:
            self._break(error.message)
            self._owner.refused(self, batch, error, [])
        else:
            self._doubtful(batch, error.message)

    def _doubtful(self, batch: Carried, why: str) -> None:
        """Nobody can tell whether it is in the log; what waits behind it goes on, unless it has a name."""
        self._break(why)
        batch.doubtful(OutcomeUnknown(why))
        self._has_room()

    def _break(self, why: str) -> None:
        if self._named and self.broken is None:
            self.broken = Unavailable(f"a batch of this producer is perhaps not in the log, open it again: {why}")

    def _may_move(self, flight: Flight[Carried]) -> bool:
        """Its place is taken by another. Unless somebody may look for it there, or it had to be there, it goes on."""
        batch = flight.batch
        if batch.expect is not None:
            self._end(flight)
            self._owner.refused(
                self, batch, Conflict("the position was given up before it was written", batch.expect), []
            )
            return False
        if batch.told:
            self._end(flight)
            self._doubtful(batch, "its place in the log was given up")
            return False
        return True

    async def _place(self, flight: Flight[Carried]) -> tuple[int, Slot] | None:
        """Have positions granted; None: nobody needs them any more, and what was granted is given back as junk."""
        batch = flight.batch
        granted = await self._grant(flight)
        if granted is None:
            return None
        first, skipped = granted
        if skipped:
            self._give_back(Glsn(first - skipped), skipped)
        index, slot = self._stripes.place(first)
        if batch.told:
            self._give_back(first, batch.count)
            return None
        batch.place(self._chains[index].route, slot)
        return index, slot

    def _give_back(self, first: Glsn, count: int) -> None:
        index, slot = self._stripes.place(first)
        work = self._fill(self._chains[index], slot, Slot(slot + count))
        self._context.scope.spawn(work, name="fill positions that nobody needs")

    async def _fill(self, chain: Chain, slot: Slot, end: Slot) -> None:
        try:
            await chain.fill(slot, end)
        except (Over, VarlogError):
            pass  # whoever needs what lies behind them fills them, or who seals the segment

    async def _grant(self, flight: Flight[Carried]) -> tuple[Glsn, int] | None:
        """The first of them, and how many before it are to be filled; None: it could not be told in time whether the
        one expected is still free."""
        batch = flight.batch
        request = pb.GrantRequest(
            log=self._first.log,
            segment=self._first.segment,
            stream=self._first.id,
            count=batch.count,
            base=self._stripes.base,
        )
        if batch.expect is not None:
            request.expect = batch.expect
            request.producer = self._session.producer  # asked again as its answer was lost, it is granted the same
            request.sequence = flight.sequence
        if self._session.claim:
            request.producer, request.claim = self._session.producer, self._session.claim
        failures = 0
        given_back = False
        while True:
            if self._over.is_set():
                raise Over
            try:
                reply: pb.GrantReply = (await self._ask(request)).message
                if not reply.first:  # behind what is left here it fits, for whoever expects it there
                    if not given_back:
                        given_back = True
                        self._give_back(Glsn(request.expect), reply.skipped)
                    raise Conflict(
                        f"{request.count} entries do not fit a stripe from position {request.expect} on",
                        request.expect + reply.skipped - 1,
                    )
            except Sealed as sealed:
                raise Over from sealed
            except Conflict:
                if await self._is_last():
                    raise
                if not batch.awaited:
                    return None
                await self._wait_to_ask_again(failures := failures + 1)
                continue
            except (ConnectionLost, Timeout, Unavailable, Overloaded, NotFound, WrongWriter, ReplicaFailed):
                self.stalled = True
                await self._wait_to_ask_again(failures := failures + 1)
                continue
            return Glsn(reply.first), reply.skipped

    async def _is_last(self) -> bool:
        """Whether the sequencer's word on where the log ends holds: an old one knows nothing of what has followed."""
        try:
            return await is_last_segment(self._context, self._first.log, self._first.segment)
        except VarlogError:
            return False

    async def _wait_to_ask_again(self, failures: int) -> None:
        """Before the sequencer is asked again, unless it is heard that another has taken over."""
        self._routes.refresh_soon()
        try:
            await within(self._world.clock, pause(self._world, failures), self._over.wait())
        except Timeout:
            pass  # it has not

    async def _ask(self, request: pb.GrantRequest) -> Reply:
        """The first question of a batch leaves at once, so that batches get their positions in order."""
        peer = self._peer
        if peer is None or peer.closed_error is not None:
            place = self._routes.place(self._first.members[0])
            peer = self._peer = await self._context.pool.get(place)
        return await peer.start_call(Method.GRANT, request.SerializeToString(), timeout=STORE_SECONDS)

    # ------------------------------------------------------------ outcomes

    def _acked(self, flight: Flight[Carried], index: int, slot: Slot) -> None:
        self._end(flight)
        flight.batch.acked(self._stripes.glsn(index, slot), self._chains[index].route)
        if self._release is None and not self._closed:
            self._release = self._world.clock.call_later(RELEASE_SECONDS, self._tell)
        self._has_room()

    def _tell(self) -> None:
        """Members before the last hear of what is in the log."""
        self._release = None
        for chain in self._chains:
            chain.tell()

    def _end(self, flight: Flight[Carried]) -> None:
        self._carrying.pop(flight.sequence, None)
        self._session.unresolved.pop(flight.sequence, None)
        self.stalled = False

    def _has_room(self) -> None:
        if not self._closed and (self.ready or self.idle):
            self._owner.has_room()

    async def _settle(self, flight: Flight[Carried], placed: tuple[int, Slot] | None) -> None:
        """The segment takes no more. What had a place is in the log if it is there once the end is known."""
        self._carrying.pop(flight.sequence, None)
        if self._closed:
            return  # its owner has told everybody; and perhaps it is he who has ended, not the segment
        self._context.choice.refuse(self.route, Sealed("the segment has ended"))
        batch = flight.batch
        try:
            if placed is not None and not await self._is_there(batch, *placed):
                placed = None
        except (Trimmed, OutcomeUnknown) as error:
            self._end(flight)
            self._doubtful(batch, error.message)
            return
        if self._closed:
            return
        if placed is not None:
            self._acked(flight, *placed)
        else:
            self._end(flight)
            self._owner.refused(self, batch, Sealed("the segment ended before this append was written"), [])

    async def _is_there(self, batch: Carried, index: int, slot: Slot) -> bool:
        await self._over.wait()
        mine = check_batch(batch.data)
        failures = 0
        while not self._closed:
            route = self._routes.now(self._chains[index].route)
            if route.end is None or route not in self._routes.streams:
                raise OutcomeUnknown("the log was removed while it was on its way")
            if slot >= route.end:
                return False
            try:
                there = await header_at(self._context, route, slot, failures)
            except Trimmed:
                raise
            except VarlogError:
                failures += 1
                self._routes.refresh_soon()
                if failures % len(route.members) == 0:  # all were asked
                    await self._world.clock.sleep(pause(self._world, failures // len(route.members)))
            else:
                return (there.producer, there.sequence) == (mine.producer, mine.sequence)
        return False
