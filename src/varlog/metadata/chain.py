"""Transactions that are given before the earlier ones are answered, and yet are applied in the order given.

A shared store applies transactions that overlap in any order, so each link of a chain carries the condition that the
one before it has been applied: a key holds the number of the last link, link k expects k-1 there and puts k.

    chain key     41         42         43
                  |─ link 42 ─▶|─ link 43 ─▶|      43 sent before 42 is answered: one latency for both
                  |─ link 43: refused, it overtook 42; sent again once 42 is known to be applied

So whatever was applied is, at any moment and after any crash, a prefix of what was given; and nobody is told that his
transaction is applied before those in front of it are. When a link fails, everything behind it does too, and changed
nothing. If it is known that the failed one changed nothing either, the chain goes on from where it stood as soon as all
links under way have ended; else it takes nothing more, and whoever wants to go on reads anew how things stand.

Transactions that wait while the window is full travel together in one link: the store is asked as often as it answers,
however much there is to do.

Two chains on one key keep each other from working and harm nothing; a leader uses its fenced store.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from varlog.base.errors import Conflict, OutcomeUnknown, Overloaded, Unavailable, VarlogError
from varlog.base.invariant import invariant
from varlog.ports.metadata import MetadataStore, Transaction
from varlog.runtime.scope import Scope

WINDOW = 1
"""Links under way at once. A second one saves waiting where the store is far away; where it is near, it overtakes the
first too often: with 64 callers and an etcd on the same machine, one under way brought a sixth to a half more a second
than two, and of four nearly all had to be sent again."""
WAITING = 10_000
"""Most transactions that wait for room in the window; more are refused."""
LINK_CHANGES = 1_000
LINK_BYTES = 512 << 10
"""Largest link made of several transactions."""

_Ended: TypeAlias = asyncio.Future[VarlogError | None]
"""Done when a link has ended, with what it failed of."""


@dataclass(eq=False, slots=True)
class _Link:
    """Transactions that are applied as one."""

    joined: Transaction
    """The sum of them."""
    callers: "list[asyncio.Future[None]]"
    size: int
    ended: _Ended
    keys: dict[str, None]
    """All that they touch."""

    def join(self, transaction: Transaction, caller: "asyncio.Future[None]", size: int) -> None:
        """Only what can neither fail by itself nor meet what is here already."""
        self.joined.put.update(transaction.put)
        self.joined.delete.extend(transaction.delete)
        self.callers.append(caller)
        self.size += size
        self.keys.update(_touched(transaction))

    def takes(self, transaction: Transaction, size: int) -> bool:
        if self.size + size > LINK_BYTES or not (_plain(self.joined) and _plain(transaction)):
            return False
        touched = _touched(transaction)
        return len(self.keys) + len(touched) <= LINK_CHANGES and not any(key in self.keys for key in touched)


class Chain:
    """See the module. Made by `open`; `close` it."""

    def __init__(self, store: MetadataStore, key: str, last: int, window: int) -> None:
        """`last` is the number that the key holds; 0: the key is not there."""
        self._store = store
        self._key = key
        self._window = window
        self._given = last
        """Number of the last link sent."""
        self._applied = last
        """Number of the last link known to be applied."""
        self._waiting: deque[tuple[Transaction, asyncio.Future[None]]] = deque()
        self._under_way: deque[_Link] = deque()
        """Oldest first."""
        self._failure: VarlogError | None = None
        self._scope = Scope()

    @classmethod
    async def open(cls, store: MetadataStore, key: str, window: int = WINDOW) -> "Chain":
        """Go on where the key says. A leader opens it anew in every term."""
        found = await store.get(key)
        return cls(store, key, 0 if found is None else int(found.value), window)

    async def commit(self, transaction: Transaction) -> None:
        """Returns when the transaction, and all given before it, are applied and durable.

        Raises the error of the store, or `Conflict` when a condition of the transaction's own does not hold; then
        neither it nor any that was given after it and is still under way was applied, unless the error says that the
        outcome is not known. Who is cancelled does not know the outcome; the chain goes on.
        """
        transaction.check()
        if self._failure is not None:
            raise _behind(self._failure)
        if self._scope.closed:
            raise Unavailable(f"the chain {self._key!r} is closed")
        if len(self._waiting) >= WAITING:
            raise Overloaded(f"too many transactions wait for {self._key!r}", 100)
        caller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((transaction.copy(), caller))
        self._send()
        await caller

    async def close(self) -> None:
        """Give up what is under way; nobody knows its outcome."""
        await self._scope.close()
        self._refuse_waiting(Unavailable(f"the chain {self._key!r} is closed"))

    # ------------------------------------------------------------ links

    def _send(self) -> None:
        while self._failure is None and len(self._under_way) < self._window:
            link = self._next()
            if link is None:
                return
            before = self._under_way[-1].ended if self._under_way else None
            self._under_way.append(link)
            self._given += 1
            self._scope.spawn(self._run(link, self._given, before), name=f"link {self._given}")

    def _next(self) -> _Link | None:
        """As many of those that wait as fit together."""
        link: _Link | None = None
        while self._waiting:
            transaction, caller = self._waiting[0]
            size = sum(map(len, transaction.put.values()))
            if not caller.done():  # else its caller was cancelled before it was sent
                if link is None:
                    ended: _Ended = asyncio.get_running_loop().create_future()
                    link = _Link(transaction, [caller], size, ended, _touched(transaction))
                elif link.takes(transaction, size):
                    link.join(transaction, caller, size)
                else:
                    return link
            self._waiting.popleft()
        return link

    async def _run(self, link: _Link, number: int, before: _Ended | None) -> None:
        error: VarlogError | None = OutcomeUnknown(f"link {number} of {self._key!r} was given up while under way")
        try:
            await self._apply(number, self._numbered(number, link.joined), before)
            self._applied = number
            error = None
        except VarlogError as failed:
            error = failed
        finally:
            self._end(link, error)

    def _numbered(self, number: int, linked: Transaction) -> Transaction:
        if number == 1:
            linked.expect[self._key] = 0
        else:
            linked.expect_values[self._key] = str(number - 1).encode()
        linked.put[self._key] = str(number).encode()
        return linked

    async def _apply(self, number: int, linked: Transaction, before: _Ended | None) -> None:
        applied = await self._store.commit(linked)
        if before is not None:
            failed = await asyncio.shield(before)
            if failed is not None:
                invariant(not (applied and failed.outcome_known), "a link is there without the one before", link=number)
                raise _behind(failed)
            if not applied:  # it overtook the one before it, which is there now
                applied = await self._store.commit(linked)
        if not applied:
            raise Conflict(f"a condition of link {number} of {self._key!r} does not hold")

    def _end(self, link: _Link, error: VarlogError | None) -> None:
        link.ended.set_result(error)
        self._under_way.remove(link)
        for caller in link.callers:
            _answer(caller, error)
        if error is not None:
            if self._failure is None or not error.outcome_known:
                self._failure = error
            self._refuse_waiting(_behind(error))
        if not self._under_way and self._failure is not None and self._failure.outcome_known:
            self._failure = None
            self._given = self._applied
        self._send()

    def _refuse_waiting(self, error: VarlogError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, caller in waiting:
            _answer(caller, error)


def _plain(transaction: Transaction) -> bool:
    """Has no condition, and names every key it touches."""
    return not (transaction.expect or transaction.expect_values or transaction.delete_ranges)


def _touched(transaction: Transaction) -> dict[str, None]:
    return dict.fromkeys((*transaction.put, *transaction.delete))


def _answer(caller: "asyncio.Future[None]", error: VarlogError | None) -> None:
    if caller.done():  # cancelled
        return
    if error is None:
        caller.set_result(None)
    else:
        caller.set_exception(type(error)(error.message, error.value))


def _behind(failed: VarlogError) -> VarlogError:
    return type(failed)(f"a transaction before it failed: {failed.message}", failed.value)
