"""Transactions that are given before the earlier ones are answered, and yet are applied in the order given.

A shared store applies transactions that overlap in any order, so each link of a chain carries the condition
that the one before it has been applied: a key holds the number of the last link, link k expects k-1 there and
puts k.

    chain key     41        42        43
                  |─ link 42 ─▶|─ link 43 ─▶|       43 sent before 42 is answered: one round trip for both
                  |─ link 43: refused, it overtook 42; sent again once 42 is known to be applied

So whatever was applied is, at any moment and after any crash, a prefix of what was given; and no link is told
to be applied before those in front of it. When a link fails, all behind it do, and changed nothing. If it is known
that the failed one changed nothing either, the chain goes on from there once all links under way have ended.

Two chains on one key keep each other from working and harm nothing; a leader uses its fenced store.
"""

import asyncio
from collections import deque
from typing import TypeAlias

from varlog.base.errors import Conflict, OutcomeUnknown, Overloaded, VarlogError
from varlog.base.invariant import invariant
from varlog.ports.metadata import MetadataStore, Transaction

WINDOW = 4
"""Links under way at once. A link that overtook another costs a second round trip, and so do all behind it, so
more gains little."""
WAITING = 10_000
"""Most callers that wait for room in the window; more are refused."""

_Ended: TypeAlias = "asyncio.Future[VarlogError | None]"
"""Done when a link has ended, with what it failed of."""


class Chain:
    """See the module. Made by `open`."""

    def __init__(self, store: MetadataStore, key: str, last: int, window: int) -> None:
        """`last` is the number that the key holds; 0: the key is not there."""
        self._store = store
        self._key = key
        self._given = last
        """Number of the last link sent."""
        self._applied = last
        """Number of the last link known to be applied."""
        self._room = asyncio.Semaphore(window)
        self._waiting = 0
        self._under_way: deque[_Ended] = deque()
        """Oldest first."""
        self._failure: VarlogError | None = None

    @classmethod
    async def open(cls, store: MetadataStore, key: str, window: int = WINDOW) -> "Chain":
        """Go on where the key says. A leader opens it anew in every term."""
        found = await store.get(key)
        return cls(store, key, 0 if found is None else int(found.value), window)

    async def commit(self, transaction: Transaction) -> None:
        """Returns when the transaction, and all given before it, are applied and durable.

        Raises the error of the store, or `Conflict` when a condition of the transaction's own does not hold; then
        neither it nor any that was given after it and is still under way was applied, unless the error says that the
        outcome is not known. After such an error the chain takes nothing more: open it anew.
        """
        transaction.check()
        if self._waiting >= WAITING:
            raise Overloaded(f"too many transactions wait for {self._key!r}", 100)
        self._waiting += 1
        try:
            await self._room.acquire()  # in the order of the calls
        finally:
            self._waiting -= 1
        try:
            await self._link(transaction)
        finally:
            self._room.release()

    async def _link(self, transaction: Transaction) -> None:
        if self._failure is not None:
            raise _behind(self._failure)
        before = self._under_way[-1] if self._under_way else None
        link: _Ended = asyncio.get_running_loop().create_future()
        self._under_way.append(link)
        self._given = number = self._given + 1
        error: VarlogError | None = OutcomeUnknown(f"link {number} of {self._key!r} was given up while under way")
        try:
            await self._apply(number, self._numbered(number, transaction), before)
            self._applied = number
            error = None
        except VarlogError as failed:
            error = failed
            raise
        finally:
            self._end(link, error)

    def _numbered(self, number: int, transaction: Transaction) -> Transaction:
        linked = transaction.copy()
        if number == 1:
            linked.expect[self._key] = 0
        else:
            linked.expect_values[self._key] = str(number - 1).encode()
        linked.put[self._key] = str(number).encode()
        return linked

    async def _apply(
        self, number: int, linked: Transaction, before: "asyncio.Future[VarlogError | None] | None"
    ) -> None:
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

    def _end(self, link: _Ended, error: VarlogError | None) -> None:
        link.set_result(error)
        self._under_way.remove(link)
        if error is not None and (self._failure is None or not error.outcome_known):
            self._failure = error
        if not self._under_way and self._failure is not None and self._failure.outcome_known:
            self._failure = None
            self._given = self._applied


def _behind(failed: VarlogError) -> VarlogError:
    return type(failed)(f"a transaction before it failed: {failed.message}", failed.value)
