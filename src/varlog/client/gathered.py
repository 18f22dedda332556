"""Appends of several callers on their way as one batch."""

import asyncio
from collections import deque
from math import inf
from typing import Protocol

from varlog.base.errors import OutcomeUnknown, VarlogError
from varlog.base.ids import Glsn, ProducerToken, StreamId
from varlog.client.columns import Columns, joined
from varlog.client.entry import Ack
from varlog.client.errors import again
from varlog.client.routes import StreamRoute
from varlog.wire.batch import Batch, encode_batch, stamp_batch


class GatheredOwner(Protocol):
    """The appender."""

    def wall_us(self) -> int: ...

    def acked(self, batch: "Gathered", first: Glsn) -> None:
        """Those who wait have been told."""
        ...

    def leave(self, cost: int) -> None:
        """Nothing of it is kept any more."""
        ...


class Append:
    """One call that waits for its Ack."""

    __slots__ = ("columns", "compress", "cost", "count", "data", "deadline", "future", "index")

    def __init__(
        self, columns: Columns, data: bytes | None, compress: bool, deadline: float, future: "asyncio.Future[Ack]"
    ) -> None:
        self.columns: Columns | None = columns if data is None else None
        self.compress = compress
        self.cost = columns.cost
        self.count = len(columns.payloads)
        self.deadline = deadline
        self.future = future
        self.index = 0
        """Of its first entry in the batch it travels in."""
        self.data = data
        """Encoded already: too large to travel with others."""


class Lane:
    """Appends for any stream, or for a chosen one, in order of arrival."""

    __slots__ = ("pending", "scheduled", "stream")

    def __init__(self, stream: StreamId | None) -> None:
        self.stream = stream
        self.pending: deque[Append] = deque()
        self.scheduled = False


class Gathered:
    """Appends on their way as one batch."""

    __slots__ = ("_appender", "_data", "appends", "cost", "count", "lane", "producer", "route", "sequence", "told")

    def __init__(self, appender: GatheredOwner, lane: Lane, appends: list[Append], route: StreamRoute) -> None:
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

    def unknown(self, append: Append, why: str) -> OutcomeUnknown:
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

    def expire(self, now: float) -> float:
        """Tell those whose time is up; the earliest deadline of the others."""
        following = inf
        for append in self.appends:
            if append.future.done():
                continue
            if append.deadline <= now:
                append.future.set_exception(self.unknown(append, "the append was sent, and not answered in time"))
            else:
                following = min(following, append.deadline)
        return following

    def dissolve(self) -> list[Append]:
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
