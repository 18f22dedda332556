"""Leading under a lease, on any store that has leases; and the fence that keeps a former leader from writing.

    own clock     |renewal sent ......answered|                                    |held ends
    ──────────────┼───────────────────────────┼────────────────────────────────────┼────────┼──────▶
    store's clock       |renewal applied                                                     |lease may end
                        |<───────────────────────── lease ──────────────────────────────────▶|

A renewal counts from when it was *sent*, and for `HELD_SHARE` of the lease only, so that the leader stops
believing in itself before the store can give the lead to another, even if one clock runs somewhat faster.
That makes two leaders at once unlikely; what makes them harmless is `FencedStore`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from varlog.base.errors import NotLeader, Timeout, Unavailable, VarlogError
from varlog.ports.clock import Clock
from varlog.ports.election import Leader, Leadership, leader_key
from varlog.ports.metadata import Change, MetadataStore, Transaction, Versioned
from varlog.runtime.scope import Scope
from varlog.runtime.timeout import within

HELD_SHARE = 0.75
"""How much of a lease is relied on."""
RENEWALS = 4
"""How often a lease is renewed while it lasts."""
LOOK_S = 5.0
"""How often a candidate looks whether it may lead, when nothing tells it."""
SHORTEST_S = 0.0005
"""With less left of a lease it is not renewed any more: a clock need not even move in so little."""
RETRY_S = 0.2
"""Pause of a candidate when the store is away."""


class Leases(Protocol):
    """What a store needs so that `campaign` can be held in it."""

    async def grant(self, seconds: float) -> int:
        """A new lease, and its id. What is attached to it goes when it ends."""
        ...

    async def renew(self, lease: int) -> float:
        """Seconds the lease lasts from now; 0: it is gone."""
        ...

    async def revoke(self, lease: int) -> None:
        """End it now, with all that is attached to it."""
        ...

    async def take(self, key: str, value: bytes, lease: int) -> int:
        """Make a key that does not exist, attached to the lease; its version, or 0 if it is there or the lease gone."""
        ...


# ---------------------------------------------------------------- leading


class HeldLeadership:
    """`Leadership` under a lease that is renewed in the background. Made by `campaign`."""

    def __init__(
        self, clock: Clock, leases: Leases, scope: Scope, leader: tuple[str, str, int], lease: int, seconds: float
    ) -> None:
        """`seconds` is what was granted, counted from now; whoever took longer to get here passes less."""
        self.name, self.identity, self.term = leader
        self._clock = clock
        self._leases = leases
        self._lease = lease
        self._seconds = seconds
        self._until = clock.now() + seconds * HELD_SHARE
        self._ended = False
        self._resigned = False
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping = scope.spawn(self._keep(), name=f"lease of {self.name}")

    @property
    def sole(self) -> bool:
        return False

    @property
    def held(self) -> bool:
        return not self._ended and self._clock.now() < self._until

    async def wait_lost(self) -> None:
        await asyncio.shield(self._lost)

    def lose(self) -> None:
        self._ended = True
        self._keeping.cancel()
        if not self._lost.done():
            self._lost.set_result(None)

    async def resign(self) -> None:
        self.lose()  # first, so that no moment has two who believe to lead
        if self._resigned:
            return
        self._resigned = True
        try:
            await self._leases.revoke(self._lease)
        except VarlogError as error:
            if not error.retryable:
                raise
            # The store is away: the lease ends by itself.

    async def _keep(self) -> None:
        try:
            while self.held and await self._renew():
                pass
        finally:
            self.lose()

    async def _renew(self) -> bool:
        """One renewal. False: there is nothing left to renew."""
        left = self._until - self._clock.now()
        await self._clock.sleep(min(self._seconds / RENEWALS, left))
        sent = self._clock.now()
        if self._until - sent < SHORTEST_S:
            return False
        try:
            remaining = await within(self._clock, self._until - sent, self._leases.renew(self._lease))
        except VarlogError as error:
            return error.retryable
        self._until = max(self._until, sent + remaining * HELD_SHARE)
        return remaining > 0


async def campaign(
    store: MetadataStore, leases: Leases, clock: Clock, scope: Scope, name: str, identity: str, seconds: float
) -> HeldLeadership:
    """Wait until nobody leads, then lead."""
    key = leader_key(name)
    while True:
        try:
            await _vacancy(store, clock, key)
            sent = clock.now()
            lease = await leases.grant(seconds)
            term = await _take(leases, key, identity, lease)
            if term:
                left = max(0.0, seconds - (clock.now() - sent))
                return HeldLeadership(clock, leases, scope, (name, identity, term), lease, left)
        except VarlogError as error:
            if not error.retryable:
                raise
            await clock.sleep(RETRY_S)


async def _take(leases: Leases, key: str, identity: str, lease: int) -> int:
    """Whatever goes wrong, the lease is given back, and with it a key that may or may not have been made."""
    term = 0
    try:
        term = await leases.take(key, identity.encode(), lease)
    finally:
        if not term:
            try:
                await leases.revoke(lease)
            except VarlogError as error:
                if not error.retryable:
                    raise
                # The store is away: the lease ends by itself.
    return term


async def _vacancy(store: MetadataStore, clock: Clock, key: str) -> None:
    """Returns when nobody holds the key."""
    changes = store.watch(key)
    try:
        while await store.get(key) is not None:
            try:
                await within(clock, LOOK_S, _gone(changes, key))
            except Timeout:
                pass  # look again, whatever a watch may have missed
    finally:
        await _close(changes)


async def _gone(changes: AsyncIterator[Change], key: str) -> None:
    async for change in changes:
        if change.key == key and change.value is None:
            return
    raise Unavailable("the metadata store is closed")


async def _close(changes: AsyncIterator[Change]) -> None:
    close = getattr(changes, "aclose", None)
    if close is not None:
        await close()


class SoleLeadership:
    """`Leadership` in a store that one process has to itself: it lasts until it is given up."""

    def __init__(self, store: MetadataStore, name: str, identity: str, term: int, released: asyncio.Lock) -> None:
        """`released` is locked, and unlocked when the leadership ends."""
        self.name = name
        self.identity = identity
        self.term = term
        self._store = store
        self._released = released
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def sole(self) -> bool:
        return True

    @property
    def held(self) -> bool:
        return not self._lost.done()

    async def wait_lost(self) -> None:
        await asyncio.shield(self._lost)

    def lose(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    async def resign(self) -> None:
        self.lose()
        released, self._released = self._released, asyncio.Lock()
        if released.locked():
            try:
                key = leader_key(self.name)
                await self._store.commit(Transaction(expect={key: self.term}, delete=[key]))
            finally:
                released.release()


# ---------------------------------------------------------------- writing as a leader


class FencedStore:
    """A `MetadataStore` whose every commit holds only while its leadership does."""

    def __init__(self, store: MetadataStore, leadership: Leadership) -> None:
        self._store = store
        self._leadership = leadership
        self._key = leader_key(leadership.name)
        self._closed = False

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        return await self._store.get(key)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        self._check_open()
        return await self._store.scan(prefix)

    async def commit(self, transaction: Transaction) -> bool:
        """As the store's; raises `NotLeader`, and has changed nothing, when the term is over."""
        self._check_open()
        if not self._leadership.held:
            raise NotLeader(f"{self._leadership.identity} no longer leads {self._leadership.name!r}")
        expect = {**transaction.expect, self._key: self._leadership.term}
        fenced = Transaction(expect, transaction.put, transaction.delete, transaction.delete_ranges)
        if await self._store.commit(fenced):
            return True
        found = await self._store.get(self._key)
        if found is not None and found.version == self._leadership.term:
            return False
        self._leadership.lose()
        raise NotLeader(
            f"{self._leadership.identity} was deposed from {self._leadership.name!r}", found.version if found else 0
        )

    def watch(self, prefix: str) -> AsyncIterator[Change]:
        return self._store.watch(prefix)

    async def close(self) -> None:
        """The store itself stays open: it outlives the leader's term."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the leader's view of the metadata store is closed")


# ---------------------------------------------------------------- following


async def leader_of(store: MetadataStore, name: str) -> Leader | None:
    """Who leads now; None: nobody."""
    found = await store.get(leader_key(name))
    return Leader(found.value.decode(), found.version) if found is not None else None


async def follow_leader(store: MetadataStore, name: str) -> AsyncIterator[Leader | None]:
    """Who leads now, and then every time that changed, without end until the store is closed."""
    key = leader_key(name)
    changes = store.watch(key)
    try:
        yield (shown := await leader_of(store, name))
        async for change in changes:
            if change.key == key and (present := await leader_of(store, name)) != shown:
                yield (shown := present)
    finally:
        await _close(changes)
