"""How a commit whose answer got lost learns whether it was applied, without guessing and without doing it twice.

To ask for the outcome is not enough: what is not there yet may still be under way, and be applied after we looked.
So every transaction uses a *slot*, a key of ours that it alone uses at the time. It expects the slot at the revision
where its last user left it, and puts its own number there:

    transaction 7      if slot at revision 90 (and what the caller expects): slot := 7, and what the caller wants
    outcome unknown?
    settle             if slot at revision 90: slot := "not 7"      applied: 7 was not, and now can never be
                       else look at the slot                        7: it was applied. "not 7": an earlier settle won

A settle may be repeated until it is answered; one that arrives late finds the slot moved on and does nothing. A slot
is free when its last user's outcome is known; one that could not be settled is settled by whoever uses it next.

Slots are attached to the lease of a session, one per open store, and so go with their process. Should the lease end
under a living process (etcd away for longer than `SESSION_S`), its slots are gone too and prove nothing: a settle
expects the session's own key, which goes in the same instant, and otherwise the outcome stays unknown.
"""

import asyncio
import secrets
from dataclasses import dataclass, field

from varlog.base.errors import OutcomeUnknown, Overloaded, Unavailable, VarlogError
from varlog.metadata.etcd import leases
from varlog.metadata.etcd.config import EtcdConfig
from varlog.metadata.etcd.connection import TXN, Connection
from varlog.metadata.etcd.messages import Keys, at_revision, look, put
from varlog.wire.proto import etcd_pb2 as pb

SESSION_S = 600.0
"""How long etcd remembers the slots of a process that is not heard of."""
SESSION_RENEWAL_S = 10.0
"""How often it hears of one: often, because the answer also says where etcd stands."""
WINDOW = 256
"""Transactions under way at once."""
WAITING = 10_000
"""Most that wait for a slot; more are refused."""


@dataclass(eq=False, slots=True)
class Session:
    """One life of an open store in etcd."""

    name: str
    key: bytes
    lease: int
    revision: int
    """Of the session's key."""
    slots: int = 0
    """How many were made."""
    free: "list[Slot]" = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Slot:
    """See the module."""

    session: Session
    key: bytes
    revision: int = 0
    """Where its last user left it; 0: nobody has used it."""
    number: int = 0
    """Of the last transaction that used it."""
    unsettled: bool = False
    """Nobody knows whether that transaction was applied."""

    def begin(self) -> None:
        self.number += 1
        self.unsettled = True

    def end(self, revision: int) -> None:
        self.revision = revision
        self.unsettled = False

    def value(self) -> bytes:
        """What is there once the transaction is applied."""
        return str(self.number).encode()

    def guard(self, request: pb.TxnRequest) -> None:
        """Make the request that of this slot's transaction."""
        compare = request.compare.add()
        compare.target = pb.Compare.MOD
        compare.key = self.key
        compare.mod_revision = self.revision
        mark = request.success.add().request_put
        mark.key = self.key
        mark.value = self.value()
        mark.lease = self.session.lease
        request.failure.add().request_range.key = self.key

    def settling(self) -> pb.TxnRequest:
        refusal = put(self.key, f"not {self.number}".encode(), self.session.lease)
        return pb.TxnRequest(
            compare=[at_revision(self.key, self.revision), at_revision(self.session.key, self.session.revision)],
            success=[refusal],
            failure=[look(self.key), look(self.session.key)],
        )


class Markers:
    """The slots of one store."""

    def __init__(self, connection: Connection, config: EtcdConfig, keys: Keys) -> None:
        self._connection = connection
        self._config = config
        self._keys = keys
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._room = asyncio.Semaphore(WINDOW)
        self._waiting = 0

    # ------------------------------------------------------------ the session

    async def open(self) -> Session:
        """The present session, made if there is none."""
        async with self._opening:
            if self._session is None:
                self._session = await self._make()
            return self._session

    async def _make(self) -> Session:
        name = secrets.token_hex(8)
        key = self._keys.session(name)
        lease = await leases.grant(self._connection, SESSION_S)
        request = pb.TxnRequest(compare=[at_revision(key, 0)], success=[put(key, b"", lease)], failure=[look(key)])
        response = await self._connection.ask(TXN, request)
        if response.succeeded:
            return Session(name, key, lease, response.header.revision)
        # An attempt whose answer got lost had made it: nobody else knows the name.
        return Session(name, key, lease, response.responses[0].response_range.kvs[0].mod_revision)

    async def renew(self) -> None:
        """Keep the session; when it is gone, the next transaction makes a new one."""
        session = self._session
        if session is not None and not await leases.renew(self._connection, session.lease, self._config.attempt_s):
            self.forget(session)

    def forget(self, session: Session) -> None:
        """Its lease is gone, and all its slots."""
        if self._session is session:
            self._session = None

    async def close(self) -> None:
        """Take everything of this session out of etcd."""
        session, self._session = self._session, None
        if session is not None:
            await leases.revoke(self._connection, session.lease)

    # ------------------------------------------------------------ slots

    async def take(self) -> Slot:
        """A slot whose last transaction is settled. Give it back."""
        if self._waiting >= WAITING:
            raise Overloaded("too many transactions wait for etcd", 100)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._clean()
        except BaseException:
            self._room.release()
            raise

    async def _clean(self) -> Slot:
        session = self._session or await self.open()
        if not session.free:
            session.slots += 1
            return Slot(session, self._keys.marker(session.name, session.slots))
        slot = session.free.pop()
        if slot.unsettled:
            try:
                await self.settle(slot)
            except BaseException as error:
                session.free.insert(0, slot)
                if isinstance(error, OutcomeUnknown):  # of the slot's last user, not of who takes it now
                    raise Unavailable(f"etcd cannot be used: {error.message}") from error
                raise
        return slot

    def give(self, slot: Slot) -> None:
        """Unsettled ones are used again last."""
        slot.session.free.insert(0 if slot.unsettled else len(slot.session.free), slot)
        self._room.release()

    async def settle(self, slot: Slot) -> int:
        """The revision at which the slot's transaction was applied; 0: it was not, and never will be."""
        try:
            response = await self._connection.ask(TXN, slot.settling())
        except VarlogError as error:
            raise OutcomeUnknown(f"a transaction in etcd may or may not have been applied: {error.message}") from error
        if response.succeeded:
            slot.end(response.header.revision)
            return 0
        marker, session = (each.response_range.kvs for each in response.responses)
        if not session:
            self.forget(slot.session)
            raise OutcomeUnknown("etcd was away so long that it forgot whether a transaction was applied")
        applied = bool(marker) and marker[0].value == slot.value()
        slot.end(marker[0].mod_revision if marker else 0)
        return slot.revision if applied else 0
