"""What a task does to append: its rows, once, however often the task is run.

    name   query.batch.task.0        query.batch.task.1       ...
    batch  0 1 2 ... 63              0 1 2 ...                      at most WRITES_PER_NAME a name

A task has names of its own as a producer, made of what stays the same when Spark runs it again. A first run finds
nothing under them. A later one asks for what the log has, and leaves those entries out of its rows; what is left goes
on behind them. So it does not matter how far an earlier run came, nor whether the rows come in the same order.
An append whose answer is lost goes out again under its name and number, which the log recognises.

Where the streams of a log take turns, the batches of one name would be strewn over them, and a stream remembers only
those that it has in a row: there a name has one batch. A log may come to this, or leave it, while a task appends:
what has not been sent by then goes on under the next name, cut anew.
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
FINAL = (Conflict, Trimmed)
"""What another run or a trim did to the batches of this task does not pass."""


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
        self._turn_most: int | None = None
        """Most entries of a batch where streams take turns, as it was when the log was last asked."""

    def run(self, parts: Iterable[Rows]) -> int:
        self._keep_to(self._turn_entries())
        stored = self._stored()
        count = 0
        waiting: list[Rows] = []
        for rows in batches_of(_without(parts, stored) if stored else parts, self._turn_most):
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

    def _keep_to(self, turn_most: int | None) -> None:
        self._turn_most = turn_most
        self._per_name = WRITES_PER_NAME if turn_most is None else 1

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
        """Of one batch that the log has: asked for by its number, it tells its position.

        The archive gives a large one back in pieces.
        """
        try:
            ack = self._opened().send_batch([b""], sequence=number).result()
            missing = ack.last + 1 - ack.first
            with self._log.subscribe(ack.first, ack.last + 1, stream=ack.stream, timeout=self._timeout) as subscription:
                for entry in subscription:
                    missing -= 1
                    yield digest(entry.payload, entry.key, entry.headers.items())
            if missing:
                raise Trimmed(f"positions {ack.first} to {ack.last} lack {missing} entries", ack.last + 1)
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
        batches = self._cut(batches)
        while batches:
            self.close()  # opened again, it knows what another run of the task has appended meanwhile
            try:
                batches = self._fitted(batches)
                together = batches[: min(WRITES_AT_ONCE, self._per_name - self._next)]
                self._try_append(together)
            except VarlogError as error:
                self.close()
                if isinstance(error, FINAL) or time.monotonic() > deadline or not self._may_pass(error):
                    raise
                time.sleep(WRITE_PAUSE_SECONDS)
            else:
                batches = batches[len(together) :]
                self._next += len(together)
                if self._next == self._per_name:
                    self._turn()

    def _fitted(self, batches: list[Rows]) -> list[Rows]:
        """What is left to append of them, cut as the log takes it now, under a name that has no batch of other days."""
        turn_most = self._turn_entries()
        if turn_most == self._turn_most:
            return batches
        there = max(0, self._opened().next_sequence - self._next)
        if there > len(batches):
            return batches  # another run is ahead under this name: first it is seen that it has the same
        for number, rows in enumerate(batches[:there], self._next):
            self._check_same(number, rows)
        self._next += there
        if self._next:  # a name without a batch would hide those behind it from a later run
            self._turn()
        self._keep_to(turn_most)
        return self._cut(batches[there:])

    def _cut(self, batches: list[Rows]) -> list[Rows]:
        """The same rows, in batches that the log takes. If it takes these, they stay: they may be sent again."""
        most = self._turn_most
        if most is None or all(len(rows) <= most for rows in batches):
            return batches
        return list(batches_of(batches, most))

    def _may_pass(self, error: VarlogError) -> bool:
        """Whether it helps to go on: a stream that has ended is replaced, a log that is sealed is not."""
        if error.retryable:
            return True
        try:
            if isinstance(error, OWN_FAULT):
                return self._turn_entries() != self._turn_most  # it was right when it was cut
            return not self._log.info().sealed
        except VarlogError as another:
            return another.retryable

    def _try_append(self, batches: list[Rows]) -> None:
        producer = self._opened()
        there = producer.next_sequence
        for number, rows in enumerate(batches, self._next):
            if number < there:
                self._check_same(number, rows)
            else:
                keys = rows.keys if any(key is not None for key in rows.keys) else None
                headers = rows.headers if any(rows.headers) else None
                producer.send_batch(rows.payloads, keys=keys, headers=headers, sequence=number)
        producer.flush()

    def _check_same(self, number: int, rows: Rows) -> None:
        """Of a batch that the log has: another run of the task may have sent it, with other rows in it."""
        own = map(digest, rows.payloads, rows.keys, (headers.items() for headers in rows.headers))
        if list(self._entries_of(number)) != list(own):
            raise Conflict(
                "another run of this task appends at the same time, with its rows in another order: see that it has "
                "ended, then run the task again, which adds what is missing; sort the rows, and such runs agree"
            )

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
