"""`MetadataStore` on etcd, for repositories that share it. See the package for what holds."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from varlog.base.errors import NoSpace, NotFound, OutcomeUnknown, Overloaded, Unavailable, Unsupported, VarlogError
from varlog.metadata.election import RENEWALS, FencedStore, HeldLeadership, campaign
from varlog.metadata.etcd import leases
from varlog.metadata.etcd.config import EtcdConfig
from varlog.metadata.etcd.connection import COMPACT, PAUSE_S, STATUS, TXN, Connection
from varlog.metadata.etcd.errors import Compacted
from varlog.metadata.etcd.markers import SESSION_RENEWAL_S, Markers, Slot
from varlog.metadata.etcd.messages import Keys, deleted_anything, encode, range_end
from varlog.metadata.etcd.reads import read_key, read_range
from varlog.metadata.etcd.space import Past
from varlog.metadata.etcd.trouble import Tell, Trouble
from varlog.metadata.etcd.watch import EtcdWatch, Feed, Feeds
from varlog.ports.clock import Clock
from varlog.ports.election import Leadership
from varlog.ports.metadata import Transaction, Versioned
from varlog.runtime.clock import RealClock
from varlog.runtime.scope import Scope
from varlog.wire.proto import etcd_pb2 as pb

Result = TypeVar("Result")

OLDEST = (3, 4, 0)
WITHDRAWN = ((3, 5, 0), (3, 5, 3))
"""[first, second): releases of etcd that may corrupt what they store."""

WATCHES = 1_000
"""Most watches of one store."""
CLOSE_S = 2.0
"""What calls under way, and then watches, get to end when the store is closed."""


class _Again(Unavailable):
    """Nothing was changed, and the same may be tried at once."""


class EtcdStore:
    """See the package. Made by `open`; `close` it."""

    def __init__(self, config: EtcdConfig, clock: Clock, tell: Tell | None) -> None:
        self._config = config
        self._trouble = Trouble(tell)
        self._clock = clock
        self._keys = Keys(config.prefix)
        self._connection = Connection(config)
        self._markers = Markers(self._connection, config, self._keys)
        self._feeds = Feeds()
        self._scope = Scope()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._closed = False
        self._past = Past()

    @classmethod
    async def open(cls, config: EtcdConfig, clock: Clock | None = None, tell: Tell | None = None) -> "EtcdStore":
        """Connect. Raises `Unavailable` when no member answers in time, `Unsupported` for an etcd not to be trusted,
        `WrongCluster` when members are of different ones.

        `tell` is called with a line for people when etcd cannot be used later, and when it can again.
        """
        store = cls(config, clock or RealClock(), tell)
        try:
            first = await store._connection.ask(STATUS, pb.StatusRequest())
            for status in (first, *await store._connection.introduced()):
                _check_version(status.version)
            await read_key(store._connection, store._keys.data(""))  # a majority answers, and `revision` is of now
            await store._markers.open()
        except BaseException:
            await store._connection.close()
            raise
        store._scope.spawn(store._keep_session(), name="etcd session")
        return store

    # ------------------------------------------------------------ the port

    async def get(self, key: str) -> Versioned | None:
        """The value of a key as of now; None if there is none."""
        self._check_open()
        found = await self._watched(read_key(self._connection, self._keys.data(key)))
        return Versioned(found.value, found.mod_revision) if found is not None else None

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """All keys with the prefix, in key order, all of one moment."""
        self._check_open()
        return await self._watched(self._scan(self._keys.data(prefix)))

    async def _scan(self, first: bytes) -> list[tuple[str, Versioned]]:
        found, _ = await read_range(self._connection, first, range_end(first))
        return [(self._keys.name(each.key), Versioned(each.value, each.mod_revision)) for each in found]

    async def commit(self, transaction: Transaction) -> bool:
        """True: applied and durable. False: an expectation failed and nothing was changed.

        Raises `TooLarge` beyond what etcd takes, `NoSpace` when it is full, `Unavailable` when it is away: each
        time nothing was changed, now or later. `OutcomeUnknown`: it was sent, and etcd stayed away since.
        """
        return await self._counted(self._commit(transaction, 0)) > 0

    def watch(self, prefix: str) -> EtcdWatch:
        """Every change to a key with the prefix from now on, in order; ends when the store is closed."""
        feed = Feed(self._connection, self._keys, prefix)
        if len(self._feeds) >= WATCHES:
            raise Overloaded(f"{WATCHES} watches are open")
        if self._closed:
            feed.end()
        self._feeds.add(feed)
        task = self._scope.spawn(feed.run(), name=f"watch {prefix}")
        task.add_done_callback(lambda _: self._feeds.ended(feed))
        return EtcdWatch(feed, task)

    async def elect(self, name: str, identity: str) -> HeldLeadership:
        """Wait until nobody leads, then lead."""
        self._check_open()
        return await campaign(self, self, self._clock, self._scope, name, identity, self._config.lease_s)

    def fenced(self, leadership: Leadership) -> FencedStore:
        """This store for a leader."""
        return FencedStore(self, leadership)

    async def close(self) -> None:
        """Finish what was asked for if etcd lets us, end watches, leave nothing behind in etcd."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            pass  # etcd is away; closing the connection ends these calls with an error
        await self._feeds.close(CLOSE_S)
        await self._scope.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._markers.close()
        except (TimeoutError, VarlogError):
            pass  # etcd is away: its lease takes the session with it
        await self._connection.close()

    # ------------------------------------------------------------ leases, for elections

    async def grant(self, seconds: float) -> int:
        self._check_open()
        return await self._watched(leases.grant(self._connection, seconds))

    async def renew(self, lease: int) -> float:
        """A member that hangs must not cost the whole lease."""
        patience = min(self._config.attempt_s, self._config.lease_s / RENEWALS)
        return await leases.renew(self._connection, lease, patience)

    async def revoke(self, lease: int) -> None:
        await leases.revoke(self._connection, lease)

    async def take(self, key: str, value: bytes, lease: int) -> int:
        try:
            return await self._counted(self._commit(Transaction(expect={key: 0}, put={key: value}), lease))
        except NotFound:
            return 0  # the lease ended before the key was made

    # ------------------------------------------------------------ committing

    async def _counted(self, work: Coroutine[Any, Any, int]) -> int:
        if self._closed:
            work.close()
            self._check_open()
        self._under_way += 1
        try:
            return await self._watched(work, wrote=True)
        finally:
            self._under_way -= 1
            self._idle.set()

    async def _watched(self, work: Coroutine[Any, Any, Result], *, wrote: bool = False) -> Result:
        """What it returns; whether it fails is what is known of etcd."""
        failures = self._trouble.failures
        try:
            result = await work
        except VarlogError as error:
            if not self._closed:
                self._trouble.met(error)
            raise
        self._trouble.over(failures, wrote=wrote)
        return result

    async def _commit(self, transaction: Transaction, lease: int) -> int:
        """The revision at which the transaction was applied, what it puts attached to `lease`; 0: it was not."""
        transaction.check()
        request = encode(self._keys, transaction, lease)
        end = time.monotonic() + self._config.timeout_s
        while True:
            try:
                revision, response = await self._attempt(request, lease)
                break
            except (Unavailable, Overloaded) as error:
                # whatever may have been applied is settled or `OutcomeUnknown`: this one was not
                if time.monotonic() > end or self._closed:
                    raise Unavailable(f"etcd cannot be used: {error.message}") from error
                await asyncio.sleep(0 if isinstance(error, _Again) else PAUSE_S)
            request = encode(self._keys, transaction, lease)
        if revision:
            self._after(transaction, revision, response, request.ByteSize())
        return revision

    async def _attempt(self, request: pb.TxnRequest, lease: int) -> tuple[int, pb.TxnResponse | None]:
        slot = await self._markers.take()
        try:
            slot.begin()
            slot.guard(request)
            response = await self._send(slot, request, lease)
            if response is None:
                return slot.revision, None
            if response.succeeded:
                slot.end(response.header.revision)
                return slot.revision, response
            found = response.responses[0].response_range.kvs
            revision = found[0].mod_revision if found else 0
            expected, slot.revision = slot.revision, revision
            slot.unsettled = False
            if revision != expected:
                await self._markers.renew()
                raise _Again("etcd has forgotten this session")
            return 0, response
        finally:
            self._markers.give(slot)

    async def _send(self, slot: Slot, request: pb.TxnRequest, lease: int) -> pb.TxnResponse | None:
        """The answer; None if it got lost, but the transaction was applied."""
        try:
            return await self._connection.once(TXN, request)
        except NoSpace as error:
            await self._full(slot, error)
            return None
        except VarlogError as error:
            if not error.outcome_known:
                if await self._markers.settle(slot):
                    return None
                raise _Again(f"etcd did not apply a transaction: {error.message}") from error
            slot.unsettled = False
            if isinstance(error, NotFound):
                await self._lease_gone(slot, lease)
            raise

    async def _full(self, slot: Slot, error: NoSpace) -> None:
        """Returns if the transaction was applied all the same.

        The transaction that finds the last space used up is applied, and answered as if it were not. It has been
        answered, so it cannot be applied later: to look is enough.
        """
        try:
            found = await read_key(self._connection, slot.key)
        except VarlogError as unread:
            raise OutcomeUnknown(f"a transaction may or may not have been applied: {unread.message}") from error
        applied = found is not None and found.value == slot.value()
        slot.end(found.mod_revision if found is not None else 0)
        if not applied:
            raise error

    async def _lease_gone(self, slot: Slot, lease: int) -> None:
        """A transaction was refused because a lease is gone: the session's, or the one it was given."""
        if not await leases.renew(self._connection, slot.session.lease, self._config.attempt_s):
            self._markers.forget(slot.session)
            raise _Again("etcd has forgotten this session")
        if not lease:
            raise _Again("etcd has forgotten a lease, and found it again")

    def _after(self, transaction: Transaction, revision: int, response: pb.TxnResponse | None, size: int) -> None:
        if len(self._feeds):
            changed = list(transaction.put)
            if response is not None and deleted_anything(response.responses):
                changed += transaction.delete
            self._feeds.changed(changed, revision)
        if self._config.compact and (compacted := self._past.grown(revision, size)):
            self._scope.spawn(self._compact(compacted), name="compact etcd")

    # ------------------------------------------------------------ housekeeping

    async def _compact(self, revision: int) -> None:
        try:
            await self._connection.ask(COMPACT, pb.CompactionRequest(revision=revision))
        except Compacted:
            pass  # another repository was faster
        except VarlogError as error:
            self._trouble.met(error)  # the next one will do

    async def _keep_session(self) -> None:
        while True:
            await self._clock.sleep(SESSION_RENEWAL_S)
            try:
                await self._markers.renew()
            except VarlogError as error:
                self._trouble.met(error)  # there are many more tries before the session ends

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")


def _check_version(text: str) -> None:
    numbers = tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdecimal())
    if numbers < OLDEST or WITHDRAWN[0] <= numbers < WITHDRAWN[1]:
        raise Unsupported(f"etcd {text} is not to be trusted with data; use 3.4, or 3.5.3 and newer")
