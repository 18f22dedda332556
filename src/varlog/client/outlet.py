"""Where a producer's batches go: one stream at a time, in order.

When that stream ends, what it refused goes on elsewhere. Without a name under another identity; with one under
the same, with the numbers that the batches had: the next stream is told with which it begins.
"""

import asyncio
from collections import deque
from hashlib import blake2b
from math import inf

from varlog.base import limits as shared
from varlog.base.errors import Fenced, NotFound, OutcomeUnknown, Sealed, Timeout, Unavailable, VarlogError
from varlog.base.ids import StreamId
from varlog.base.names import check_name
from varlog.client.chunk import Chunk
from varlog.client.claim import Claim
from varlog.client.context import LogContext
from varlog.client.errors import CLOSED, OWN_FAULT
from varlog.client.past import Past, ask_producer, find_batch, leave_others, look_back
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.client.session import Session
from varlog.client.writer import BatchWriter, Carried
from varlog.client.writers import Writer, make_writer
from varlog.runtime.scope import result_of


def producer_id(name: str) -> bytes:
    """The identity that a name stands for; the same everywhere and for ever."""
    return blake2b(name.encode(), digest_size=16, person=b"varlog producer").digest()


def stream_of_name(name: str, routes: list[StreamRoute]) -> StreamRoute:
    """The stream a name keeps to: the one with the highest hash, so that few names move when streams come and go."""
    return max(routes, key=lambda route: (blake2b(f"{name}/{route.id}".encode()).digest(), -route.id))


class Outlet:
    """The owner of a producer's writers."""

    def __init__(self, context: LogContext, name: str | None, stream: StreamId | None) -> None:
        self._context = context
        self._world = context.world
        self._name = None if name is None else check_name(name, "producer")
        self._stream = stream
        self._queue: deque[Chunk] = deque()
        self._writers: dict[StreamRoute, Writer] = {}
        self._current: Writer | None = None
        self._opening: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None
        self._resume_at = 0
        """Of a named one: the number that its stream began with or, while it moves, that of its next batch."""
        self._stranded: int | None = None
        """The lowest number that the stream of a named one refused because it has ended."""
        self._timeout = 0.0
        self._past = Past()
        self._claim: Claim | None = None
        self._scheduled = False
        self._closed = False
        self._broken: VarlogError | None = None
        self.opened = False

    # ------------------------------------------------------------ looking

    @property
    def named(self) -> bool:
        return self._name is not None

    @property
    def broken(self) -> VarlogError | None:
        """Why nothing more can be sent."""
        if self._broken is not None or self._current is None or self._leaving:
            return self._broken
        return self._current.broken

    @property
    def _leaving(self) -> bool:
        """A named one goes from a stream that has ended to another."""
        return self._moving is not None or self._stranded is not None

    @property
    def next_sequence(self) -> int:
        """What the next batch that is put gets, as long as the stream is the same."""
        if self._stranded is not None:
            return self._stranded + len(self._queue)
        if self._current is None or self._moving is not None:
            return self._resume_at + len(self._queue)
        return self._current.session.next_sequence + len(self._queue)

    def batches_of(self, entries: int) -> int:
        """How many batches so many entries make that were sent one by one, as long as the stream is the same."""
        most = self._most_entries
        return -(-entries // most) if most is not None else int(entries > 0)

    @property
    def _most_entries(self) -> int | None:
        """Of one batch on the present stream; None: as many as any batch may have."""
        return self._current.most_entries if self._current is not None else None

    async def identity(self, sequence: int) -> tuple[StreamRoute, bytes]:
        """Of a named one that was opened: its producer id, and the stream that has its batch of this number."""
        if self._current is None:
            raise Unavailable("the producer was not opened")
        producer = self._current.session.producer
        deadline = self._world.clock.now() + self._timeout
        while self._current.route.written_by_clients and self._is_pending(sequence):
            # Nobody there can say of it that it will be in the log, nor that it will not.
            if self._world.clock.now() >= deadline:
                raise OutcomeUnknown("the first time it was sent is not decided yet")
            await self._world.clock.sleep(pause(self._world, 1))
        if self.broken is not None:
            raise OutcomeUnknown(self.broken.message)
        if sequence < self._resume_at:
            await find_batch(self._context, self._past, producer, sequence, deadline)
        return self._past.stream_of(sequence) or self._current.route, producer

    def _is_pending(self, sequence: int) -> bool:
        """Whether a batch of this number waits to be sent, or is on its way."""
        on_their_way = self._current.session.unresolved if self._current is not None else {}
        return self.next_sequence - len(self._queue) <= sequence or sequence in on_their_way

    # ------------------------------------------------------------ opening

    async def open(self, timeout: float) -> None:
        """Find the log and, with a name, the stream and what it has; several who ask at once share the answer."""
        if self.opened:
            return
        if self._opening is None:
            self._opening = self._context.scope.spawn(self._open(timeout), name="open a producer")
        await result_of(self._opening, CLOSED)

    async def _open(self, timeout: float) -> None:
        self._timeout = timeout
        deadline = self._world.clock.now() + timeout
        try:
            await self._context.routes.resolve(timeout)
            if self._name is not None:
                await self._open_named(self._name, deadline)
            if self._closed:
                self.close(Unavailable(CLOSED))  # also what was begun since it was closed
                raise Unavailable(CLOSED)
            self._context.routes.listeners.append(self._changed)
            self._context.choice.listeners.append(self.has_room)
            self.opened = True
        finally:
            self._opening = None

    async def _own_stream(self, name: str, deadline: float) -> StreamRoute:
        while (routes := self._context.choice.candidates(self._stream)) is None:
            if self._world.clock.now() >= deadline:
                raise Timeout("which streams take entries is not known")
            await self._world.clock.sleep(pause(self._world, 1))
        return stream_of_name(name, routes)

    async def _open_named(self, name: str, deadline: float) -> None:
        """Go on with the stream that has the name's last batch; if that has ended, with another, in sequence."""
        producer = producer_id(name)
        claim = self._claim = Claim(self._context, producer)
        while True:
            try:
                past = self._past = await look_back(self._context, producer, deadline, claim, opening=True)
            except NotFound:
                self._context.choice.candidates(self._stream)  # a journal says what it is
                raise
            route = past.last if past.last is not None and past.last.writable else None
            if route is None or route.written_by_clients:
                route = await self._own_stream(name, deadline)
            if await self._goes_on(route, producer, past, deadline):
                return

    async def _goes_on(self, route: StreamRoute, producer: bytes, past: Past, deadline: float) -> bool:
        """Begin with this stream where the ones before it ended; False: it has ended before it heard of that, or
        others have more by now, or another segment has begun, in which the name is not claimed yet."""
        sequence = past.next_sequence
        if route.written_by_clients:
            if self._claim is None or not self._claim.holds(route):
                return False
        else:
            asked = await ask_producer(self._context, route, producer, deadline, begin=sequence)
            if asked.next_sequence < sequence:
                if self._world.clock.now() >= deadline:
                    raise Timeout(f"stream {route.id} has ended, and which one follows is not known")
                self._context.routes.refresh_soon()
                await self._world.clock.sleep(pause(self._world, 1))
                return False
            sequence = asked.next_sequence
            if await leave_others(self._context, route, producer, past.newest, deadline) > sequence:
                return False
        self._begin(route, producer, sequence)
        return True

    def _begin(self, route: StreamRoute, producer: bytes, sequence: int) -> None:
        """A named one sends to this stream from now on."""
        self._resume_at = sequence
        claim = self._claim.claim if self._claim is not None and route.written_by_clients else b""
        self._current = self._writers[route] = self._writer(route, Session(producer, sequence, claim))
        self._current.prepare()

    def _writer(self, route: StreamRoute, session: Session[Carried] | None = None) -> Writer:
        # Where a place may be lost to another, one at a time: they are in the log in the order in which they were sent.
        depth = 1 if route.written_by_clients else shared.PRODUCER_IN_FLIGHT
        return make_writer(self._context, route, self, depth=depth, session=session)

    # ------------------------------------------------------------ batches

    def put(self, chunk: Chunk) -> None:
        """Behind all that were put before."""
        self._queue.extend(
            chunk.parts(self._most_entries or chunk.count)
        )  # each is to have a number when the next one is given
        if not self._scheduled:
            self._push()

    def close(self, error: VarlogError) -> None:
        """Send nothing more; who still waits is told."""
        self._closed = True
        if self._claim is not None:
            self._claim.give_up()
        if self._moving is not None:
            self._moving.cancel()
        for listeners, own in (
            (self._context.routes.listeners, self._changed),
            (self._context.choice.listeners, self.has_room),
        ):
            if own in listeners:
                listeners.remove(own)
        queue, self._queue = self._queue, deque()
        for chunk in queue:
            chunk.fail(Unavailable(error.message))
        for writer in self._writers.values():
            for flight in writer.close():
                flight.batch.doubtful(error)

    def _push(self) -> None:
        """Give batches to the writer while it takes them."""
        self._scheduled = False
        while self._queue:
            if self._queue[0].ended:
                self._queue.popleft()
                continue
            try:
                writer = self._choose()
            except VarlogError as error:
                self._fail_all(error)
                return
            if writer is None:
                return
            chunk = self._queue.popleft()
            if writer.most_entries is not None and len(parts := chunk.parts(writer.most_entries)) > 1:
                self._queue.extendleft(reversed(parts))
                continue
            if chunk.number not in (None, writer.session.next_sequence):
                # The segment has changed, and what was sent before makes more batches there.
                self._broken = Unavailable(
                    f"number {chunk.number} went to another batch: open the producer again, go on from `next_sequence`"
                )
                self._queue.appendleft(chunk)
                self._fail_all(self._broken)
                return
            chunk.route = writer.route
            writer.submit(chunk)

    def _choose(self) -> Writer | None:
        if self.broken is not None:
            raise self.broken
        if self._moving is not None:
            return None
        routes = self._context.choice.candidates(self._stream)
        if routes is None:
            return None
        current = self._current
        if self.named:
            if current is None:
                raise Unavailable("the producer was not opened")
            if self._stranded is not None or current.route not in routes:
                if current.idle:
                    self._move(current)
                return None  # what is on its way is answered first
        if current is not None and current.route in routes and (self.named or not _given_up(current)):
            if current.ready:
                return current
            current.prepare()
            return None
        if current is not None and any(not batch.ended for batch in _carried(current)):
            # Somebody else was refused there, perhaps. What is on its way must not be overtaken elsewhere.
            return None
        return self._choose_other([route for route in routes if current is None or route != current.route] or routes)

    def _choose_other(self, routes: list[StreamRoute]) -> Writer | None:
        ready = []
        for route in routes:
            writer = self._writers.get(route)
            if writer is None:
                writer = self._writers[route] = self._writer(route)
            if writer.ready:
                ready.append(writer)
            else:
                writer.prepare()
        if ready:
            self._current = self._world.random.choice(ready)
            return self._current
        return None

    def _fail_all(self, error: VarlogError) -> None:
        queue, self._queue = self._queue, deque()
        for chunk in queue:
            chunk.fail(error)

    # ------------------------------------------------------------ from writers

    def _changed(self) -> None:
        for route, writer in list(self._writers.items()):
            writer.look()
            if writer.idle and writer is not self._current and route not in self._context.routes.streams:
                writer.close()
                del self._writers[route]
        self.has_room()

    def has_room(self) -> None:
        if self._queue and not self._scheduled and not self._closed:
            self._push()

    def refused(self, writer: BatchWriter, batch: Carried, error: VarlogError, behind: list[Carried]) -> None:
        assert isinstance(batch, Chunk)
        if self.named and isinstance(error, Sealed) and writer is self._current:
            self._context.choice.refuse(writer.route, error)
            self._strand([batch, *behind], error)
        elif self.named or isinstance(error, OWN_FAULT):
            batch.fail(error)
            self.returned(writer, behind)
        else:
            self._context.choice.refuse(writer.route, error)
            self.returned(writer, [batch, *behind])

    def _strand(self, batches: list[Carried], error: VarlogError) -> None:
        """To be sent elsewhere with the numbers they have, once those before them are answered."""
        chunks = [batch for batch in batches if isinstance(batch, Chunk)]
        self._queue.extendleft(reversed(chunks))
        self._stranded = chunks[0].sequence
        if any(chunk.ended for chunk in chunks):
            # One was given up. What is behind it would get its number, which the application may give to it again.
            self._broken = self._broken or Unavailable(
                f"a batch of this producer is not in the log, open it again: {error.message}"
            )
        self._push_soon()

    def _move(self, writer: Writer) -> None:
        """The stream of a named producer has ended: find another for the batches that come next."""
        sequence = writer.session.next_sequence if self._stranded is None else self._stranded
        self._stranded = None
        if self._resume_at < sequence:
            self._past.known.append((self._resume_at, sequence, writer.route))
        self._resume_at = sequence
        deadline = self._world.clock.now() + self._timeout
        self._moving = self._context.scope.spawn(self._find_another(sequence, deadline), name="move a producer")

    async def _find_another(self, sequence: int, deadline: float) -> None:
        assert self._name is not None
        assert self._claim is not None
        producer = producer_id(self._name)
        try:
            while True:
                past = await look_back(self._context, producer, deadline, self._claim, opening=False)
                refuse_if_followed(sequence, past.next_sequence)
                if await self._goes_on(await self._own_stream(self._name, deadline), producer, past, deadline):
                    break
            refuse_if_followed(sequence, self._resume_at)
        except VarlogError as error:
            self._broken = error
        self._moving = None
        if not self._closed:
            self._push()

    def returned(self, writer: BatchWriter, batches: list[Carried]) -> None:
        for batch in reversed(batches):
            assert isinstance(batch, Chunk)
            if writer.broken is not None:
                batch.fail(writer.broken)
            elif not batch.ended:
                self._queue.appendleft(batch)
        self._push_soon()

    def _push_soon(self) -> None:
        """What is in the queue goes on when everybody has heard of what happened."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._push)

    # ------------------------------------------------------------ deadlines

    def expire(self, now: float) -> None:
        """Tell those whose time is up."""
        late = [each for each in self._queue if each.deadline <= now]
        for chunk in late:
            chunk.fail(Timeout("not sent in time: the stream takes nothing"))
        if late and self.named:
            # What is behind it would get its number: one that the application may give to it again.
            self._broken = Unavailable("a batch before it was not sent in time: open the producer again")
            self._fail_all(self._broken)
        for chunk in self._on_their_way():
            if chunk.deadline <= now:
                chunk.doubtful(Timeout("sent, and not answered in time"))
        self._queue = deque(each for each in self._queue if not each.ended)
        self.has_room()

    def earliest_deadline(self) -> float:
        """Of those who still wait."""
        waiting = [*self._queue, *self._on_their_way()]
        return min((each.deadline for each in waiting if not each.ended), default=inf)

    def _on_their_way(self) -> list[Chunk]:
        return [chunk for writer in self._writers.values() for chunk in _carried(writer)]


def refuse_if_followed(sequence: int, found: int) -> None:
    """Of a named one that goes on elsewhere with the batch `sequence`; `found` is what the log has of it."""
    if found != sequence:
        raise Fenced(
            f"the next batch of this producer is {sequence}, the log has {found}: another of its name has sent since, "
            "open it again"
        )


def _given_up(writer: Writer) -> bool:
    """It answers nothing, and nobody waits for it any more."""
    return writer.stalled and all(chunk.ended for chunk in _carried(writer))


def _carried(writer: Writer) -> list[Chunk]:
    """What a writer has not seen to its end."""
    found = []
    for session in writer.sessions():
        for flight in session.unresolved.values():
            assert isinstance(flight.batch, Chunk)
            found.append(flight.batch)
    return found
