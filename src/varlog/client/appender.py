"""All single appends and atomic batches of one log: gathered, given a stream, carried, answered.

    append --> lane --gather--> batch --> StreamWriter --> primary
               (any stream,               (one per stream,
                or a chosen one)           a few batches on their way)

Appends that wait at the same time travel as one batch: those of one turn of the event loop, and those
that come while all batches a stream may have on their way are on their way. Each append gets its own
Ack by its index. The deadline of an append ends the wait of its caller; what was already sent stays
with its stream, whose writer sees it to its end, and the caller is told that the outcome is unknown.
"""

import asyncio
from collections import deque
from math import inf

from varlog.base import limits
from varlog.base.errors import OutcomeUnknown, Timeout, Unavailable, VarlogError
from varlog.base.ids import Glsn, ProducerToken, StreamId
from varlog.client.columns import Columns, joined
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.errors import OWN_FAULT, again
from varlog.client.limits import APPEND_BYTES, APPENDS_IN_FLIGHT, GATHER_BYTES, GATHER_ENTRIES, SPLIT_APPENDS
from varlog.client.room import Room
from varlog.client.routes import StreamRoute
from varlog.client.writer import Carried, StreamWriter
from varlog.transport.deadlines import Deadlines
from varlog.wire.batch import Batch, encode_batch, stamp_batch


class _Append:
    """One call that waits for its Ack."""

    __slots__ = ("columns", "compress", "cost", "count", "data", "deadline", "future", "index")

    def __init__(self, columns: Columns, compress: bool, deadline: float, future: "asyncio.Future[Ack]") -> None:
        self.columns: Columns | None = columns
        self.compress = compress
        self.cost = columns.cost
        self.count = len(columns.payloads)
        self.deadline = deadline
        self.future = future
        self.index = 0
        """Of its first entry in the batch it travels in."""
        self.data: bytes | None = None
        """Encoded already: too large to travel with others."""


class _Lane:
    """Appends for any stream, or for a chosen one, in order of arrival."""

    __slots__ = ("pending", "scheduled", "stream")

    def __init__(self, stream: StreamId | None) -> None:
        self.stream = stream
        self.pending: deque[_Append] = deque()
        self.scheduled = False


class _Gathered:
    """Appends on their way as one batch."""

    __slots__ = ("_appender", "_data", "appends", "cost", "count", "lane", "producer", "route", "sequence", "told")

    def __init__(self, appender: "Appender", lane: _Lane, appends: list[_Append], route: StreamRoute) -> None:
        self._appender = appender
        self._data: bytes | None = appends[0].data
        self.lane = lane
        self.appends = appends
        self.route = route
        self.cost = sum(each.cost for each in appends)
        self.count = 0
        for each in appends:
            each.index = self.count
            self.count += each.count
        self.producer = b""
        self.sequence = 0
        self.told = False
        """A token of this batch was given out: whoever has it may send the whole batch again, at any time."""

    @property
    def data(self) -> bytes:
        return self._data or b""

    def stamp(self, producer: bytes, sequence: int) -> None:
        self.producer, self.sequence = producer, sequence
        if self._data is not None:
            self._data = stamp_batch(self._data, producer, sequence)
            return
        columns = joined([each.columns for each in self.appends if each.columns is not None])
        self._data = encode_batch(
            columns.payloads,
            keys=columns.keys,
            headers=columns.headers,
            producer=producer,
            sequence=sequence,
            time_us=self._appender.wall_us(),
            compress=self.appends[0].compress,
        )
        for each in self.appends:
            each.columns = None

    def acked(self, first: Glsn, route: StreamRoute) -> None:
        stream = route.id
        for each in self.appends:
            if not each.future.done():
                start = first + each.index
                each.future.set_result(Ack(Glsn(start), Glsn(start + each.count - 1), stream))
        self._appender.acked(self, first)

    def doubtful(self, error: VarlogError) -> None:
        for each in self.appends:
            if not each.future.done():
                each.future.set_exception(self.unknown(each, error.message))
        self._appender.leave(self.cost)

    def unknown(self, append: _Append, why: str) -> OutcomeUnknown:
        self.told = True
        error = OutcomeUnknown(why)
        error.token = ProducerToken(
            self.producer,
            self.sequence,
            self.route.id,
            self.route.log,
            self.route.segment,
            append.index,
            append.count,
            self.data,
        )
        return error

    def fail(self, error: VarlogError) -> None:
        """Certainly not in the log."""
        for each in self.appends:
            if not each.future.done():
                each.future.set_exception(again(error))
        self._appender.leave(self.cost)

    def dissolve(self) -> list[_Append]:
        """The appends as they were before they were gathered."""
        if self.appends[0].data is None:
            batch = Batch(self.data)
            payloads, keys, headers = batch.payloads(), batch.keys(), batch.headers()
            for each in self.appends:
                end = each.index + each.count
                part = slice(each.index, end)
                has_keys = any(key is not None for key in keys[part])
                each.columns = Columns(
                    payloads[part],
                    keys[part] if has_keys else None,
                    list(headers[part]) if any(headers[part]) else None,
                    each.cost,
                )
        return self.appends


class Appender:
    """The one path of a log's appends."""

    def __init__(self, context: LogContext) -> None:
        self._context = context
        self._world = context.world
        self._routes = context.routes
        self._choice = context.choice
        self._hints = context.hints
        self._room = Room(self._world.clock, APPEND_BYTES)
        self._lanes: dict[StreamId | None, _Lane] = {}
        self._writers: dict[StreamRoute, StreamWriter] = {}
        self._deadlines = Deadlines(self._world.clock, self._expire)
        self._closed: VarlogError | None = None
        self.wall_us = self._world.clock.wall_us
        self._routes.listeners.append(self.has_room)
        self._choice.listeners.append(self.has_room)

    # ------------------------------------------------------------ for the log

    async def append(self, columns: Columns, stream: StreamId | None, compress: bool, timeout: float) -> Ack:
        """Carry entries into the log; they get consecutive positions."""
        loop = asyncio.get_running_loop()
        now = self._world.clock.now()
        deadline = now + timeout
        if self._routes.info is None:
            await self._routes.resolve(timeout)
        if not self._room.try_enter(columns.cost):
            await self._room.enter(columns.cost, max(0.0, deadline - self._world.clock.now()))
        append = _Append(columns, compress, deadline, loop.create_future())
        if columns.cost > limits.BATCH_BYTES:
            self._encode_alone(append, columns)
        if self._closed is not None:
            self._room.leave(append.cost)
            raise self._closed
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = _Lane(stream)
        lane.pending.append(append)
        if not lane.scheduled:
            lane.scheduled = True
            loop.call_soon(self._turn, lane)
        if deadline < self._deadlines.at:
            self._deadlines.announce(deadline, now)
        return await append.future

    def _encode_alone(self, append: _Append, columns: Columns) -> None:
        """Whether so much fits a batch is known when it is done."""
        try:
            data = encode_batch(
                columns.payloads,
                keys=columns.keys,
                headers=columns.headers,
                time_us=self.wall_us(),
                compress=append.compress,
            )
        except VarlogError:
            self._room.leave(append.cost)
            raise
        append.data, append.columns = data, None

    def find(self, token: ProducerToken) -> "asyncio.Future[Ack] | None":
        """The outcome of a send that is still open here, if it is."""
        for writer in self._writers.values():
            for session in writer.sessions():
                flight = session.unresolved.get(token.sequence)
                if session.producer == token.producer and flight is not None:
                    batch = flight.batch
                    assert isinstance(batch, _Gathered)
                    writer.hurry(session)
                    return self._join(batch, token)
        return None

    def _join(self, batch: _Gathered, token: ProducerToken) -> "asyncio.Future[Ack]":
        """Wait for a batch that is on its way, together with those who wait already."""
        for each in batch.appends:
            if each.index == token.index and not each.future.done():
                return each.future
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        append = _Append(Columns([b""] * token.count, None, None, 0), False, inf, future)
        append.index = token.index
        append.columns = None
        batch.appends.append(append)
        return future

    def close(self) -> None:
        """End every wait: what was sent is of unknown outcome, what was not is not in the log."""
        self._closed = Unavailable("the connection to the cluster was closed")
        self._deadlines.close()
        self._room.close(self._closed)
        for lane in self._lanes.values():
            self._fail_lane(lane, self._closed)
        for writer in self._writers.values():
            for flight in writer.close():
                flight.batch.doubtful(OutcomeUnknown(self._closed.message))

    # ------------------------------------------------------------ from lanes to writers

    def _turn(self, lane: _Lane) -> None:
        lane.scheduled = False
        self._flush(lane)

    def _flush(self, lane: _Lane) -> None:
        most = max(SPLIT_APPENDS, -(-len(lane.pending) // APPENDS_IN_FLIGHT))
        while lane.pending:
            try:
                writer = self._choose(lane)
            except VarlogError as error:
                self._fail_lane(lane, error)
                return
            if writer is None:
                return
            appends = self._gather(lane, most)
            if appends:
                writer.submit(_Gathered(self, lane, appends, writer.route))

    def _choose(self, lane: _Lane) -> StreamWriter | None:
        routes = self._choice.candidates(lane.stream)
        if routes is None:
            return None
        ready = []
        for route in routes:
            writer = self._writer(route)
            if writer.ready:
                ready.append(writer)
            else:
                writer.prepare()
        if len(ready) > 1:
            return self._world.random.choice(ready)
        return ready[0] if ready else None

    def _writer(self, route: StreamRoute) -> StreamWriter:
        writer = self._writers.get(route)
        if writer is None:
            writer = StreamWriter(self._context, route, self, depth=APPENDS_IN_FLIGHT)
            self._writers[route] = writer
        return writer

    def _gather(self, lane: _Lane, most: int) -> list[_Append]:
        """Up to `most`, as fit one batch; those that nobody waits for any more are dropped."""
        taken: list[_Append] = []
        size = entries = 0
        pending = lane.pending
        while pending:
            append = pending[0]
            if append.future.done():
                self._room.leave(append.cost)
            elif taken and (
                len(taken) == most
                or size + append.cost > GATHER_BYTES
                or entries + append.count > GATHER_ENTRIES
                or append.compress != taken[0].compress
                or append.data is not None
                or taken[0].data is not None
            ):
                break
            else:
                taken.append(append)
                size += append.cost
                entries += append.count
            pending.popleft()
        return taken

    def _fail_lane(self, lane: _Lane, error: VarlogError) -> None:
        pending, lane.pending = lane.pending, deque()
        for append in pending:
            if not append.future.done():
                append.future.set_exception(again(error))
            self._room.leave(append.cost)

    # ------------------------------------------------------------ from writers

    def has_room(self) -> None:
        for lane in self._lanes.values():
            if lane.pending and not lane.scheduled:
                self._flush(lane)

    def refused(self, writer: StreamWriter, batch: Carried, error: VarlogError, behind: list[Carried]) -> None:
        assert isinstance(batch, _Gathered)
        if isinstance(error, OWN_FAULT):
            batch.fail(error)
            self.returned(writer, behind)
        else:
            self._choice.refuse(writer.route, error)
            self.returned(writer, [batch, *behind])

    def returned(self, writer: StreamWriter, batches: list[Carried]) -> None:
        for batch in reversed(batches):
            assert isinstance(batch, _Gathered)
            if batch.told:
                # Under another identity its entries could get there twice: by us, and by who has the token.
                batch.doubtful(OutcomeUnknown("the stream refused the append, which may have been sent again since"))
            else:
                batch.lane.pending.extendleft(reversed(batch.dissolve()))
        for lane in self._lanes.values():
            if lane.pending and not lane.scheduled:
                lane.scheduled = True
                asyncio.get_running_loop().call_soon(self._turn, lane)

    def acked(self, batch: _Gathered, first: Glsn) -> None:
        self._hints.add(first, batch.count, batch.route.id)
        self._room.leave(batch.cost)

    def leave(self, cost: int) -> None:
        self._room.leave(cost)

    # ------------------------------------------------------------ deadlines

    def _expire(self, now: float) -> float:
        """End what is due; the earliest deadline that is left."""
        following = inf
        for lane in self._lanes.values():
            for append in lane.pending:
                if append.deadline <= now and not append.future.done():
                    append.future.set_exception(Timeout("the append was not sent in time: no stream took it"))
                elif not append.future.done():
                    following = min(following, append.deadline)
        for writer in self._writers.values():
            for session in writer.sessions():
                for flight in session.unresolved.values():
                    assert isinstance(flight.batch, _Gathered)
                    following = min(following, _expire_batch(flight.batch, now))
        return following


def _expire_batch(batch: _Gathered, now: float) -> float:
    following = inf
    for append in batch.appends:
        if append.future.done():
            continue
        if append.deadline <= now:
            append.future.set_exception(batch.unknown(append, "the append was sent, and not answered in time"))
        else:
            following = min(following, append.deadline)
    return following


def _retrieve(future: "asyncio.Future[Ack]") -> None:
    """Whoever asked may have given up waiting; then nobody else looks at the error."""
    if not future.cancelled():
        future.exception()
