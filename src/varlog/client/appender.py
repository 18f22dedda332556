"""All single appends and atomic batches of one log: gathered, given a stream, carried, answered.

    append --> lane --gather--> batch --> writer --> primary
               (any stream,               (one per stream,
                or a chosen one)           a few batches on their way)

Appends that wait at the same time travel as one batch: those of one turn of the event loop, and those
that come while all batches a stream may have on their way are on their way. Each append gets its own
Ack by its index. The deadline of an append ends the wait of its caller; what was already sent stays
with its stream, whose writer sees it to its end, and the caller is told that the outcome is unknown.
"""

import asyncio
from math import inf

from varlog.base import limits
from varlog.base.errors import OutcomeUnknown, Timeout, Unavailable, VarlogError
from varlog.base.ids import Glsn, ProducerToken
from varlog.client.columns import ENTRY_OVERHEAD_BYTES, Columns
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.errors import CLOSED, OWN_FAULT, again, unsupported
from varlog.client.gathered import Gathered
from varlog.client.lane import Lane
from varlog.client.limits import (
    APPEND_BYTES,
    APPENDS_IN_FLIGHT,
    EAGER_APPENDS,
    FULL_IN_FLIGHT,
    GATHER_BYTES,
    SHARE_APPENDS,
)
from varlog.client.room import Room
from varlog.client.routes import StreamRoute
from varlog.client.writer import BatchWriter, Carried
from varlog.client.writers import Writer, make_writer
from varlog.transport.deadlines import Deadlines
from varlog.wire.batch import encode_batch


class Appender:
    """The one path of a log's appends."""

    def __init__(self, context: LogContext) -> None:
        self._context = context
        self._world = context.world
        self._routes = context.routes
        self._choice = context.choice
        self._hints = context.hints
        self._room = Room(self._world.clock, APPEND_BYTES)
        self._now = self._world.clock.now
        self._lanes: dict[int | None, Lane] = {}
        self._conditional: list[Lane] = []
        """One for each append that may get one position only: these travel alone."""
        self._writers: dict[StreamRoute, Writer] = {}
        self._deadlines = Deadlines(self._world.clock, self._expire)
        self._closed: VarlogError | None = None
        self._routes.listeners.append(self._changed)
        self._choice.listeners.append(self.has_room)

    # ------------------------------------------------------------ for the log

    def try_append(self, payload: bytes, stream: int | None, timeout: float) -> "asyncio.Future[Ack] | None":
        """Take an entry, if it simply goes behind the last one that waits; else nothing is done."""
        lane = self._lanes.get(stream)
        if lane is None or self._routes.info is None:
            return None
        last, room = lane.last, self._room
        cost = len(payload) + ENTRY_OVERHEAD_BYTES
        used = room.used + cost  # what `try_enter` does, without a call for every entry
        if last.cost + cost > GATHER_BYTES or last.compress or used > room.limit or room.waiting:
            return None
        room.used = used
        future = lane.new_future()
        deadline = self._now() + timeout
        last.payloads.append(payload)
        last.futures.append(future)
        last.deadlines.append(deadline)
        last.cost += cost
        if not lane.scheduled or deadline < self._deadlines.at:
            self._arrange(lane, deadline)
        if len(last.futures) == EAGER_APPENDS:
            self._flush(lane)
        return future

    async def append(
        self, columns: Columns, stream: int | None, compress: bool, timeout: float, expect: int | None = None
    ) -> Ack:
        """Append entries at consecutive positions, waiting for whatever it takes; with `expect` only from there on."""
        clock = self._world.clock
        deadline = clock.now() + timeout
        if self._routes.info is None:
            await self._routes.resolve(timeout)
        await self._room.enter(columns.cost, max(0.0, deadline - clock.now()))
        try:
            data = self._encode_alone(columns, compress) if columns.cost > limits.BATCH_BYTES else None
            if self._closed is not None:
                raise again(self._closed)
        except VarlogError:
            self._room.leave(columns.cost)
            raise
        lane = self._lane(stream) if expect is None else self._conditional_lane(stream, expect)
        future = lane.new_future()
        lane.add(columns, data, compress, deadline, future)
        self._arrange(lane, deadline)
        try:
            return await future
        finally:
            if expect is not None:
                self._conditional.remove(lane)
                self._drop(lane)  # nobody else looks there any more

    def _lane(self, stream: int | None) -> Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = Lane(stream, asyncio.get_running_loop().create_future)
        return lane

    def _conditional_lane(self, stream: int | None, expect: int) -> Lane:
        lane = Lane(stream, asyncio.get_running_loop().create_future, expect)
        self._conditional.append(lane)
        return lane

    def _all_lanes(self) -> list[Lane]:
        return [*self._lanes.values(), *self._conditional]

    def _arrange(self, lane: Lane, deadline: float) -> None:
        """An append has come: see that it goes, and that it ends in time."""
        if not lane.scheduled:
            lane.scheduled = True
            asyncio.get_running_loop().call_soon(self._turn, lane)
        if deadline < self._deadlines.at:
            self._deadlines.announce(deadline, self._now())

    def _encode_alone(self, columns: Columns, compress: bool) -> bytes:
        """Whether so much fits a batch is known when it is done."""
        return encode_batch(
            columns.payloads, keys=columns.keys, headers=columns.headers, time_us=self.wall_us(), compress=compress
        )

    def find(self, token: ProducerToken, timeout: float) -> "asyncio.Future[Ack] | None":
        """The outcome of a send that is still open here, if it is, for somebody who waits so long."""
        for writer in self._writers.values():
            for session in writer.sessions():
                flight = session.unresolved.get(token.sequence)
                if session.producer == token.producer and flight is not None:
                    batch = flight.batch
                    assert isinstance(batch, Gathered)
                    writer.hurry(session)
                    deadline = self._now() + timeout
                    if deadline < self._deadlines.at:
                        self._deadlines.announce(deadline, self._now())
                    return batch.join(token, deadline)
        return None

    def close(self) -> None:
        """End every wait: what was sent is of unknown outcome, what was not is not in the log."""
        self._closed = Unavailable(CLOSED)
        self._deadlines.close()
        self._room.close(self._closed)
        for lane in self._all_lanes():
            self._fail_lane(lane, self._closed)
        self._lanes.clear()
        for writer in self._writers.values():
            for flight in writer.close():
                flight.batch.doubtful(OutcomeUnknown(self._closed.message))

    # ------------------------------------------------------------ from lanes to writers

    def _turn(self, lane: Lane) -> None:
        lane.scheduled = False
        self._flush(lane)

    def _flush(self, lane: Lane) -> None:
        most = 0
        while lane.last.futures or lane.before:
            try:
                ready = self._ready(lane)
            except VarlogError as error:
                self._fail_lane(lane, error)
                return
            if not ready:
                return
            if lane.expect is not None and not ready[0].route.written_by_clients:
                self._fail_lane(lane, unsupported("conditional_append", ready[0].route.ordering))
                return
            if not most:
                many = lane.before or len(lane.last.futures) > SHARE_APPENDS
                most = max(SHARE_APPENDS, -(-len(lane) // len(ready))) if many else SHARE_APPENDS
            taken = lane.take(most, ready[0].most_entries)
            appends = taken.awaited()
            if appends is not taken:
                self._room.leave(taken.cost - appends.cost)
            if appends.futures:
                writer = ready[0] if len(ready) == 1 else self._world.random.choice(ready)
                writer.submit(Gathered(self, lane, appends, writer.route))

    def _ready(self, lane: Lane) -> list[Writer]:
        """The streams that can take a batch of this lane just now."""
        ready = []
        depth = FULL_IN_FLIGHT if lane.full else APPENDS_IN_FLIGHT
        for route in self._choice.candidates(lane.stream) or ():
            writer = self._writer(route)
            if writer.ready and writer.carries < depth:
                ready.append(writer)
            else:
                writer.prepare()
        return ready

    def _writer(self, route: StreamRoute) -> Writer:
        writer = self._writers.get(route)
        if writer is None:
            writer = make_writer(self._context, route, self, depth=FULL_IN_FLIGHT)
            self._writers[route] = writer
        return writer

    def _fail_lane(self, lane: Lane, error: VarlogError) -> None:
        for appends in lane.take_all():
            appends.fail(lambda _, __: again(error))
            self._room.leave(appends.cost)

    def _drop(self, lane: Lane) -> None:
        """Nobody waits for what is there."""
        for appends in lane.take_all():
            self._room.leave(appends.cost)

    def _changed(self) -> None:
        """The log's streams may be others now; writers of those that are gone end with their last batch."""
        for route, writer in list(self._writers.items()):
            writer.look()
            if writer.idle and route not in self._routes.streams:
                writer.close()
                del self._writers[route]
        self.has_room()

    # ------------------------------------------------------------ from writers

    def has_room(self) -> None:
        for lane in self._all_lanes() if self._conditional else self._lanes.values():
            if not lane.scheduled and (lane.last.futures or lane.before):
                self._flush(lane)

    def refused(self, writer: BatchWriter, batch: Carried, error: VarlogError, behind: list[Carried]) -> None:
        assert isinstance(batch, Gathered)
        if isinstance(error, OWN_FAULT):
            batch.fail(error)
            self.returned(writer, behind)
        else:
            self._choice.refuse(writer.route, error)
            self.returned(writer, [batch, *behind])

    def returned(self, writer: BatchWriter, batches: list[Carried]) -> None:
        for batch in reversed(batches):
            assert isinstance(batch, Gathered)
            if batch.told:
                # Under another identity its entries could get there twice: by us, and by who has the token.
                batch.doubtful(OutcomeUnknown("the stream refused the append, which may have been sent again since"))
            elif batch.expect is not None and batch.lane not in self._conditional:
                self._room.leave(batch.cost)  # its caller has gone, and its lane with him
            else:
                batch.lane.put_back(batch.dissolve())
        for lane in self._all_lanes():
            if lane and not lane.scheduled:
                lane.scheduled = True
                asyncio.get_running_loop().call_soon(self._turn, lane)

    def acked(self, batch: Gathered, first: Glsn) -> None:
        self._hints.add(first, batch.count, batch.route.id)
        self._room.leave(batch.cost)

    def leave(self, cost: int) -> None:
        self._room.leave(cost)

    def wall_us(self) -> int:
        return self._world.clock.wall_us()

    # ------------------------------------------------------------ deadlines

    def _expire(self, now: float) -> float:
        """End what is due; the earliest deadline that is left."""
        following = inf
        for lane in self._all_lanes():
            for appends in lane:
                following = min(following, appends.fail(_not_sent, now))
        for writer in self._writers.values():
            for session in writer.sessions():
                for flight in session.unresolved.values():
                    assert isinstance(flight.batch, Gathered)
                    following = min(following, flight.batch.expire(now))
        return following


def _not_sent(_: int, __: int) -> VarlogError:
    return Timeout("the append was not sent in time: no stream took it")
