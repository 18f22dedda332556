"""The simulated metadata store: strictly serializable, in memory, slow, and honest about crashes.

A commit takes effect at one moment between its call and its answer. When the process dies in
between, it has happened or not; who comes back finds out by reading. A store without room refuses
commits and changes nothing. One whose sync failed says so, has done it or not, and refuses everything
from then on: its process has to end.

Elections are those of the real stores (`varlog.metadata.election`) on simulated leases: who is paused for longer than
its lease is deposed, and `MetadataState.depose` does it at any moment, without telling the one deposed. A shared store
has outages (`sim.outage`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from varlog.base.errors import NoSpace, OutcomeUnknown, Unavailable, VarlogError
from varlog.metadata.election import FencedStore, SoleLeadership, campaign
from varlog.ports.disk import DiskFailed
from varlog.ports.election import Leadership, leader_key
from varlog.ports.metadata import Change, Transaction, Versioned
from varlog.runtime.scope import Scope
from varlog.sim.leases import LeaseTable
from varlog.sim.loop import SimulatedLoop
from varlog.sim.outage import Outage
from varlog.sim.weather import Latency

if TYPE_CHECKING:
    from varlog.sim.host import Process


@dataclass(eq=False)
class MetadataState:
    """What is stored. Outlives the process."""

    random: Random
    latency: Latency = field(default_factory=lambda: Latency(0.001))
    in_order: bool = True
    """Commits given one after the other happen in that order; else only those that do not overlap."""
    data: dict[str, Versioned] = field(default_factory=dict)
    revision: int = 0
    """Grows with every commit, so that a key that is made again never has an old version."""
    full: bool = False
    """Commits find no room."""
    failures_wanted: int = 0
    """The next so many commits fail, and their stores with them."""
    busy_until: float = 0.0
    commits: int = 0
    watches: "dict[Watch, None]" = field(default_factory=dict)
    embedded: bool = False
    """One process has the store to itself, as it has SQLite: it leads at once. Else as on etcd, under a lease."""
    lease_s: float = 2.0
    """How long a leader that is not heard of stays one."""
    outage: Outage = field(default_factory=lambda: Outage(Random(0)))

    def __post_init__(self) -> None:
        self.leases = LeaseTable(lambda keys: void(self.apply(Transaction(delete=keys))))

    def depose(self, name: str) -> bool:
        """Whoever leads no longer does, and learns it late; whether anybody led."""
        return self.leases.revoke_holder(leader_key(name))

    def end_outage(self, loop: SimulatedLoop, context: Context, *, leases_anew: bool) -> None:
        """`leases_anew`: as after the election of another member, every lease begins anew."""
        self.outage.end(loop, context)
        self.busy_until = loop.now
        if leases_anew:
            self.leases.begin_anew(loop)

    def apply(self, transaction: Transaction) -> bool:
        if any(self._version(key) != version for key, version in transaction.expect.items()):
            return False
        self.revision += 1
        deleted = list(transaction.delete)
        for low, high in transaction.delete_ranges:
            deleted += sorted(key for key in self.data if low <= key < high)
        for key in deleted:
            if self.data.pop(key, None) is not None:
                self._tell(Change(key, None))
        for key, value in transaction.put.items():
            self.data[key] = Versioned(value, self.revision)
            self._tell(Change(key, value))
        return True

    def _version(self, key: str) -> int:
        found = self.data.get(key)
        return found.version if found is not None else 0

    def _tell(self, change: Change) -> None:
        for watch in self.watches:
            watch.tell(change)


class Watch:
    """Changes under one prefix from its making on, until the store is closed."""

    def __init__(self, state: MetadataState, prefix: str, loop: SimulatedLoop, process: "Process") -> None:
        self._state = state
        self._prefix = prefix
        self._loop = loop
        self._process = process
        self._changes: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        state.watches[self] = None

    def tell(self, change: Change) -> None:
        if change.key.startswith(self._prefix):
            self._changes.append(change)
            self._wake()

    def end(self) -> None:
        self._state.watches.pop(self, None)
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            self._process.arrive_at(self._loop.now, _answer, self._waiter)

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> Change:
        while not self._changes:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._changes.popleft()

    async def aclose(self) -> None:
        self._changes.clear()
        self.end()


class SimulatedMetadata:
    """The `MetadataStore` port of one process."""

    def __init__(self, state: MetadataState, loop: SimulatedLoop, process: "Process") -> None:
        self._state = state
        self._loop = loop
        self._process = process
        self._watches: list[Watch] = []
        self._scope = Scope()
        """Renews the leases of what is led."""
        self._closed = False
        self._failed: DiskFailed | None = None
        self._pending: dict[int, Transaction] = {}

    def crash(self) -> None:
        """The process is gone: each commit under way happens or not."""
        for transaction in self._pending.values():
            if self._state.random.random() < 0.5:
                self._state.apply(transaction)
        self._pending.clear()
        for watch in self._watches:
            self._state.watches.pop(watch, None)
        if self._state.embedded:
            self._state.busy_until = 0.0

    async def get(self, key: str) -> Versioned | None:
        await self._happen(lambda: None)
        return self._state.data.get(key)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        await self._happen(lambda: None)
        return sorted(pair for pair in self._state.data.items() if pair[0].startswith(prefix))

    async def commit(self, transaction: Transaction) -> bool:
        transaction.check()
        copy = transaction.copy()
        self._check_open()
        state = self._state
        number = state.commits = state.commits + 1
        self._pending[number] = copy
        outcome: list[bool | VarlogError] = []

        def effect() -> None:
            if self._pending.pop(number, None) is not None:
                outcome.append(self._apply(copy))

        try:
            await self._happen(effect, changes=True)
        except VarlogError as error:
            if error.outcome_known:
                del self._pending[number]
            raise
        if isinstance(outcome[0], VarlogError):
            raise outcome[0]
        return outcome[0]

    def _apply(self, transaction: Transaction) -> bool | VarlogError:
        state = self._state
        if self._failed is not None:
            return self._failed
        if state.full:
            return NoSpace("no room in the metadata store")
        if state.failures_wanted:
            state.failures_wanted -= 1
            if state.random.random() < 0.5:
                state.apply(transaction)
            if not state.embedded:
                return OutcomeUnknown("the metadata store did not answer")
            self._failed = DiskFailed("a commit of the metadata store failed")
            return self._failed
        return state.apply(transaction)

    async def _happen(self, effect: Callable[[], None], *, changes: bool = False) -> None:
        """`effect` takes place somewhere in between, whether or not anybody waits for the answer.

        In an outage it may not, or late. `changes`: whoever gets no answer has to fear that it did.
        """
        self._check_open()
        state, loop = self._state, self._loop
        outage = state.outage
        await outage.pass_by(loop, self._process.arrive_at, effect, changes)
        began, happened = outage.began, []

        def happen() -> None:
            if outage.happens(began):
                happened.append(True)
                effect()

        seconds = outage.delay(state.latency.draw(state.random))
        begin = max(loop.now, state.busy_until) if state.in_order else loop.now
        middle = begin + seconds * state.random.random()
        state.busy_until = end = begin + seconds
        future: asyncio.Future[None] = loop.create_future()
        loop.schedule(middle, happen, context=self._process.context)
        self._process.arrive_at(end, _answer, future)
        await future
        lost = outage.lost(began, bool(happened), changes)
        if lost is not None:
            raise lost

    def watch(self, prefix: str) -> Watch:
        watch = Watch(self._state, prefix, self._loop, self._process)
        self._watches.append(watch)
        return watch

    # ------------------------------------------------------------ elections

    async def elect(self, name: str, identity: str) -> Leadership:
        if self._state.embedded:
            return await self._lead_alone(name, identity)
        seconds = self._state.lease_s
        return await campaign(self, self, self._process.clock, self._scope, name, identity, seconds)

    async def _lead_alone(self, name: str, identity: str) -> Leadership:
        key, released = leader_key(name), asyncio.Lock()
        await released.acquire()
        try:
            await self.commit(Transaction(put={key: identity.encode()}))
        except NoSpace:
            pass
        found = await self.get(key)
        return SoleLeadership(self, name, identity, found.version if found is not None else 0, released)

    def fenced(self, leadership: Leadership) -> FencedStore:
        return FencedStore(self, leadership)

    async def grant(self, seconds: float) -> int:
        granted: list[int] = []
        leases, context = self._state.leases, self._process.context
        await self._happen(lambda: granted.append(leases.grant(self._loop, context, seconds)))
        return granted[0]

    async def renew(self, lease: int) -> float:
        remaining: list[float] = []
        await self._happen(lambda: remaining.append(self._state.leases.renew(self._loop, lease)))
        return remaining[0]

    async def revoke(self, lease: int) -> None:
        await self._happen(lambda: self._state.leases.revoke(lease))

    async def take(self, key: str, value: bytes, lease: int) -> int:
        taken: list[int] = []

        def effect() -> None:
            leases = self._state.leases
            if leases.exists(lease) and self._state.apply(Transaction(expect={key: 0}, put={key: value})):
                leases.attach(lease, key)
                taken.append(self._state.revision)

        await self._happen(effect, changes=True)
        return taken[0] if taken else 0

    async def close(self) -> None:
        self._closed = True
        await self._scope.close()
        for watch in self._watches:
            watch.end()

    def _check_open(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError
        if self._closed:
            raise Unavailable("the metadata store is closed")
        if self._failed is not None:
            raise self._failed


def void(result: object) -> None:
    """For a call whose result is of no interest."""


def _answer(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
