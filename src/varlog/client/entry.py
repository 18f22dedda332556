"""What an application gets: the Ack of an append, single entries, and whole batches of them.

A batch as received is kept as bytes; entries are made of it only when asked for, all at once, since
what costs is the step into Python, not the number of entries. `to_arrow` makes no entry at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from varlog.base.ids import Glsn, Slot, StreamId
from varlog.wire.batch import HEADERS, KEYS, Batch

if TYPE_CHECKING:
    import pyarrow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


class Ack(NamedTuple):
    """Where an append went: positions `first` to `last`, both included, all in one stream."""

    first: Glsn
    last: Glsn
    stream: StreamId

    @property
    def glsn(self) -> Glsn:
        """The position of the entry, or of the first of them."""
        return self.first


class Entry(NamedTuple):
    """One entry of the log."""

    glsn: Glsn
    stream: StreamId
    slot: Slot
    payload: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    time: datetime
    """When the client that appended it sent it, by its own clock. In UTC."""


class _NoHeaders(dict[str, bytes]):
    """The headers of entries that have none: one for all of them, so it cannot be changed."""

    def _fixed(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the headers of a stored entry cannot be changed")

    __setitem__ = setdefault = update = __ior__ = _fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return (_NoHeaders, ())


NO_HEADERS: Mapping[str, bytes] = _NoHeaders()

_make_ack = partial(tuple.__new__, Ack)
_make_entry = partial(tuple.__new__, Entry)


def single_acks(first: int, count: int, stream: StreamId) -> Iterator[Ack]:
    """The acks of appends of one entry each, at consecutive positions."""
    glsns = range(first, first + count)
    return map(_make_ack, zip(glsns, glsns, repeat(stream)))


def time_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time; one beyond what a datetime can say is the last that it can."""
    return EPOCH + timedelta(microseconds=min(time_us, _LAST_US))


class ReadBatch:
    """Consecutive entries of one stream, at consecutive positions, as they were appended in one batch.

    Where a read begins or stops inside a batch, only the entries asked for are seen.
    """

    __slots__ = ("_batch", "_low", "count", "first", "slot", "stream")

    def __init__(self, batch: Batch, first: Glsn, stream: StreamId, slot: Slot, low: int, high: int) -> None:
        """Entries `[low, high)` of `batch`; the first of these has `first` and `slot`."""
        self._batch = batch
        self._low = low
        self.count = high - low
        self.first = first
        """Position of the first entry."""
        self.stream = stream
        self.slot = slot
        """Of the first entry, in its stream."""

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<ReadBatch {self.first}..{self.last} of stream {self.stream}>"

    @property
    def junk(self) -> bool:
        """Its positions were given up: there are no entries."""
        return self._batch.junk

    @property
    def last(self) -> Glsn:
        """Position of the last entry."""
        return Glsn(self.first + self.count - 1)

    @property
    def time_us(self) -> int:
        """Microseconds since 1970; see `Entry.time`."""
        return self._batch.header.time_us

    @property
    def time(self) -> datetime:
        return time_of(self._batch.header.time_us)

    @property
    def nbytes(self) -> int:
        """Bytes that the batch takes, as received."""
        return len(self._batch.data)

    def payloads(self) -> list[bytes]:
        return self._cut(self._batch.payloads()) if not self._batch.junk else []

    def keys(self) -> list[bytes | None]:
        if not self._batch.header.flags & KEYS:
            return [None] * self.count
        return self._cut(self._batch.keys())

    def headers(self) -> list[Mapping[str, bytes]]:
        if not self._batch.header.flags & HEADERS:
            return [NO_HEADERS] * self.count
        return list(self._cut(self._batch.headers()))

    def entries(self) -> list[Entry]:
        """All of it as entries."""
        return list(self)

    def __iter__(self) -> Iterator[Entry]:
        """Entry by entry, each made as it is asked for: what is not kept costs no memory. Of junk, none."""
        if self._batch.junk:
            return iter(())
        flags, count = self._batch.header.flags, self.count
        keys: Sequence[bytes | None] | Iterator[None] = self.keys() if flags & KEYS else repeat(None)
        headers: Sequence[Mapping[str, bytes]] | Iterator[Mapping[str, bytes]]
        headers = self.headers() if flags & HEADERS else repeat(NO_HEADERS)
        fields = zip(
            range(self.first, self.first + count),
            repeat(self.stream),
            range(self.slot, self.slot + count),
            self.payloads(),
            keys,
            headers,
            repeat(self.time),
        )
        return map(_make_entry, fields)

    def to_arrow(self) -> "pyarrow.RecordBatch":
        """An Arrow record batch over the same bytes, without rows where it is junk.

        Its columns: glsn, stream, slot, time, key, headers, payload.
        """
        from varlog.client.arrow import record_batch

        return record_batch(self)

    def _cut(self, column: list[Any]) -> list[Any]:
        return column if len(column) == self.count else column[self._low : self._low + self.count]


def as_received(read: ReadBatch) -> tuple[Batch, int]:
    """The whole batch that was received, and the index in it of the first entry asked for: for other forms of it."""
    return read._batch, read._low
