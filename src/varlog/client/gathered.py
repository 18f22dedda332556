"""Appends of several callers on their way as one batch."""

import asyncio
from typing import Protocol

from varlog.base.errors import OutcomeUnknown, VarlogError
from varlog.base.ids import Glsn, ProducerToken, Slot
from varlog.client.columns import columns_of
from varlog.client.entry import Ack
from varlog.client.errors import again
from varlog.client.lane import Appends, Lane
from varlog.client.routes import StreamRoute
from varlog.wire.batch import encode_buffer, stamp_batch
from varlog.wire.frame import Buffer


class GatheredOwner(Protocol):
    """The appender."""

    def wall_us(self) -> int: ...

    def acked(self, batch: "Gathered", first: Glsn) -> None:
        """Those who wait have been told."""
        ...

    def leave(self, cost: int) -> None:
        """Nothing of it is kept any more."""
        ...


class Gathered:
    """Appends on their way as one batch. Their entries are kept encoded, and not twice."""

    __slots__ = (
        "_appender",
        "_appends",
        "_data",
        "cost",
        "count",
        "lane",
        "producer",
        "route",
        "sequence",
        "slot",
        "told",
    )

    def __init__(self, appender: GatheredOwner, lane: Lane, appends: Appends, route: StreamRoute) -> None:
        self._appender = appender
        self._appends = appends
        self._data: Buffer | None = appends.data
        self.lane = lane
        self.route = route
        self.cost = appends.cost
        self.count = appends.entries
        self.producer = b""
        self.sequence = 0
        self.slot: Slot | None = None
        self.told = False
        """A token of this batch was given out: whoever has it may send the whole batch again, at any time."""

    @property
    def data(self) -> Buffer:
        return self._data or b""

    def stamp(self, producer: bytes, sequence: int) -> None:
        self.producer, self.sequence = producer, sequence
        if self._data is not None:
            self._data = stamp_batch(self._data, producer, sequence)
            return
        payloads, keys, headers = self._appends.take_columns()
        self._data = encode_buffer(
            payloads, keys, headers, producer, sequence, self._appender.wall_us(), self._appends.compress
        )

    @property
    def expect(self) -> int | None:
        return self.lane.expect

    @property
    def awaited(self) -> bool:
        return self._appends.any_awaited

    def place(self, route: StreamRoute, slot: Slot) -> None:
        self.route, self.slot = route, slot

    def dissolve(self) -> Appends:
        """The appends as they were before they were gathered."""
        if self._appends.data is None:
            self._appends.set_columns(columns_of(self.data, self.cost))
        return self._appends

    # ------------------------------------------------------------ telling those who wait

    def acked(self, first: Glsn, route: StreamRoute) -> None:
        self._appends.acked(first, route.id)
        self._appender.acked(self, first)

    def doubtful(self, error: VarlogError) -> None:
        self._appends.fail(lambda index, count: self._unknown(index, count, error.message))
        self._appender.leave(self.cost)

    def fail(self, error: VarlogError) -> None:
        """Certainly not in the log."""
        self._appends.fail(lambda _, __: again(error))
        self._appender.leave(self.cost)

    def expire(self, now: float) -> float:
        """Tell those whose time is up; the earliest deadline of the others."""
        why = "the append was sent, and not answered in time"
        return self._appends.fail(lambda index, count: self._unknown(index, count, why), now)

    def join(self, token: ProducerToken, deadline: float) -> "asyncio.Future[Ack] | None":
        """Wait for the append that a token of this batch names; None if it names no append."""
        return self._appends.join(token.index, token.count, deadline)

    def _unknown(self, index: int, count: int, why: str) -> OutcomeUnknown:
        self.told = True
        error = OutcomeUnknown(why)
        route = self.route
        if self._data is not None:
            self._data = bytes(self._data)  # one for all tokens
        error.token = ProducerToken(
            self.producer, self.sequence, route.id, route.log, route.segment, index, count, bytes(self.data), self.slot
        )
        return error
