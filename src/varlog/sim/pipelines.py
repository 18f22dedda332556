"""Producers of simulated clients: pipelined sends, anonymous or under a name that outlives the process.

A named producer numbers its batches and keeps them in a *journal*, which is the application's own
memory and survives its crashes: after a restart it sends again whatever it has no Ack for, under the
same number, and each batch must be in the log once. It keeps to a stream of its choice: numbers are
those of one stream, and a producer that changes it has no number there. In some seeds it is opened anew while its
last life goes on, which does not know that it was followed, and sends what the other sends.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from random import Random
from typing import Protocol

from varlog.base.errors import InvalidArgument, VarlogError
from varlog.client import Ack, Log, Producer
from varlog.sim.history import Append, Opening, fingerprint
from varlog.sim.host import Process
from varlog.sim.record import Recorder, finish_append

LINGERS = (0.0, 0.002, 0.05)
"""Seconds a producer may wait for more."""

TIMEOUTS = (1.0, 10.0)
"""Seconds a send may take."""

REOPEN_SECONDS = 0.2
"""Pause before a producer that ended is opened again."""

LOOK_BACK = 8
"""Batches without an Ack beyond which a named producer waits."""

GHOST_BATCHES = 3
"""At most so many are sent by a named producer that was followed."""


class Journal:
    """What a named producer has sent, by number; `acked` counts from the first on."""

    def __init__(self, stream: int | None) -> None:
        """`stream`: the one it keeps to; None: any, and another when that has ended."""
        self.stream = stream
        self.batches: list[list[bytes]] = []
        self.doubts: list[int] = []
        """By number: how many times it was sent without being refused. What was sent before stays in doubt."""
        self.acked = 0

    def add(self, batch: list[bytes]) -> None:
        self.batches.append(batch)
        self.doubts.append(0)


class Sender(Protocol):
    """The worker that a pipeline belongs to."""

    process: Process
    recorder: Recorder
    random: Random

    @property
    def stopping(self) -> bool: ...

    @property
    def rate(self) -> float: ...

    @property
    def ghosts(self) -> float:
        """How likely a named producer is followed by another, unaware, after each batch."""
        ...

    def make_payloads(self) -> list[bytes]: ...

    def acked(self, append: Append) -> None: ...


class Pipeline:
    """One producer after the other, to one log, until the worker stops."""

    def __init__(self, sender: Sender, number: int, name: str, log: Log, journal: Journal | None) -> None:
        """The `number` tells it from the worker's others; `name` is the log's."""
        self._sender = sender
        self._number = number
        self._name = name
        self._log = log
        self._journal = journal
        self._open = 0
        self._lives = 0

    @property
    def busy(self) -> bool:
        return self._open > 0

    async def run(self) -> None:
        sender = self._sender
        host = sender.process.host.name
        while not sender.stopping:
            self._lives += 1
            producer = self._log.producer(
                linger=sender.random.choice(LINGERS),
                timeout=sender.random.choice(TIMEOUTS),
                id=f"{host}-etl" if self._journal is not None else None,
                stream=self._journal.stream if self._journal is not None else None,
            )
            try:
                async with AsyncExitStack() as open_until_its_end:
                    await open_until_its_end.enter_async_context(producer)
                    if self._journal is None:
                        await self._send_freely(producer)
                    elif await self._send_numbered(producer, self._journal):
                        open_until_its_end.pop_all()
                        sender.process.spawn(self._haunt(producer, self._journal), "send though another has followed")
            except InvalidArgument:
                raise  # nothing that it sends is: a defect
            except VarlogError:
                await sender.process.clock.sleep(REOPEN_SECONDS)

    async def _pause(self) -> None:
        await self._sender.process.clock.sleep(self._sender.random.expovariate(self._sender.rate))

    # ------------------------------------------------------------ anonymous

    async def _send_freely(self, producer: Producer) -> None:
        sender = self._sender
        lane = f"{sender.process.name}/{self._number}/{self._lives}"
        while not sender.stopping:
            await self._pause()
            payloads = sender.make_payloads()
            append = self._begin(payloads, lane)
            try:
                if len(payloads) == 1:
                    future = await producer.send(payloads[0])
                else:
                    future = await producer.send_batch(payloads)
            except VarlogError as error:
                await finish_append(sender.recorder, sender.process, append, _raise(error))
                raise
            self._watch(append, future)

    def _begin(self, payloads: list[bytes], lane: str = "") -> Append:
        append = Append(log=self._name, payloads=[fingerprint(payload) for payload in payloads], lane=lane)
        return self._sender.recorder.begin(self._sender.process, append)

    def _watch(self, append: Append, future: "asyncio.Future[Ack]") -> None:
        self._open += 1
        self._sender.process.spawn(self._finish(append, future), "settle a send")

    async def _finish(self, append: Append, future: Awaitable[Ack]) -> None:
        try:
            await finish_append(self._sender.recorder, self._sender.process, append, future)
            if append.outcome == "ack":
                self._sender.acked(append)
        finally:
            self._open -= 1

    # ------------------------------------------------------------ named

    async def _send_numbered(self, producer: Producer, journal: Journal) -> bool:
        """From the first batch without an Ack on: those of the journal again, then new ones. True: another is to
        follow, and it stays open."""
        sender = self._sender
        number = journal.acked
        told = journal.batches[number : producer.next_sequence]
        opening = Opening(log=self._name, payloads=[fingerprint(batch[0]) for batch in told])
        sender.recorder.end(sender.process, sender.recorder.begin(sender.process, opening))
        while not sender.stopping or number < len(journal.batches):
            await self._pause()
            if number - journal.acked >= LOOK_BACK:
                await producer.flush()
            if number == len(journal.batches):
                journal.add(sender.make_payloads())
            await self._send_number(producer, journal, number)
            number += 1
            if sender.ghosts and not sender.stopping and sender.random.random() < sender.ghosts:
                return True
        await producer.flush()
        return False

    async def _haunt(self, producer: Producer, journal: Journal) -> None:
        """It goes on for a while with what it takes for the next batches."""
        self._open += 1
        try:
            for _ in range(GHOST_BATCHES):
                await self._pause()
                number = producer.next_sequence
                if number < len(journal.batches) and not self._sender.stopping:
                    await self._send_number(producer, journal, number)
        except VarlogError:
            pass  # as it should be
        finally:
            producer.abort()
            self._open -= 1

    async def _send_number(self, producer: Producer, journal: Journal, number: int) -> None:
        append = self._begin(journal.batches[number])
        journal.doubts[number] += 1
        try:
            future = await producer.send_batch(journal.batches[number], sequence=number)
        except VarlogError as error:
            await finish_append(self._sender.recorder, self._sender.process, append, _raise(error))
            self._replace_refused(append, journal, number)
            raise
        self._open += 1
        work = self._finish_numbered(append, future, journal, number)
        self._sender.process.spawn(work, "settle a numbered send")

    async def _finish_numbered(self, append: Append, future: Awaitable[Ack], journal: Journal, number: int) -> None:
        await self._finish(append, future)
        if append.outcome == "ack" and number == journal.acked:
            journal.acked += 1
        self._replace_refused(append, journal, number)

    def _replace_refused(self, append: Append, journal: Journal, number: int) -> None:
        """What was refused is certainly not in the log, and is never sent again: its number goes to another.

        Unless it was sent before, perhaps in another life: nobody can tell what became of that.
        """
        if append.outcome != "refused":
            return
        journal.doubts[number] -= 1
        if journal.doubts[number]:
            append.outcome = "unknown"
        else:
            journal.batches[number] = self._sender.make_payloads()


async def _raise(error: VarlogError) -> Ack:
    raise error
