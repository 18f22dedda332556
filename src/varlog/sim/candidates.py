"""Who leads journals in a simulated run: every client now and then, and an administrator once faults have stopped.

A candidate comes, is elected or gives up, leads for a while, and leaves, or goes on appending though another has
taken over, as one does that was paused. It may crash at any moment, with its host.
"""

import asyncio
from random import Random
from typing import Protocol

from varlog.base.errors import Fenced, Unavailable, Unsupported, VarlogError
from varlog.client import Ack, Cluster, JournalLeader
from varlog.sim.history import Append, Chain, fingerprint, payload_bytes
from varlog.sim.host import Process
from varlog.sim.record import Recorder, finish_append
from varlog.sim.reshaper import tell
from varlog.sim.weather import Shape

TTLS = (0.1, 0.5, 2.0)
PATIENCE_SECONDS = 3.0
"""So long it waits to be elected before it thinks again."""
LOOK_SECONDS = 0.2
"""How often it looks whether it still leads."""
GIVES_UP = 0.3
"""Share of the looks at which one that does not lead any more leaves."""
CHAIR_TTL = 600.0
"""Longer than a run lasts: he is never struck."""
CHAIR_TIMEOUT = 10.0
CHAIR_PAUSE = 1.0


class Owner(Protocol):
    """The worker."""

    process: Process
    recorder: Recorder
    random: Random

    @property
    def healing(self) -> bool:
        """Faults have stopped: an administrator takes over."""
        ...


class Candidate:
    """One client's wish to lead one journal."""

    def __init__(self, owner: Owner, cluster: Cluster, name: str) -> None:
        self.leader: JournalLeader | None = None
        """Who appends, or tries to."""
        self._owner = owner
        self._cluster = cluster
        self._name = name

    async def run(self) -> None:
        """Until faults stop."""
        clock, random = self._owner.process.clock, self._owner.random
        while not self._owner.healing:
            await clock.sleep(random.expovariate(2.0))
            try:
                await self._lead(random.choice(TTLS), random.expovariate(1 / 3.0))
            except VarlogError:
                continue  # not elected, or the repository is away

    async def _lead(self, ttl: float, seconds: float) -> None:
        clock, random = self._owner.process.clock, self._owner.random
        async with self._cluster.journal(self._name) as journal:
            record = self._owner.recorder.begin(self._owner.process, Chain(log=self._name, changed=True))
            try:
                leader = await journal.lead(ttl=ttl, timeout=PATIENCE_SECONDS).__aenter__()
            except VarlogError as error:
                self._owner.recorder.end(self._owner.process, record, error)
                raise
            try:
                self.leader = leader
                until = clock.now() + seconds
                await self._tell(record)
                while clock.now() < until and not self._owner.healing:
                    await clock.sleep(LOOK_SECONDS)
                    if not leader.epoch and random.random() < GIVES_UP:
                        break
            finally:
                self.leader = None
                await leader.__aexit__(None, None, None)

    async def _tell(self, record: Chain) -> None:
        """An election is a change of the log: what the chain is from now on."""
        try:
            tell(record, await self._cluster.log(self._name).info())
        except VarlogError as error:
            self._owner.recorder.end(self._owner.process, record, error)
        else:
            self._owner.recorder.end(self._owner.process, record)


class Plan(Protocol):
    """The run, as an administrator sees it."""

    shape: Shape
    log_names: list[str]
    recorder: Recorder
    stopping: bool


class Chair:
    """An administrator who leads journals when all others have left, and appends now and then, until all stops."""

    def __init__(self, plan: Plan, admin: Process, cluster: Cluster) -> None:
        self._plan = plan
        self._admin = admin
        self._cluster = cluster
        self._leaders: dict[str, JournalLeader] = {}
        self._locks = {name: asyncio.Lock() for name in plan.log_names}
        for name in plan.log_names if plan.shape.journal else ():
            admin.spawn(self._write(name), "chair")

    async def append(self, name: str, payload: bytes, timeout: float, stream: int | None = None) -> Ack:
        """Append, being elected first if need be; as everybody, if it is no journal any more, to that stream."""
        async with self._locks[name]:
            if name not in self._leaders:
                try:
                    journal = await self._cluster.journal(name).__aenter__()
                    self._leaders[name] = await journal.lead(ttl=CHAIR_TTL, timeout=timeout).__aenter__()
                except Unsupported:
                    return await self._cluster.log(name).append(payload, timeout=timeout, stream=stream)
            leader = self._leaders[name]
        try:
            return await leader.append(payload, timeout=timeout)
        except (Fenced, Unavailable):
            self._leaders.pop(name, None)
            raise

    async def _write(self, name: str) -> None:
        number = 0
        while not self._plan.stopping:
            number += 1
            payload = payload_bytes(f"{self._admin.name}.{name}.{number}")
            append = self._plan.recorder.begin(self._admin, Append(log=name, payloads=[fingerprint(payload)]))
            send = self.append(name, payload, CHAIR_TIMEOUT)
            await finish_append(self._plan.recorder, self._admin, append, send)
            if "Sealed" in append.error:
                return
            await self._admin.clock.sleep(CHAIR_PAUSE)
