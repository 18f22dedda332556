"""One stream under the `sequencer` ordering, as clients write it: member after member, each slot once (W9, W10, W15).

    head   7 8 9 .     decides what is at a slot: the first batch that comes, or junk
    next   7 8 . .     gets what the head has
    last   7 . . .     what it has all have: it is in the log

Whoever finds a slot half written carries it on: its value is at the head. A slot that even the head lacks was
granted to somebody who may be slow, or dead: after `FILL_SECONDS` it is filled with junk. Which of the two gets
there first the head decides, and who comes second carries on what is there. So a writer that waits behind a gap, a
reader that needs what lies behind one, and a question for the tail all do the same work, and none waits for ever.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice

from varlog.base.errors import (
    ConnectionLost,
    Corrupt,
    Gap,
    NotFound,
    Overloaded,
    ReplicaFailed,
    Sealed,
    Taken,
    Timeout,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import Slot
from varlog.base.limits import BATCH_ENTRIES
from varlog.client.context import LogContext
from varlog.client.limits import FILL_SECONDS, FILL_STEP_SECONDS, STORE_SECONDS
from varlog.client.repository import pause
from varlog.client.routes import StreamRoute
from varlog.core.ordering.sequencer import Stripes
from varlog.runtime.timeout import within
from varlog.transport.peer import Peer
from varlog.wire.batch import check_batch, junk_batch
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

PASSING = (ConnectionLost, Timeout, Unavailable, Overloaded, NotFound, ReplicaFailed, Corrupt)
"""Errors of a member after which it is asked again, as long as the segment has not ended: it may come back, or be
replaced, with which the segment ends. What has rotted on it before others got it was never acknowledged."""
MOST_PIECES = 4096
"""Of junk, in one message."""


class Lost(Exception):
    """The slot holds something else, for good: all members have that by now."""


class Over(Exception):
    """The segment takes no more."""


class Chain:
    """The members of one stream."""

    def __init__(self, context: LogContext, route: StreamRoute, stripes: Stripes) -> None:
        self.route = route
        self.committed = Slot(0)
        """What the last member is known to have."""
        self._context = context
        self._clock = context.world.clock
        self._stripes = stripes
        self._last = len(route.members) - 1
        self._told = Slot(0)

    # ------------------------------------------------------------ writing

    async def write(self, slot: Slot, data: Buffer, count: int) -> None:
        """Store a batch at its slot on all members, in order; raises `Lost` or `Over`."""
        for place in range(self._last + 1):
            await self._write_at(place, slot, data)
        self.committed = max(self.committed, Slot(slot + count))

    async def _write_at(self, place: int, slot: Slot, data: Buffer) -> None:
        failures = 0
        while True:
            try:
                await self._store(place, slot, [data])
            except Gap as gap:
                await self._mend(place, Slot(gap.expected), slot)
            except Taken as taken:
                if place:
                    raise Corrupt(f"member {place} of stream {self.route.id} differs from its head", slot) from taken
                await self.complete(Slot(slot + 1))
                raise Lost from taken
            except Sealed as sealed:
                raise Over from sealed
            except PASSING as error:
                failures += 1
                await self._wait(error, failures)
            else:
                return

    async def _mend(self, place: int, missing: Slot, before: Slot) -> None:
        """A member waits for slots from `missing` on: the one before it has them, or they are overdue at the head."""
        try:
            if place:
                await self._copy(place, missing, before)
            elif await self._is_overdue(missing):
                await self._fill(missing, before)
        except Sealed as sealed:
            raise Over from sealed
        except Gap:
            pass  # it has moved on
        except PASSING as error:
            await self._wait(error, 1)

    async def fill(self, slot: Slot, end: Slot) -> None:
        """Fill slots that were granted to us, and that we have no use for; raises `Over`."""
        for at, count in self._pieces(slot, end):
            try:
                await self.write(at, junk_batch(count), count)
            except Lost:
                pass  # somebody else has

    async def _wait(self, error: VarlogError, failures: int) -> None:
        """Before a member is asked again; raises `Over` as soon as there is no use in it."""
        self._context.routes.refresh_soon()
        seconds = error.retry_after if isinstance(error, Overloaded) else pause(self._context.world, failures)
        await self._pause(seconds)
        if self._is_over():
            raise Over

    async def _pause(self, seconds: float) -> None:
        """For so long, or until it is heard that the segment has ended."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if self._is_over() and not over.done():
                over.set_result(None)

        listeners = self._context.routes.listeners
        listeners.append(look)
        try:
            look()
            await within(self._clock, seconds, over)
        except Timeout:
            pass  # it has not
        finally:
            listeners.remove(look)

    def _is_over(self) -> bool:
        routes = self._context.routes
        now = routes.now(self.route)
        return routes.info is None or now not in routes.streams or not now.writable

    # ------------------------------------------------------------ completing

    async def complete(self, need: Slot) -> None:
        """See to it that the last member has all slots below `need`; raises `Over`."""
        failures = 0
        patient = True
        while need:
            try:
                status = await self._status(self._last)
                self.committed = max(self.committed, Slot(status.contiguous))
                if status.committed >= need:
                    break
                if self.committed >= need:
                    continue  # it did not know where the segment begins: asked again, it does
                if patient:  # most likely somebody is just writing them
                    patient = False
                    await self._clock.sleep(FILL_STEP_SECONDS)
                else:
                    await self._complete(need)
            except Sealed as sealed:
                raise Over from sealed
            except Gap:
                pass  # it has moved on
            except PASSING as error:
                failures += 1
                await self._wait(error, failures)
        self.tell()

    async def _complete(self, need: Slot) -> None:
        head = Slot((await self._status(0)).contiguous)
        for place in range(1, self._last + 1):
            has = Slot((await self._status(place)).contiguous)
            if has < min(need, head):
                await self._copy(place, has, min(need, head))
        if head < need and await self._is_overdue(head):
            await self._fill(head, need)

    async def _copy(self, place: int, start: Slot, end: Slot) -> None:
        """Give a member what the one before it has."""
        peer = await self._peer(place - 1)
        request = self._read(start)
        async with peer.stream(Method.READ, request, timeout=STORE_SECONDS) as parts:
            async for part in parts:
                slot = first = Slot(part.message.slot)
                batches = batches_in(part.body)
                for batch in batches:
                    slot = Slot(slot + check_batch(batch).count)
                if batches:
                    await self._store(place, first, batches)
                if slot >= end:
                    return

    async def _is_overdue(self, missing: Slot) -> bool:
        """Whether the head has lacked a slot for so long that it may be filled; if not, waits a little."""
        now = self._clock.now()
        if now - self._context.holes.since(self.route, missing, now) >= FILL_SECONDS:
            return True
        await self._clock.sleep(FILL_STEP_SECONDS)
        return False

    async def _fill(self, start: Slot, before: Slot) -> None:
        """Put junk where the head goes on, up to what has come since or to the slot that is needed."""
        status = await self._status(0)
        if status.contiguous != start:
            return
        end = min(before, Slot(status.ahead)) if status.ahead else before
        pieces = self._pieces(start, end)
        try:
            while some := list(islice(pieces, MOST_PIECES)):
                await self._store(0, some[0][0], [junk_batch(count) for _, count in some])
        except (Gap, Taken):
            pass  # somebody was quicker, and that holds

    def _pieces(self, start: Slot, end: Slot) -> Iterator[tuple[Slot, int]]:
        """Where batches of junk are to lie, and of how many slots each. Whoever begins at the same slot cuts alike."""
        for piece in self._stripes.bindings(self.route.index, start, end):
            for slot in range(piece.slot, piece.slot_end, BATCH_ENTRIES):
                yield Slot(slot), min(BATCH_ENTRIES, piece.slot_end - slot)

    # ------------------------------------------------------------ members

    async def _status(self, place: int) -> pb.ReplicaStatus:
        """How far a member is, with what it was told before."""
        status = await self._store(place, Slot(0), [])
        if status.state in (pb.REPLICA_SEALED, pb.REPLICA_FINISHED):
            raise Sealed("the segment takes no more", status.contiguous)
        if status.state == pb.REPLICA_FAILED:
            raise ReplicaFailed(f"member {place} of stream {self.route.id} has stopped")
        return status

    async def _store(self, place: int, slot: Slot, body: Sequence[Buffer]) -> pb.ReplicaStatus:
        peer = await self._peer(place)
        request = self._request(slot, self.committed)
        status: pb.ReplicaStatus = (await peer.call(Method.STORE, request, body, timeout=STORE_SECONDS)).message
        return status

    def _request(self, slot: Slot, committed: Slot) -> pb.StoreRequest:
        route = self.route
        return pb.StoreRequest(
            log=route.log,
            segment=route.segment,
            stream=route.id,
            slot=slot,
            base=self._stripes.base,
            committed=committed,
        )

    def _read(self, slot: Slot) -> pb.ReadRequest:
        route = self.route
        return pb.ReadRequest(log=route.log, segment=route.segment, stream=route.id, slot=slot, stored=True)

    async def _peer(self, member: int) -> Peer:
        place = self._context.routes.place(self.route.members[member])
        connected = self._context.pool.connected(place)
        if connected is not None:
            return connected
        return await within(self._clock, STORE_SECONDS, self._context.pool.get(place))

    # ------------------------------------------------------------ what is committed

    def tell(self) -> None:
        """Let the other members know what the last one has; nobody waits for it."""
        if self._told >= self.committed:
            return
        self._told = self.committed
        for member, node in enumerate(self.route.members[: self._last]):
            try:
                peer = self._context.pool.connected(self._context.routes.place(node))
            except Unavailable:
                continue  # it will hear it with the next batch
            if peer is not None:
                peer.notify(Method.STORE, self._request(Slot(0), self._told))
            else:
                self._context.scope.spawn(self._tell_later(member, self._told), name=f"tell {node}")

    async def _tell_later(self, member: int, committed: Slot) -> None:
        """Once it is connected: whoever wrote last may be gone, and has told nobody."""
        try:
            (await self._peer(member)).notify(Method.STORE, self._request(Slot(0), committed))
        except VarlogError:
            pass  # the next who writes, or asks how far the log is, does it
