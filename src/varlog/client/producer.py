"""A pipelined producer: entries are taken at once, gathered into batches, and acknowledged later.

    send --> open batch --full, or after linger--> queue --> StreamWriter --> primary
      `-- a future each                                at most PRODUCER_IN_FLIGHT on their way

A producer keeps to one stream, and its batches are taken in sequence, so what it sends is in the log
in the order sent. It changes the stream only when that one refuses (then everything goes on elsewhere,
in the same order) or when it has answered nothing for so long that all its sends were given up.

With `id`, the producer has a name that outlives the process. Its identity is a hash of the name, and
it keeps to one stream as long as that takes entries. At its start it asks how many batches the stream
has of it (`next_sequence`) and goes on from there. So a batch that is numbered by the application and
sent again after a restart, `send_batch(entries, sequence=n)`, is recognised and is in the log once.
What a name does not do: two processes that use it at the same time are taken for one, and the batch of
one can be taken for that of the other. When its stream ends, it goes on with another by itself, under
the same numbers. One that is refused something for another reason ends; open it again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from types import TracebackType

from varlog.base import limits as shared
from varlog.base.errors import InvalidArgument, OutcomeUnknown, Timeout, TooLarge, Unavailable, VarlogError
from varlog.base.ids import Glsn, ProducerToken, StreamId
from varlog.client.chunk import Chunk
from varlog.client.columns import ENTRY_OVERHEAD_BYTES, Columns, check_compression, many_entries, one_entry
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.errors import again
from varlog.client.outlet import Outlet
from varlog.client.retry import Retry
from varlog.ports.clock import Timer
from varlog.transport.deadlines import Deadlines
from varlog.wire.batch import Headers
from varlog.wire.frame import Buffer

SMALL_BYTES = 64 << 10
"""An entry up to this size always fits the open batch."""

MOST_BATCH_BYTES = shared.BATCH_BYTES // 2


class Producer:
    """Made by `log.producer(...)`; use it as `async with`, or call `close`."""

    def __init__(
        self,
        context: LogContext,
        *,
        linger: float,
        id: str | None,
        stream: StreamId | None,
        max_batch_bytes: int,
        max_in_flight_bytes: int,
        compress: bool,
        timeout: float,
    ) -> None:
        if not isinstance(linger, int | float) or not 0 <= linger <= timeout:
            raise InvalidArgument(f"linger is 0 to {timeout:g} seconds, not {linger!r}")
        if not isinstance(max_batch_bytes, int) or not 0 < max_batch_bytes <= MOST_BATCH_BYTES:
            raise InvalidArgument(f"max_batch_bytes is 1 to {MOST_BATCH_BYTES}, not {max_batch_bytes!r}")
        if not isinstance(max_in_flight_bytes, int) or max_in_flight_bytes < 1:
            raise InvalidArgument(f"max_in_flight_bytes is at least 1, not {max_in_flight_bytes!r}")
        if compress:
            check_compression()
        self._context = context
        self._clock = context.world.clock
        self._outlet = Outlet(context, id, stream)
        self._linger = linger
        self._batch_bytes = max_batch_bytes
        self._limit = max_in_flight_bytes
        self._compress = compress
        self._timeout = timeout
        self._payloads: list[bytes] = []
        self._keys: list[bytes | None] | None = None
        self._headers: list[Headers] | None = None
        self._futures: list[asyncio.Future[Ack]] = []
        self._size = 0
        self._batch_deadline = 0.0
        self._lingering: Timer | None = None
        self._used = 0
        self._open: dict[Chunk, None] = {}
        """Taken, and not settled."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._flushing: list[_Flush] = []
        self._error: VarlogError | None = None
        """The first since the last flush, of what no flush that is under way waits for."""
        self._ended: VarlogError | None = None
        self._new_future: Callable[[], asyncio.Future[Ack]] = asyncio.Future
        """That of the loop it was opened on; looked up once, not for every entry."""
        self._slow = True
        """`send` has something to look at before it may simply take an entry."""
        self._deadlines = Deadlines(self._clock, self._expire)

    # ------------------------------------------------------------ sending

    async def send(
        self, payload: Buffer, *, key: Buffer | None = None, headers: Headers | None = None
    ) -> "asyncio.Future[Ack]":
        """Take an entry, waiting only while too much is in flight. The future has its Ack."""
        if (
            self._slow
            or type(payload) is not bytes
            or key is not None
            or headers is not None
            or len(payload) > SMALL_BYTES
        ):
            return await self._send_slowly(one_entry(payload, key, headers))
        future: asyncio.Future[Ack] = self._new_future()
        self._payloads.append(payload)
        self._futures.append(future)
        self._size += len(payload) + ENTRY_OVERHEAD_BYTES
        if self._size >= self._batch_bytes:
            self._ship()
            await self._clock.sleep(0)  # let what was sent go out, and answers come in
        elif self._lingering is None:
            self._start_linger()
        return future

    async def send_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        sequence: int | None = None,
    ) -> "asyncio.Future[Ack]":
        """Take a batch that stays together: all of it or nothing, at consecutive positions; one Ack for all.

        With `sequence` (of a producer with an `id`): the number of this batch among the producer's, from
        0 on. One that the log has already is not appended again; its Ack is that of the first time.
        """
        columns = many_entries(payloads, key, keys, headers)
        await self._admit()
        self._ship()
        if sequence is not None and self._is_repeated(sequence):
            return await self._send_again(columns, sequence)
        future = self._new_future()
        deadline = self._clock.now() + self._timeout
        chunk = Chunk(
            self._settled, self._clock.wall_us, columns, [future], deadline, whole=True, compress=self._compress
        )
        if columns.cost > shared.BATCH_BYTES:
            chunk.encode()
        chunk.number = sequence
        self._outlet.put(self._count(chunk))
        self._look()
        await self._clock.sleep(0)
        return future

    async def flush(self) -> None:
        """Wait until everything taken so far is acknowledged; raises the first error since the last flush."""
        self._ship()
        flush = _Flush(dict(self._open), asyncio.get_running_loop().create_future(), self._error)
        self._error = None
        if flush.left:
            self._flushing.append(flush)
            try:
                await flush.waiter
            except asyncio.CancelledError:
                self._error = self._error or flush.error  # it is still to be told
                raise
            finally:
                self._flushing.remove(flush)
        if flush.error is not None:
            raise again(flush.error)

    @property
    def next_sequence(self) -> int:
        """The number that the next batch of this producer gets; after a start under an `id`, what the log has of it."""
        return self._outlet.next_sequence + self._outlet.batches_of(len(self._payloads))

    # ------------------------------------------------------------ life

    async def open(self) -> "Producer":
        """Find the log and, under an `id`, what it has of this producer. Done by the first send if not before."""
        if self._ended is None:
            await self._outlet.open(self._timeout)
            if self._ended is not None:
                raise again(self._ended)
            if self.abort not in self._context.on_close:
                self._context.on_close.append(self.abort)
            self._new_future = asyncio.get_running_loop().create_future
            self._look()
        return self

    async def close(self) -> None:
        """Flush, then take nothing more."""
        try:
            await self.flush()
        finally:
            self._end(Unavailable("the producer is closed"))

    def abort(self) -> None:
        """Take nothing more and wait for nothing; what was sent may yet be in the log."""
        self._end(Unavailable("the producer was aborted"))

    async def __aenter__(self) -> "Producer":
        try:
            return await self.open()
        except asyncio.CancelledError:
            self.abort()  # nobody else will: the block is not entered
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif issubclass(kind, asyncio.CancelledError):
            self.abort()
        else:
            try:
                await self.close()
            except VarlogError:
                pass  # what left the block is the first cause

    def _end(self, error: VarlogError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._slow = True
        chunk = self._take_open_batch()
        if chunk is not None:
            chunk.fail(error)
        if self.abort in self._context.on_close:
            self._context.on_close.remove(self.abort)
        self._deadlines.close()
        self._outlet.close(OutcomeUnknown(error.message))
        self._wake()

    # ------------------------------------------------------------ the open batch

    async def _send_slowly(self, columns: Columns) -> "asyncio.Future[Ack]":
        if columns.cost > shared.BATCH_BYTES:
            raise TooLarge(f"an entry of {columns.cost} bytes with its key and headers", shared.BATCH_BYTES)
        await self._admit()
        if self._size + columns.cost > shared.BATCH_BYTES:
            self._ship()
        future = self._new_future()
        self._add_options(columns)
        self._payloads += columns.payloads
        self._futures.append(future)
        self._size += columns.cost
        if self._lingering is None:
            self._start_linger()
        if self._size >= self._batch_bytes:
            self._ship()
            await self._clock.sleep(0)
        self._look()
        return future

    def _add_options(self, columns: Columns) -> None:
        """Keys and headers, for whose columns the entries before get empty ones."""
        before = len(self._payloads)
        if self._keys is None and columns.keys is not None:
            self._keys = [None] * before
        if self._headers is None and columns.headers is not None:
            self._headers = [{}] * before
        if self._keys is not None:
            self._keys += columns.keys or [None]
        if self._headers is not None:
            self._headers += columns.headers or [{}]

    def _start_linger(self) -> None:
        self._batch_deadline = self._clock.now() + self._timeout
        self._lingering = self._clock.call_later(self._linger, self._ship)

    def _ship(self) -> None:
        """Close the open batch and put it on its way."""
        chunk = self._take_open_batch()
        if chunk is not None:
            self._outlet.put(chunk)
            self._look()

    def _take_open_batch(self) -> Chunk | None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if not self._payloads:
            return None
        deadline = self._batch_deadline or self._clock.now() + self._timeout  # filled at once, it did not linger
        columns = Columns(self._payloads, self._keys, self._headers, self._size)
        chunk = Chunk(
            self._settled,
            self._clock.wall_us,
            columns,
            self._futures,
            deadline,
            whole=False,
            compress=self._compress,
        )
        self._payloads, self._futures = [], []
        self._keys = self._headers = None
        self._size = 0
        self._batch_deadline = 0.0
        return self._count(chunk)

    def _count(self, chunk: Chunk) -> Chunk:
        """It is in flight from now on."""
        self._open[chunk] = None
        self._used += chunk.cost
        if chunk.deadline < self._deadlines.at:
            self._deadlines.announce(chunk.deadline, self._clock.now())
        return chunk

    # ------------------------------------------------------------ batches that are numbered by the application

    def _is_repeated(self, sequence: int) -> bool:
        if not self._outlet.named:
            raise InvalidArgument("only a producer with an id numbers its batches")
        if not isinstance(sequence, int) or not 0 <= sequence <= self._outlet.next_sequence:
            raise InvalidArgument(
                f"the next batch of this producer is number {self._outlet.next_sequence}, not {sequence!r}"
            )
        return sequence < self._outlet.next_sequence

    async def _send_again(self, columns: Columns, sequence: int) -> "asyncio.Future[Ack]":
        """Ask for the Ack of a batch that the log has."""
        chunk = Chunk(self._settled, self._clock.wall_us, columns, [], inf, whole=True, compress=self._compress)
        route, producer = await self._outlet.identity(sequence)
        chunk.stamp(producer, sequence)
        token = ProducerToken(producer, sequence, route.id, route.log, route.segment, 0, chunk.count, bytes(chunk.data))
        future = self._new_future()
        future.set_result(await Retry(self._context, token, numbered=True).run(self._timeout))
        return future

    # ------------------------------------------------------------ room

    def _look(self) -> None:
        """Whether the next send may take the short way."""
        self._slow = (
            not self._outlet.opened
            or self._used >= self._limit
            or self._ended is not None
            or self._outlet.broken is not None
            or self._keys is not None
            or self._headers is not None
        )

    async def _admit(self) -> None:
        """Wait until there is room; raises why there never will be."""
        if not self._outlet.opened:
            await self.open()
        deadline = self._clock.now() + self._timeout
        while self._used >= self._limit and self._ended is None:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            timer = self._clock.call_later(max(0.0, deadline - self._clock.now()), _too_late, turn)
            try:
                await turn
            finally:
                timer.cancel()
        ended = self._ended or self._outlet.broken
        if ended is not None:
            raise again(ended)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    # ------------------------------------------------------------ from chunks and time

    def _settled(self, chunk: Chunk, error: VarlogError | None, first: Glsn) -> None:
        self._used -= chunk.cost
        del self._open[chunk]
        flushing = [flush for flush in self._flushing if flush.settled(chunk, error)]
        if error is not None and not flushing:
            self._error = self._error or error
        if error is None and chunk.route is not None:
            self._context.hints.add(first, chunk.count, chunk.route.id)
        self._look()
        if self._waiting and self._used < self._limit:
            self._wake()

    def _expire(self, now: float) -> float:
        self._outlet.expire(now)
        return self._outlet.earliest_deadline()


@dataclass(slots=True, eq=False)
class _Flush:
    """One that is under way; several may be, and each is told of what it waits for."""

    left: dict[Chunk, None]
    """What it still waits for: nothing that is taken behind it."""
    waiter: asyncio.Future[None]
    error: VarlogError | None

    def settled(self, chunk: Chunk, error: VarlogError | None) -> bool:
        """Whether it waited for this one."""
        if chunk not in self.left:
            return False
        del self.left[chunk]
        self.error = self.error or error
        if not self.left and not self.waiter.done():
            self.waiter.set_result(None)
        return True


def _too_late(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_exception(Timeout("too much is in flight, and nothing was acknowledged in time"))
