"""Settling an append whose outcome is unknown: the same bytes again, under the same identity."""

from varlog.base.errors import (
    ConnectionLost,
    Corrupt,
    Gap,
    InvalidArgument,
    Junk,
    NotFound,
    NotWritten,
    OutcomeUnknown,
    Overloaded,
    ReplicaFailed,
    Sealed,
    Timeout,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import Glsn, ProducerToken, Slot
from varlog.client.chain import Chain, Over
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.limits import FIRST_ANSWER_SECONDS, SHORTEST_ATTEMPT_SECONDS
from varlog.client.lookup import header_at
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.runtime.timeout import within
from varlog.wire.batch import check_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PASSING = (ConnectionLost, Timeout, Unavailable, Overloaded, NotWritten)


def check_token(token: object) -> ProducerToken:
    """The token, if it is whole."""
    if not isinstance(token, ProducerToken):
        raise InvalidArgument(f"a retry needs the token of an OutcomeUnknown, not {type(token).__name__}")
    header = check_batch(token.batch)
    if (header.producer, header.sequence) != (token.producer, token.sequence):
        raise InvalidArgument("the token does not belong to its batch")
    if not 0 <= token.index < token.index + token.count <= header.count:
        raise InvalidArgument("the token names entries that its batch does not have")
    return token


class Retry:
    """One token, sent again until it is answered.

    With `numbered` it stands for a whole batch that the application numbered: what the log has under that number
    may have another number of entries, and has its own Ack.
    """

    def __init__(self, context: LogContext, token: ProducerToken, *, numbered: bool = False) -> None:
        self._context = context
        self._world = context.world
        self._pool = context.pool
        self._routes = context.routes
        self._token = token
        self._numbered = numbered
        self._request = pb.AppendRequest(log=token.log, segment=token.segment, stream=token.stream)
        self._turn = 0

    async def run(self, timeout: float) -> Ack:
        """The Ack it had all along, or has now."""
        clock = self._world.clock
        deadline = clock.now() + timeout
        failures = 0
        why: VarlogError = Timeout("no time to send")
        while (left := deadline - clock.now()) > SHORTEST_ATTEMPT_SECONDS:
            try:
                return await self._attempt(left)
            except PASSING as error:
                why = error
                failures += 1
                self._routes.refresh_soon()
                wait = error.retry_after if isinstance(error, Overloaded) else pause(self._world, failures)
                await clock.sleep(min(wait, max(0.0, deadline - clock.now())))
        raise self._unknown(why.message) from why

    async def _attempt(self, left: float) -> Ack:
        route = self._route()
        if route.written_by_clients and self._token.slot is not None:
            return await self._look_there(route, self._token.slot, left)
        if route.written_by_clients and not self._numbered:
            raise Junk("it got no place in the log before its sender was told, so it has none: append it anew")
        node = route.members[route.first_to_know or 0]
        if route.end is not None:
            # Of a stream that has ended every member knows what is in it.
            self._turn += 1
            node = route.members[self._turn % len(route.members)]
        peer = await within(self._world.clock, left, self._pool.get(self._routes.place(node)))
        timeout = min(left, 4 * FIRST_ANSWER_SECONDS)
        try:
            reply = await peer.call(Method.APPEND, self._request, (self._token.batch,), timeout=timeout)
        except (ConnectionLost, Timeout, Unavailable, Overloaded):
            raise
        except Sealed as sealed:
            # A stream that has it says so before it says that it is sealed.
            raise self._routes.sealed or sealed from sealed
        except NotFound as missing:
            if route.end is None:
                raise self._unknown(missing.message) from missing
            raise Unavailable(missing.message) from missing  # it has not heard of the end yet
        except Gap as gap:
            raise self._unknown("batches of the same producer before it were never sent again") from gap
        except VarlogError as error:
            raise self._unknown(error.message) from error
        return self._ack(reply.message)

    async def _look_there(self, route: StreamRoute, slot: Slot, left: float) -> Ack:
        """What one member cannot tell another may; and no error of theirs says that it is not in the log."""
        try:
            return await within(self._world.clock, left, self._look(route, slot))
        except (*PASSING, Junk, Sealed):
            raise
        except (ReplicaFailed, NotFound, Corrupt) as error:
            raise Unavailable(error.message) from error
        except VarlogError as error:
            raise self._unknown(error.message) from error

    async def _look(self, route: StreamRoute, slot: Slot) -> Ack:
        """It was sent to one place: see that something is written there, and whether it is this."""
        stripes = self._routes.stripes(route)
        if route.end is None:
            try:
                # All of it: what is left of a batch that was given up would be another hole.
                end = Slot(slot + check_batch(self._token.batch).count)
                await Chain(self._context, route, stripes).complete(end)
            except Over:
                raise Unavailable("the segment is about to end") from None
        there = None
        if route.end is None or slot < route.end:
            self._turn += 1
            there = await header_at(self._context, route, slot, self._turn)
        if there is None or (there.producer, there.sequence) != (self._token.producer, self._token.sequence):
            raise Junk("it is not in the log, and its place was given up: append it anew")
        first = stripes.glsn(route.index, slot) + self._token.index
        return Ack(Glsn(first), Glsn(first + self._token.count - 1), route.id)

    def _ack(self, reply: pb.AppendReply) -> Ack:
        if not reply.glsn:
            raise self._unknown("it is in the log, at a position no longer remembered")
        first = reply.glsn + self._token.index
        count = reply.count if self._numbered else self._token.count
        return Ack(Glsn(first), Glsn(first + count - 1), self._token.stream)

    def _route(self) -> StreamRoute:
        for route in self._routes.streams:
            if (route.log, route.segment, route.id) == (self._token.log, self._token.segment, self._token.stream):
                return route
        raise self._unknown("the log has no such stream any more")

    def _unknown(self, why: str) -> OutcomeUnknown:
        error = OutcomeUnknown(why)
        error.token = self._token
        return error
