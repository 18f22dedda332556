"""Writes the history of a run while it happens. The dead record nothing: their operations never end."""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from varlog.base.errors import OutcomeUnknown, VarlogError
from varlog.base.ids import ProducerToken
from varlog.client import Ack, Entry
from varlog.client.entry import EPOCH
from varlog.sim.checkers.base import describe
from varlog.sim.history import Append, History, Operation, Subscription, fingerprint
from varlog.sim.loop import SimulatedLoop
from varlog.sim.trace import Trace

if TYPE_CHECKING:
    from varlog.sim.host import Process

AnyOperation = TypeVar("AnyOperation", bound=Operation)


class Recorder:
    """One counter for the order of everything."""

    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        self.history = History()
        self._loop = loop
        self._trace = trace
        self._order = 0

    @property
    def now(self) -> float:
        return self._loop.now

    def tick(self) -> int:
        """The next order."""
        self._order += 1
        return self._order

    def begin(self, process: "Process", operation: AnyOperation) -> AnyOperation:
        operation.client = process.name
        operation.start = self.tick()
        operation.start_time = self._loop.now
        if isinstance(operation, Append):
            operation.begun_us = process.clock.wall_us()
        self.history.records.append(operation)  # type: ignore[arg-type]
        if self._trace.on:
            self._trace.event(self._loop.now, process.host.name, "begins", describe(operation))
        return operation

    def end(self, process: "Process", operation: Operation, error: VarlogError | None = None) -> bool:
        """False: the process is dead, so nobody knows that it ended."""
        if not process.alive:
            return False
        if error is not None:
            operation.error, operation.value = type(error).__name__, error.value
        operation.end = self.tick()
        operation.end_time = self._loop.now
        if isinstance(operation, Append):
            operation.ended_us = process.clock.wall_us()
        if self._trace.on:
            self._trace.event(self._loop.now, process.host.name, "ends", describe(operation))
        return True

    def deliver(self, process: "Process", subscription: Subscription, entry: Entry) -> None:
        if process.alive:
            subscription.glsns.append(entry.glsn)
            subscription.payloads.append(fingerprint(entry.payload))
            subscription.orders.append(self.tick())
            subscription.streams.append(entry.stream)
            subscription.slots.append(entry.slot)
            subscription.times_us.append(microseconds(entry.time))


async def finish_append(
    recorder: Recorder, process: "Process", append: Append, send: Awaitable[Ack]
) -> ProducerToken | None:
    """Record how a begun append ends. The token, if its outcome is unknown and it may be sent again."""
    try:
        ack = await send
    except VarlogError as error:
        append.outcome = "refused" if error.outcome_known else "unknown"
        token = error.token if isinstance(error, OutcomeUnknown) else None
        if not recorder.end(process, append, error):
            append.outcome = "unknown"
        if not isinstance(token, ProducerToken):
            return None
        append.token = f"{token.producer.hex()}/{token.stream}/{token.sequence}"
        return token
    append.outcome, append.first, append.last, append.stream = "ack", ack.first, ack.last, ack.stream
    if not recorder.end(process, append):
        append.outcome = "unknown"
    return None


def microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)
