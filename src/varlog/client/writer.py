"""Carries batches to one stream's primary: the driver of its sessions.

    owner --submit--> [ session: sequence ] --APPEND--> primary
    owner <--acked / refused / returned---- [ what the answers mean ]

There is one current session. One that is over (see `session.py`) is kept beside it until the last of
its batches is answered. What was sent is sent again, as it is, until it is answered: outcomes stay
with their stream. A writer whose batches are not answered is *stalled*; its owner gives it no more.
"""

import asyncio
from functools import partial
from typing import Protocol

from varlog.base.errors import (
    ConnectionLost,
    Gap,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Sealed,
    Timeout,
    TooLarge,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.base.ids import Glsn, Slot
from varlog.client.context import LogContext
from varlog.client.limits import (
    FIRST_ANSWER_AT_END_SECONDS,
    FIRST_ANSWER_SECONDS,
    FIRST_PAUSE_AT_END_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_ANSWER_SECONDS,
)
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.client.session import Flight, Session, Transmission
from varlog.ports.clock import Timer
from varlog.transport.peer import Peer, Reply
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

FINAL = (Sealed, TooLarge, InvalidArgument, Unsupported)
"""Refusals that hold for every transmission of the same bytes, earlier and later."""

PATIENT_GAPS = 3
"""So many gaps in a row are mended at once; then with a pause, lest a confused stream keep us spinning."""


class Carried(Protocol):
    """A batch as its owner sees it."""

    def stamp(self, producer: bytes, sequence: int) -> None:
        """From now on the batch has this identity."""
        ...

    @property
    def data(self) -> Buffer:
        """Encoded, with its identity."""
        ...

    @property
    def count(self) -> int:
        """How many entries it has."""
        ...

    @property
    def expect(self) -> int | None:
        """The only position that it may get, if there is one."""
        ...

    @property
    def awaited(self) -> bool:
        """Somebody waits for its outcome."""
        ...

    @property
    def told(self) -> bool:
        """Somebody was told that its outcome is unknown, and may look for it where it is by now."""
        ...

    def place(self, route: StreamRoute, slot: Slot) -> None:
        """It goes there, and nowhere else unless that is certainly taken by another."""
        ...

    def acked(self, first: Glsn, route: StreamRoute) -> None:
        """It is in the log."""
        ...

    def doubtful(self, error: VarlogError) -> None:
        """It may be in the log, and no one will ever know more."""
        ...


class BatchWriter(Protocol):
    """A writer as its owner knows it when something is refused."""

    route: StreamRoute
    broken: VarlogError | None


class Owner(Protocol):
    """Who gives a writer its batches."""

    def has_room(self) -> None:
        """A writer can take a batch again."""
        ...

    def refused(self, writer: "BatchWriter", batch: Carried, error: VarlogError, behind: list[Carried]) -> None:
        """Certainly not in the log, because of this; nor are those behind it, for no reason of their own."""
        ...

    def returned(self, writer: "BatchWriter", batches: list[Carried]) -> None:
        """Certainly not in the log: to be submitted again."""
        ...


class StreamWriter:
    """Batches for one stream, under producer ids of this client."""

    def __init__(
        self,
        context: LogContext,
        route: StreamRoute,
        owner: Owner,
        *,
        depth: int,
        session: Session[Carried] | None = None,
    ) -> None:
        """With a `session` of a producer that has a name of its own, the writer ends when that session does."""
        self.route = route
        self.broken: VarlogError | None = None
        """Why it takes nothing more."""
        self.stalled = False
        self._world = context.world
        self._pool = context.pool
        self._routes = context.routes
        self._scope = context.scope
        self._owner = owner
        self._depth = depth
        self._named = session is not None
        self._session: Session[Carried] = session or Session(self._world.random.randbytes(16))
        self._over: list[Session[Carried]] = []
        self._request = pb.AppendRequest(log=route.log, segment=route.segment, stream=route.id).SerializeToString()
        self._peer: Peer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._failures = 0
        self._gaps = 0
        self._answer_seconds = FIRST_ANSWER_SECONDS
        self._slower_at = 0.0
        self._closed = False
        self._turn = 0
        """Which member is asked; the primary as long as the stream is open."""
        self._ended = False

    # ------------------------------------------------------------ for the owner

    @property
    def session(self) -> Session[Carried]:
        """The current one."""
        return self._session

    def sessions(self) -> list[Session[Carried]]:
        return [*self._over, self._session]

    @property
    def ready(self) -> bool:
        """Connected, with room, and answering."""
        return (
            self._peer is not None
            and self._peer.closed_error is None
            and not self.stalled
            and self.broken is None
            and len(self._session.unresolved) < self._depth
        )

    @property
    def carries(self) -> int:
        """Batches on their way."""
        return len(self._session.unresolved)

    @property
    def idle(self) -> bool:
        return not self._session.unresolved and not self._over

    most_entries: int | None = None
    """Of one batch; None: no limit but its size."""

    def prepare(self) -> None:
        """Connect, if need be and unless that was just tried; the owner is told when it worked."""
        if self._closed or self._connecting is not None or self._timer is not None:
            return
        if self._peer is None or self._peer.closed_error is not None:
            self._connecting = self._scope.spawn(self._connect(), name=f"connect stream {self.route.id}")

    def submit(self, batch: Carried) -> None:
        """Give a batch its sequence and send it."""
        session = self._session
        batch.stamp(session.producer, session.next_sequence)
        session.add(batch)
        self._pump()

    def hurry(self, session: Session[Carried]) -> None:
        """Someone asks for the outcome of what was sent: send it again now."""
        session.send_again()
        self._pump()

    def look(self) -> None:
        """The log has changed: of a stream that has ended, any member tells what became of what was sent."""
        now = self._routes.now(self.route)
        if now not in self._routes.streams:
            self._give_up()
        if self._ended or now.end is None:
            return
        self._ended = True
        if not self.idle and not self._closed:
            self._ask_others()

    def _give_up(self) -> None:
        """The log was removed: nobody will ever tell."""
        for session in self.sessions():
            certain, doubtful = session.given_up()
            for batch in doubtful:
                batch.doubtful(OutcomeUnknown("the log was removed while it was on its way"))
            if certain:
                self._owner.returned(self, certain)

    def _ask_others(self) -> None:
        """The primary comes last: most likely it is what was lost."""
        self._peer = None
        self._failures = 0
        self._answer_seconds = FIRST_ANSWER_AT_END_SECONDS
        self._turn = 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session in self.sessions():
            session.send_again()
        self._pump()

    def close(self) -> list[Flight[Carried]]:
        """Send nothing more. What is left unanswered."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        return [flight for session in self.sessions() for flight in session.unresolved.values()]

    # ------------------------------------------------------------ sending

    def _pump(self) -> None:
        """Send whatever waits to be sent, in order."""
        if self._closed or self._timer is not None or self._connecting is not None:
            return
        for session in self.sessions() if self._over else (self._session,):
            while (flight := session.to_send()) is not None:
                if self._peer is None or self._peer.closed_error is not None:
                    self.prepare()
                    return
                self._transmit(self._peer, session, flight)

    def _transmit(self, peer: Peer, session: Session[Carried], flight: Flight[Carried]) -> None:
        transmission = session.sent(flight)
        answered = partial(self._answered, peer, session, transmission)
        body = (flight.batch.data,)
        peer.start_call(Method.APPEND, self._request, body, timeout=self._answer_seconds, answered=answered)

    async def _connect(self) -> None:
        try:
            members = self._routes.now(self.route).members
            place = self._routes.place(members[self._turn % len(members)])  # one may have been removed meanwhile
            self._peer = await self._pool.get(place)
            if not self._ended:
                self._failures = 0  # else the next member is asked each time: who is reached has not answered yet
        except VarlogError:
            self._routes.refresh_soon()  # it may have moved
            self._trouble(None)
            self._wait()
        finally:
            self._connecting = None
        self._pump()
        if self.ready:
            self._owner.has_room()

    def _wait(self, seconds: float | None = None) -> None:
        """Send nothing for a while; without a time, for longer with every failure in a row."""
        if self._timer is None and not self._closed:
            if seconds is None:
                self._failures += 1
                first = FIRST_PAUSE_AT_END_SECONDS if self._ended else FIRST_PAUSE_SECONDS
                seconds = pause(self._world, self._failures, first)
            self._timer = self._world.clock.call_later(seconds, self._waited)

    def _waited(self) -> None:
        self._timer = None
        self._pump()
        if self.idle:
            self._owner.has_room()

    def _trouble(self, peer: Peer | None) -> None:
        """Nobody answers: no new batches for this stream until what is on its way is answered.

        Of a stream that has ended another member is asked, once, however many batches this one did not answer.
        """
        self.stalled = not self.idle
        if self._ended and peer is self._peer:
            self._peer = None
            self._turn += 1
            for session in self.sessions():
                session.send_again()  # though another, that stands still, has not answered yet
        now = self._world.clock.now()
        if now >= self._slower_at:
            self._answer_seconds = min(2 * self._answer_seconds, LONGEST_ANSWER_SECONDS)
            self._slower_at = now + self._answer_seconds

    # ------------------------------------------------------------ answers

    def _answered(
        self, peer: Peer, session: Session[Carried], sent: Transmission[Carried], answer: "asyncio.Future[Reply]"
    ) -> None:
        error = answer.exception()
        if self._closed:
            return
        if error is None:
            self._acked(session, sent, answer.result().message)
        elif isinstance(error, VarlogError):
            self._failed(peer, session, sent, error)
        else:
            raise error
        if session.forgotten or self._over:
            self._settle(session)
        idle = self.idle
        if idle:
            self.stalled = False
        else:
            self._pump()
        if idle or self.ready:
            self._owner.has_room()

    def _acked(self, session: Session[Carried], sent: Transmission[Carried], reply: pb.AppendReply) -> None:
        self.stalled = False
        self._failures = self._gaps = 0
        self._answer_seconds = FIRST_ANSWER_SECONDS
        if not session.acked(sent):
            return
        batch = sent.flight.batch
        if not reply.glsn:
            batch.doubtful(OutcomeUnknown("it is in the log, at a position no longer remembered"))
        elif reply.count != batch.count:
            batch.doubtful(OutcomeUnknown("the stream has another batch under this identity: is the name used twice?"))
        else:
            batch.acked(Glsn(reply.glsn), self.route)

    def _failed(self, peer: Peer, session: Session[Carried], sent: Transmission[Carried], error: VarlogError) -> None:
        if isinstance(error, Gap):
            self._gaps += session.gap(sent, error.expected)
            if self._gaps > PATIENT_GAPS:
                self._wait()
        elif isinstance(error, Overloaded):
            session.put_off(sent)
            self._wait(error.retry_after * self._world.random.uniform(1.0, 1.5))
        elif isinstance(error, ConnectionLost | Timeout | OutcomeUnknown) or type(error) is VarlogError:
            session.lost(sent)
            self._trouble(peer)
            if not isinstance(error, Timeout):
                self._wait()
        elif isinstance(error, Unavailable) or (self._ended and isinstance(error, NotFound)):
            session.put_off(sent)
            self._trouble(peer)
            self._wait()
        else:
            self._refused(peer, session, sent, error)

    def _refused(self, peer: Peer, session: Session[Carried], sent: Transmission[Carried], error: VarlogError) -> None:
        behind = session.refused(sent, final=isinstance(error, FINAL))
        if behind is None:
            self._trouble(peer)
            self._wait()
            return
        self._renew(session, error)
        self._owner.refused(self, sent.flight.batch, error, behind)

    def _renew(self, session: Session[Carried], error: VarlogError) -> None:
        """That session is over: go on under another producer id, if the present one is ours to choose."""
        if session is not self._session:
            return
        if self._named:
            self.broken = self.broken or error
        else:
            self._over.append(session)
            self._session = Session(self._world.random.randbytes(16))

    def _settle(self, session: Session[Carried]) -> None:
        if session.forgotten:
            self._renew(session, Unavailable("the stream does not know this producer's last batches: open it again"))
            ended = session.abandoned()
            if ended is not None:
                certain, doubtful = ended
                for batch in doubtful:
                    batch.doubtful(OutcomeUnknown("the stream no longer remembers this producer"))
                self._owner.returned(self, certain)
        if session in self._over and not session.unresolved:
            self._over.remove(session)
