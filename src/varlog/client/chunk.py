"""A producer's batch on its way, with the futures of those who sent what is in it."""

import asyncio
from collections.abc import Callable

from varlog.base.errors import OutcomeUnknown, VarlogError
from varlog.base.ids import Glsn, ProducerToken, Slot
from varlog.client.columns import Columns, columns_of
from varlog.client.entry import Ack, single_acks
from varlog.client.routes import StreamRoute
from varlog.wire.batch import NO_PRODUCER, encode_buffer, stamp_batch
from varlog.wire.frame import Buffer

Settled = Callable[["Chunk", VarlogError | None, Glsn], None]
"""Those who wait for a chunk have been told: the error, or its first position."""


class Chunk:
    """Entries that were sent one by one, with a future each, or a batch with one future for all of it."""

    __slots__ = (
        "_columns",
        "_compress",
        "_data",
        "_futures",
        "_settled",
        "_wall_us",
        "_whole",
        "cost",
        "count",
        "deadline",
        "ended",
        "number",
        "producer",
        "route",
        "sequence",
        "slot",
    )

    def __init__(
        self,
        settled: Settled,
        wall_us: Callable[[], int],
        columns: Columns,
        futures: "list[asyncio.Future[Ack]]",
        deadline: float,
        *,
        whole: bool,
        compress: bool,
    ) -> None:
        self._settled = settled
        self._wall_us = wall_us
        self._columns: Columns | None = columns
        self._data: Buffer | None = None
        self._futures = futures
        self._whole = whole
        self._compress = compress
        self.count = len(columns.payloads)
        self.cost = columns.cost
        self.deadline = deadline
        self.ended = False
        """Those who wait have been told: they wait no more."""
        self.number: int | None = None
        """That the application gave it among the producer's batches: it is sent under this one or not at all."""
        self.route: StreamRoute | None = None
        self.producer = b""
        self.sequence = 0
        self.slot: Slot | None = None

    def parts(self, most: int) -> "list[Chunk]":
        """Chunks of at most so many entries each in place of this one; of a batch that stays together, itself."""
        if self.count <= most or self._whole:
            return [self]
        columns = self._columns if self._columns is not None else columns_of(self.data, self.cost)
        left = -(-self.count // most)
        failed: VarlogError | None = None

        def settled(_: Chunk, error: VarlogError | None, __: Glsn) -> None:
            nonlocal left, failed
            left -= 1
            failed = failed or error
            if not left:
                self._settled(self, failed, Glsn(0))

        return [
            Chunk(
                settled,
                self._wall_us,
                columns.part(start, min(most, self.count - start)),
                self._futures[start : start + most],
                self.deadline,
                whole=False,
                compress=self._compress,
            )
            for start in range(0, self.count, most)
        ]

    @property
    def data(self) -> Buffer:
        return self._data or b""

    def encode(self) -> None:
        """Now rather than when it is sent: raises `TooLarge` if it does not fit."""
        columns = self._columns
        if columns is not None:
            payloads, keys, headers, _ = columns
            producer = self.producer or NO_PRODUCER
            self._data = encode_buffer(
                payloads, keys, headers, producer, self.sequence, self._wall_us(), self._compress
            )
            self._columns = None

    def stamp(self, producer: bytes, sequence: int) -> None:
        self.producer, self.sequence, self.slot = producer, sequence, None
        if self._data is not None:
            self._data = stamp_batch(self._data, producer, sequence)
        else:
            self.encode()

    expect: int | None = None

    @property
    def awaited(self) -> bool:
        return not self.ended

    @property
    def told(self) -> bool:
        return self.ended

    def place(self, route: StreamRoute, slot: Slot) -> None:
        self.route, self.slot = route, slot

    def acked(self, first: Glsn, route: StreamRoute) -> None:
        if self.ended:
            return
        stream = route.id
        if self._whole:
            if not self._futures[0].done():
                self._futures[0].set_result(Ack(first, Glsn(first + self.count - 1), stream))
        else:
            for future, ack in zip(self._futures, single_acks(first, self.count, stream), strict=True):
                if not future.done():
                    future.set_result(ack)
        self._end(None, first)

    def doubtful(self, error: VarlogError) -> None:
        """It may be in the log: each is told so, with the token to find out."""
        if self.ended:
            return
        for index, future in enumerate(self._futures):
            if not future.done():
                unknown = OutcomeUnknown(error.message)
                unknown.token = self._token(index)
                _fail(future, unknown)
        told = OutcomeUnknown(error.message)
        told.token = self._token(0)
        self._end(told, Glsn(0))

    def fail(self, error: VarlogError) -> None:
        """Certainly not in the log."""
        if self.ended:
            return
        for future in self._futures:
            if not future.done():
                _fail(future, type(error)(error.message, error.value))
        self._end(error, Glsn(0))

    def _token(self, index: int) -> ProducerToken | None:
        if self.route is None:
            return None
        count = self.count if self._whole else 1
        route = self.route
        if self._data is not None:
            self._data = bytes(self._data)  # one for all tokens
        data = bytes(self.data)
        return ProducerToken(
            self.producer, self.sequence, route.id, route.log, route.segment, index, count, data, self.slot
        )

    def _end(self, error: VarlogError | None, first: Glsn) -> None:
        self.ended = True
        self._futures = []
        self._settled(self, error, first)


def _fail(future: "asyncio.Future[Ack]", error: VarlogError) -> None:
    """Nobody has to look at a future: `flush` and `close` raise what went wrong, too."""
    future.set_exception(error)
    future.exception()
