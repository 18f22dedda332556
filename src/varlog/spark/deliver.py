"""What a task does to append: its rows, once, however often the task is run.

    name   query.batch.task.0        query.batch.task.1       ...
    batch  0 1 2 ... 63              0 1 2 ...                      at most WRITES_PER_NAME a name

A task has names of its own as a producer, made of what stays the same when Spark runs it again. A first run finds
nothing under them. A later one asks for what the log has, and leaves those entries out of its rows; what is left goes
on behind them. So it does not matter how far an earlier run came, nor whether the rows come in the same order.
An append whose answer is lost goes out again under its name and number, which the log recognises.

Where the streams of a log take turns, the batches of one name would be strewn over them, and a stream remembers only
those that it has in a row: there a name has one batch.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from varlog import sync
from varlog.base.errors import Conflict, InvalidArgument, OutcomeUnknown, TooLarge, Trimmed, VarlogError
from varlog.spark.limits import (
    WRITE_PATIENCE_SECONDS,
    WRITE_PAUSE_SECONDS,
    WRITES_AT_ONCE,
    WRITES_PER_NAME,
)
from varlog.spark.rows import Rows, batches_of

OWN_FAULT = (InvalidArgument, TooLarge)


def deliver(log: sync.Log, identity: str, parts: Iterable[Rows], timeout: float) -> int:
    """Append all rows, but none that an earlier run appended; returns how many were appended now."""
    delivery = _Delivery(log, identity, timeout)
    try:
        return delivery.run(parts)
    finally:
        delivery.close()


def digest(payload: bytes, key: bytes | None, headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Tells entries apart, wherever they lie."""
    summed = blake2b(digest_size=16)
    values = [payload, *([b"\1"] if key is None else [b"\0", key])]
    for name, value in sorted(headers):
        values += [name.encode(), value]
    for value in values:
        summed.update(len(value).to_bytes(8, "little"))
        summed.update(value)
    return summed.digest()


class _Delivery:
    def __init__(self, log: sync.Log, identity: str, timeout: float) -> None:
        self._log = log
        self._identity = identity
        self._timeout = timeout
        self._producer: sync.Producer | None = None
        self._name = 0
        self._next = 0
        """Number of the next batch under the present name."""
        self._per_name = WRITES_PER_NAME
        """Batches under one name."""

    def run(self, parts: Iterable[Rows]) -> int:
        turn = self._turn_entries()
        if turn is not None:
            self._per_name = 1
        stored = self._stored()
        count = 0
        waiting: list[Rows] = []
        for rows in batches_of(_without(parts, stored) if stored else parts, turn):
            waiting.append(rows)
            count += len(rows)
            if len(waiting) == WRITES_AT_ONCE or self._next + len(waiting) == self._per_name:
                self._append(waiting)
                waiting = []
        if stored.total():
            raise Conflict(
                f"an earlier run of this task appended {stored.total()} entries that are not among its rows now: the "
                "frame gives other rows each time it is computed; persist it, or write it under another identity"
            )
        if waiting:
            self._append(waiting)
        return count

    def _turn_entries(self) -> int | None:
        """Most entries of a batch where streams take turns: it lies within the turn of one."""
        last = self._log.info().chain[-1]
        return last.unit if last.ordering == "sequencer" and len(last.streams) > 1 else None

    # ------------------------------------------------------------ what is there already

    def _stored(self) -> "Counter[bytes]":
        """All entries that earlier runs appended; leaves us where they ended."""
        stored: Counter[bytes] = Counter()
        while count := self._opened().next_sequence:
            last = False
            if count < self._per_name:
                # It is the last, or was full when the log was another. One that has a follower does not grow any more.
                self.close()
                last = not self._is_begun(self._name + 1)
                count = self._opened().next_sequence
            for number in range(count):
                stored.update(self._entries_of(number))
            if last and count < self._per_name:
                self._next = count
                break
            self._turn()
        return stored

    def _is_begun(self, name: int) -> bool:
        producer = self._open(name)
        try:
            return producer.next_sequence > 0
        finally:
            producer.abort()

    def _entries_of(self, number: int) -> Iterator[bytes]:
        """Of one batch that the log has: asked for by its number, it tells its position."""
        try:
            ack = self._opened().send_batch([b""], sequence=number).result()
            with self._log.subscribe(ack.first, stream=ack.stream, timeout=self._timeout) as subscription:
                for batch in subscription.batches():
                    for entry in batch:
                        yield digest(entry.payload, entry.key, entry.headers.items())
                    return
        except (OutcomeUnknown, Trimmed) as error:
            unanswered = isinstance(error, OutcomeUnknown) and error.__cause__ is not None  # which passes
            trimmed = self._log.info().trimmed
            if unanswered or not trimmed:
                raise
            raise Trimmed(
                f"an earlier run of this task appended entries that log {self._log.name!r} has trimmed since, so that "
                "nobody can tell which rows are missing: look at what it has from its first position on, then write "
                "the rows that are missing under another identity, and let a query begin behind them, with a new "
                "checkpoint",
                trimmed + 1,
            ) from error

    # ------------------------------------------------------------ appending

    def _append(self, batches: list[Rows]) -> None:
        """Under the next numbers; returns when the log has them all."""
        deadline = time.monotonic() + WRITE_PATIENCE_SECONDS
        while True:
            try:
                self._try_append(batches)
                break
            except VarlogError as error:
                self.close()
                if isinstance(error, OWN_FAULT) or time.monotonic() > deadline or not self._may_pass(error):
                    raise
                time.sleep(WRITE_PAUSE_SECONDS)
        self._next += len(batches)
        if self._next == self._per_name:
            self._turn()

    def _may_pass(self, error: VarlogError) -> bool:
        """Whether it helps to go on: a stream that has ended is replaced, a log that is sealed is not."""
        if error.retryable:
            return True
        try:
            return not self._log.info().sealed
        except VarlogError as another:
            return another.retryable

    def _try_append(self, batches: list[Rows]) -> None:
        producer = self._opened()
        for number, rows in enumerate(batches, self._next):
            if number >= producer.next_sequence:
                keys = rows.keys if any(key is not None for key in rows.keys) else None
                headers = rows.headers if any(rows.headers) else None
                producer.send_batch(rows.payloads, keys=keys, headers=headers, sequence=number)
        producer.flush()

    def _opened(self) -> sync.Producer:
        if self._producer is None:
            self._producer = self._open(self._name)
        return self._producer

    def _open(self, name: int) -> sync.Producer:
        return self._log.producer(id=f"{self._identity}.{name}", linger=0.0, timeout=self._timeout).open()

    def _turn(self) -> None:
        """To the next name."""
        self.close()
        self._name += 1
        self._next = 0

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abort()


def _without(parts: Iterable[Rows], stored: "Counter[bytes]") -> Iterator[Rows]:
    """The rows that are not stored; each that is takes one away from `stored`."""
    for rows in parts:
        new = []
        for payload, key, headers in zip(rows.payloads, rows.keys, rows.headers, strict=True):
            found = digest(payload, key, headers.items())
            there = stored[found] > 0
            stored[found] -= there
            new.append(not there)
        yield rows.only(new)
