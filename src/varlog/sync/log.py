"""A log, its producers and subscriptions, without await."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any

from varlog import client
from varlog.base.errors import Unavailable
from varlog.base.ids import Glsn
from varlog.client.limits import LINGER_SECONDS, PATIENCE_SECONDS, PRODUCER_BATCH_BYTES, PRODUCER_BYTES
from varlog.sync.steps import Steps, all_batches, some_entries
from varlog.sync.thread import LoopThread
from varlog.wire.batch import Headers
from varlog.wire.frame import Buffer


class Log:
    """See `varlog.Log`."""

    def __init__(self, log: client.Log, thread: LoopThread) -> None:
        self._log = log
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._log)

    @property
    def name(self) -> str:
        return self._log.name

    @property
    def capabilities(self) -> frozenset[str]:
        return self._log.capabilities

    def append(
        self,
        payload: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        expect: int | None = None,
        stream: int | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> client.Ack:
        return self._thread.run(
            self._log.append(
                payload, key=key, headers=headers, expect=expect, stream=stream, compress=compress, timeout=timeout
            )
        )

    def append_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        expect: int | None = None,
        stream: int | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> client.Ack:
        return self._thread.run(
            self._log.append_batch(
                payloads,
                key=key,
                keys=keys,
                headers=headers,
                expect=expect,
                stream=stream,
                compress=compress,
                timeout=timeout,
            )
        )

    def retry(self, token: object, *, timeout: float | None = None) -> client.Ack:
        return self._thread.run(self._log.retry(token, timeout=timeout))

    def producer(
        self,
        *,
        linger: float = LINGER_SECONDS,
        id: str | None = None,
        stream: int | None = None,
        max_batch_bytes: int = PRODUCER_BATCH_BYTES,
        max_in_flight_bytes: int = PRODUCER_BYTES,
        compress: bool = False,
        timeout: float | None = None,
    ) -> "Producer":
        producer = self._log.producer(
            linger=linger,
            id=id,
            stream=stream,
            max_batch_bytes=max_batch_bytes,
            max_in_flight_bytes=max_in_flight_bytes,
            compress=compress,
            timeout=timeout,
        )
        return Producer(producer, self._thread)

    def read(self, glsn: int, *, timeout: float | None = None) -> client.Entry:
        return self._thread.run(self._log.read(glsn, timeout=timeout))

    def subscribe(
        self,
        start: int | None = 1,
        stop: int | None = None,
        *,
        stream: int | None = None,
        wait: bool = True,
        junk: bool = False,
        timeout: float | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> "Subscription":
        subscription = self._log.subscribe(
            start, stop, stream=stream, wait=wait, junk=junk, timeout=timeout, patience=patience
        )
        return Subscription(subscription, self._thread)

    def tail(self, *, timeout: float | None = None) -> Glsn:
        return self._thread.run(self._log.tail(timeout=timeout))

    def find(self, time: datetime | float, *, timeout: float | None = None) -> Glsn:
        return self._thread.run(self._log.find(time, timeout=timeout))

    def trim(self, upto: int, *, timeout: float | None = None) -> None:
        self._thread.run(self._log.trim(upto, timeout=timeout))

    def seal(self, *, timeout: float | None = None) -> Glsn:
        return self._thread.run(self._log.seal(timeout=timeout))

    def record_archive(
        self, archive: client.ArchiveDescription, *, expected: int, timeout: float | None = None
    ) -> client.LogDescription:
        return self._thread.run(self._log.record_archive(archive, expected=expected, timeout=timeout))

    def reconfigure(
        self,
        *,
        ordering: str | None = None,
        replicas: int | None = None,
        streams: int | None = None,
        ack: int | None = None,
        unit: int | None = None,
        members: Sequence[int] = (),
        roll_bytes: int | None = None,
        roll_seconds: float | None = None,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        retain_archived: bool | None = None,
        roll: bool = False,
        pin: Sequence[str] = (),
        unpin: Sequence[str] = (),
        replication: str | None = None,
        journal: bool | None = None,
        timeout: float | None = None,
    ) -> client.LogDescription:
        return self._thread.run(
            self._log.reconfigure(
                ordering=ordering,
                replicas=replicas,
                streams=streams,
                ack=ack,
                unit=unit,
                members=members,
                roll_bytes=roll_bytes,
                roll_seconds=roll_seconds,
                retain_bytes=retain_bytes,
                retain_seconds=retain_seconds,
                retain_archived=retain_archived,
                roll=roll,
                pin=pin,
                unpin=unpin,
                replication=replication,
                journal=journal,
                timeout=timeout,
            )
        )

    def info(self, *, timeout: float | None = None) -> client.LogDescription:
        return self._thread.run(self._log.info(timeout=timeout))


class Producer:
    """See `varlog.Producer`; the futures are those of `concurrent.futures`."""

    def __init__(self, producer: client.Producer, thread: LoopThread) -> None:
        self._producer = producer
        self._thread = thread

    def send(
        self, payload: Buffer, *, key: Buffer | None = None, headers: Headers | None = None
    ) -> "Future[client.Ack]":
        return self._hand_over(lambda: self._producer.send(payload, key=key, headers=headers))

    def send_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        sequence: int | None = None,
    ) -> "Future[client.Ack]":
        return self._hand_over(
            lambda: self._producer.send_batch(payloads, key=key, keys=keys, headers=headers, sequence=sequence)
        )

    def _hand_over(
        self, begin: "Callable[[], Coroutine[Any, Any, asyncio.Future[client.Ack]]]"
    ) -> "Future[client.Ack]":
        outcome: Future[client.Ack] = Future()

        async def send() -> None:
            (await begin()).add_done_callback(lambda sent: _copy(sent, outcome))

        self._thread.run(send())
        return outcome

    def flush(self) -> None:
        self._thread.run(self._producer.flush())

    @property
    def next_sequence(self) -> int:
        return self._producer.next_sequence

    def open(self) -> "Producer":
        self._thread.run(self._producer.open())
        return self

    def close(self) -> None:
        self._thread.run(self._producer.close())

    def abort(self) -> None:
        self._thread.call(self._producer.abort)

    def __enter__(self) -> "Producer":
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._producer.__aexit__(kind, error, trace))


def _copy(sent: "asyncio.Future[client.Ack]", outcome: "Future[client.Ack]") -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    if sent.cancelled():
        outcome.set_exception(Unavailable("the send was cancelled"))
    elif (error := sent.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(sent.result())


class Subscription(Steps[client.Entry]):
    """See `varlog.Subscription`: an iterator of entries; `batches()` gives them by the batch.

    Several threads may take from it, or from one `batches()`: each entry goes to one of them.
    """

    def __init__(self, subscription: client.Subscription, thread: LoopThread) -> None:
        super().__init__(subscription.runs(), thread, some_entries)
        self._subscription = subscription

    def batches(self) -> Iterator[client.ReadBatch]:
        """The same, batch by batch."""
        return Steps(self._subscription.runs(), self._thread, all_batches)

    def close(self) -> None:
        """Stop; nothing is read any more."""
        if self._thread.alive:
            self._thread.run(self._subscription.aclose())

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
