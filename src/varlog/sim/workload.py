"""What simulated clients do: appends, reads, tails, trims, finds and subscriptions, each recorded.

A worker is the program of one client host. It uses nothing but the public client. It issues
operations at random moments, some of them at once, until told to stop; its subscribers go on until
the end. Every payload is sent once only, except that an append whose outcome is unknown may be sent
again with the token that came with the error, as an application would.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from varlog.base.errors import OutcomeUnknown, Trimmed, VarlogError
from varlog.base.ids import ProducerToken
from varlog.client import Ack, Cluster, JournalLeader, Log, connect
from varlog.client.entry import EPOCH
from varlog.sim.candidates import Candidate
from varlog.sim.history import Append, Find, Read, Subscription, Tail, Trim, fingerprint, payload_bytes
from varlog.sim.host import Process
from varlog.sim.pipelines import Journal, Pipeline
from varlog.sim.record import Recorder, finish_append, microseconds
from varlog.sim.weather import Shape

FOR_EVER = 1e6
"""Seconds that no run lasts."""

TIMEOUTS = (0.3, 2.0, 10.0)
"""Seconds that callers are willing to wait."""

CANCELLED = 0.03
"""Share of appends that are cancelled soon after they were begun."""

UNLED = 0.3
"""Share of appends to a journal that are tried by who does not lead it."""

CONDITIONAL = 0.2
"""Share of single appends that may get the next position only, where logs can do that."""

GUESSES = (1, 1, 1, 1, 0, 2)
"""Where a position is named that an entry is to get, so far behind the last one that is known of; mostly the next."""

CALM_RATE = 5.0
"""Most operations a second of a client once faults have stopped."""

SETTLES = ("Sealed", "Junk")
"""Errors of `retry` which say that the append is certainly not in the log, whatever was sent before."""

RETRIES = 3
"""How often an append with unknown outcome is sent again, at most."""


class Plan(Protocol):
    """What all workers of a run share."""

    url: str
    shape: Shape
    log_names: list[str]
    recorder: Recorder
    healing: bool
    """Faults have stopped."""
    stopping: bool
    """No new operations, please."""
    known: dict[str, int]
    """The highest position that some client knows of, per log."""
    trimmed: dict[str, int]
    """The highest trim point asked for, per log."""
    journals: dict[str, Journal]
    """What named producers have sent, per client host: the applications' own memory."""


class Worker:
    """One life of one client program."""

    def __init__(self, plan: Plan, process: Process) -> None:
        self._plan = plan
        self._shape = plan.shape
        self.process = process
        self.recorder = plan.recorder
        self.random = Random(f"{process.host.seed}/workload/{process.name}")
        self._candidates: dict[str, Candidate] = {}
        self._sent = 0
        self._in_flight = 0
        self.busy = True
        """Operations are still being issued or under way."""

    async def run(self) -> None:
        clock = self.process.world.clock
        async with connect(self._plan.url, world=self.process.world) as cluster:
            logs = {name: cluster.log(name) for name in self._plan.log_names}
            for _ in range(self._shape.subscribers):
                name = self.random.choice(self._plan.log_names)
                self.process.spawn(self._subscribe(name, logs[name]), "subscriber")
            pipelines = [self.process.spawn(each.run(), "pipeline") for each in self._pipelines(logs)]
            pipelines += [self.process.spawn(each.run(), "candidate") for each in self._candidates_for(cluster)]
            while not self.stopping:
                burst = self.random.randint(1, self._shape.burst)
                await clock.sleep(self.random.expovariate(self.rate / burst))
                for _ in range(burst):
                    self._issue(logs)
            while self._in_flight or any(not task.done() for task in pipelines):
                await clock.sleep(0.05)
            self.busy = False
            await clock.sleep(FOR_EVER)

    @property
    def stopping(self) -> bool:
        return self._plan.stopping

    @property
    def rate(self) -> float:
        """Operations a second; few when the faults are over, for it may take long until all is well."""
        usual = self._shape.operations_per_second
        return min(usual, CALM_RATE) if self._plan.healing else usual

    def _candidates_for(self, cluster: Cluster) -> list[Candidate]:
        """Of a journal every client wants to be the leader."""
        for name in self._plan.log_names if self._shape.journal else ():
            self._candidates[name] = Candidate(self, cluster, name)
        return list(self._candidates.values())

    @property
    def healing(self) -> bool:
        return self._plan.healing

    @property
    def ghosts(self) -> float:
        return self._shape.ghosts

    def _pipelines(self, logs: dict[str, Log]) -> list[Pipeline]:
        """Anonymous producers of this life, and the named one of this host."""
        found: list[Pipeline] = []
        if self._shape.journal:
            return found
        for number in range(self._shape.producers):
            name = self.random.choice(self._plan.log_names)
            found.append(Pipeline(self, number, name, logs[name], None))
        if self._shape.named_producers:
            name = self._plan.log_names[0]
            stream = self.random.randint(1, self._shape.streams) if not self._shape.unit else 0
            journal = self._plan.journals.setdefault(self.process.host.name, Journal(stream if stream % 2 else None))
            found.append(Pipeline(self, len(found), name, logs[name], journal))
        return found

    # ------------------------------------------------------------ operations

    def _issue(self, logs: dict[str, Log]) -> None:
        if self._in_flight >= self._shape.in_flight:
            return
        name = self.random.choice(self._plan.log_names)
        kinds: list[Callable[[str, Log], Awaitable[None]]] = [
            self._append,
            self._read,
            self._tail,
            self._trim,
            self._find,
        ]
        shape = self._shape
        weights = [shape.appends, shape.reads, shape.tails, shape.trims, shape.finds]
        kind = self.random.choices(kinds, weights)[0]
        self._in_flight += 1
        self.process.spawn(self._perform(kind, name, logs[name]), kind.__name__)

    async def _perform(self, kind: Callable[[str, Log], Awaitable[None]], name: str, log: Log) -> None:
        try:
            await kind(name, log)
        finally:
            self._in_flight -= 1

    def _timeout(self) -> float:
        return self.random.choice(TIMEOUTS)

    def make_payloads(self) -> list[bytes]:
        count = self.random.randint(1, self._shape.batch_entries)
        payloads = []
        for _ in range(count):
            self._sent += 1
            padding = self.random.randint(0, self._shape.payload_bytes)
            payloads.append(payload_bytes(f"{self.process.name}.{self._sent}", padding))
        return payloads

    async def _append(self, name: str, log: Log) -> None:
        to: Log | JournalLeader | None = self._candidates[name].leader if self._shape.journal else log
        if to is None and self.random.random() < UNLED:
            to = log  # refused, but where it is no journal any more
        if to is None:
            return
        payloads = self.make_payloads()
        append = Append(log=name, payloads=[fingerprint(payload) for payload in payloads])
        single = len(payloads) == 1 and self.random.random() < 0.8
        timeout = self._timeout()
        if self._shape.conditions and to is log and self.random.random() < CONDITIONAL:
            append.expect = max(1, self._plan.known[name] + self.random.choice(GUESSES))
            send = log.append_batch(payloads, expect=append.expect, timeout=timeout)
        elif single and self._shape.unit and self.random.random() < CONDITIONAL:
            append.expect = self._plan.known[name] + 1
            send = log.append(payloads[0], expect=append.expect, timeout=timeout)
        elif single:
            send = to.append(payloads[0], timeout=timeout)
        else:
            send = to.append_batch(payloads, timeout=timeout)
        if self.random.random() < CANCELLED:
            send = self._change_of_mind(send)
        token = await self._settle_append(append, send)
        for _ in range(RETRIES):
            if token is None or self.random.random() < 0.3:
                return
            again = Append(log=name, payloads=append.payloads, expect=append.expect)
            token = await self._settle_append(again, log.retry(token, timeout=self._timeout()))
            if again.outcome == "refused" and again.error not in SETTLES:
                again.outcome = "unknown"  # this call did nothing; of the first one it says nothing

    async def _change_of_mind(self, send: Coroutine[Any, Any, Ack]) -> Ack:
        """Cancel it after a short while, as an application may."""
        loop = asyncio.get_running_loop()
        task = self.process.spawn(send, "append to be cancelled")
        ended: asyncio.Future[None] = loop.create_future()
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        timer = self.process.clock.call_later(self.random.choice((0.0, 0.001, 0.1)), task.cancel)
        await ended
        timer.cancel()
        if task.cancelled():
            raise OutcomeUnknown("cancelled by the application")
        ack: Ack = task.result()
        return ack

    async def _settle_append(self, append: Append, send: Awaitable[Ack]) -> ProducerToken | None:
        """Record how it ends. The token, if it may be sent again."""
        self.recorder.begin(self.process, append)
        token = await finish_append(self.recorder, self.process, append, send)
        if append.outcome == "ack":
            self.acked(append)
        return token

    def acked(self, append: Append) -> None:
        self._plan.known[append.log] = max(self._plan.known[append.log], append.last)

    async def _read(self, name: str, log: Log) -> None:
        glsn = self.random.randint(1, self._plan.known[name] + 2)
        if self.random.random() < 0.6:
            glsn = max(glsn, self._plan.trimmed[name] + 1)
        await self._read_at(name, log, glsn)

    async def _read_at(self, name: str, log: Log, glsn: int) -> None:
        read = self.recorder.begin(self.process, Read(log=name, glsn=glsn))
        try:
            entry = await log.read(glsn, timeout=self._timeout())
        except VarlogError as error:
            self.recorder.end(self.process, read, error)
            return
        if self.recorder.end(self.process, read):
            read.payload = fingerprint(entry.payload)
            read.stream, read.slot, read.time_us = entry.stream, entry.slot, microseconds(entry.time)

    async def _tail(self, name: str, log: Log) -> None:
        tail = self.recorder.begin(self.process, Tail(log=name))
        try:
            found = await log.tail(timeout=self._timeout())
        except VarlogError as error:
            self.recorder.end(self.process, tail, error)
            return
        if self.recorder.end(self.process, tail):
            tail.tail = found
            self._plan.known[name] = max(self._plan.known[name], found)

    async def _trim(self, name: str, log: Log) -> None:
        low, known = self._plan.trimmed[name], self._plan.known[name]
        if known <= low + 1:
            return
        upto = self.random.randint(low + 1, low + max(1, (known - low) // 2))
        self._plan.trimmed[name] = max(low, upto)
        trim = self.recorder.begin(self.process, Trim(log=name, upto=upto))
        try:
            await log.trim(upto, timeout=self._timeout())
        except VarlogError as error:
            self.recorder.end(self.process, trim, error)
            return
        trim.done = self.recorder.end(self.process, trim)
        if self.random.random() < 0.5:
            await self._read_at(name, log, self.random.randint(max(1, upto - 10), upto))

    async def _find(self, name: str, log: Log) -> None:
        now_us = self.process.world.clock.wall_us()
        time_us = now_us - int(self.random.uniform(-1.0, self.recorder.now + 1.0) * 1e6)
        find = self.recorder.begin(self.process, Find(log=name, time_us=time_us))
        try:
            found = await log.find(EPOCH + timedelta(microseconds=time_us), timeout=self._timeout())
        except VarlogError as error:
            self.recorder.end(self.process, find, error)
            return
        if self.recorder.end(self.process, find):
            find.glsn = found

    # ------------------------------------------------------------ subscribers

    async def _subscribe(self, name: str, log: Log) -> None:
        """One subscription after the other, each from where the last one ended, or from anywhere."""
        first = self.random.choice((1, self._plan.known[name] + 1))
        while True:
            first = await self._one_subscription(name, log, first)
            await self.process.world.clock.sleep(self.random.uniform(0.0, 0.3))

    async def _one_subscription(self, name: str, log: Log, first: int) -> int:
        stop, stream = 0, 0
        if not self.stopping and self.random.random() < 0.1:
            stop = first + self.random.randint(0, 20)
        if self.random.random() < 0.15:
            stream = self.random.randint(1, self._shape.streams)
        subscription = self.recorder.begin(self.process, Subscription(log=name, first=first, stop=stop, stream=stream))
        patience = self.random.choice((3, 30, 1_000_000))
        next_first = first
        try:
            async for entry in log.subscribe(start=first, stop=stop or None, stream=stream or None):
                self.recorder.deliver(self.process, subscription, entry)
                next_first = entry.glsn + 1
                patience -= 1
                if patience <= 0 and not self.stopping:
                    subscription.left = True
                    break
        except Trimmed as error:
            self.recorder.end(self.process, subscription, error)
            return max(error.first, next_first)
        except VarlogError as error:
            self.recorder.end(self.process, subscription, error)
            return next_first
        self.recorder.end(self.process, subscription)
        return next_first
