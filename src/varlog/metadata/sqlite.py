"""`MetadataStore` on SQLite: the embedded store of a single repository.

The database has a thread of its own, which works in rounds:

    event loop   get, scan, commit ... ──▶ queue ──▶ take all that wait, each in its turn
                                                     one COMMIT, one sync
    results and changes, all at once  ◀────────────  call_soon_threadsafe, once a round

Transactions that arrive while a sync is under way share the next one. Nothing of a round is told before all
of it is durable, and a read sees every transaction asked for before it.

A small transaction that nothing is before is made on the event loop itself as long as the disk is quick: the
way to a thread and back takes about as long as the sync, and the next cut waits for both.

When a commit fails for lack of space, it is undone, and the store goes on. When it fails in another way
nobody knows what the disk holds: the store refuses everything from then on, and its process has to end.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from varlog.base.errors import NoSpace, Overloaded, TooLarge, Unavailable, VarlogError
from varlog.metadata.database import Database
from varlog.metadata.election import FencedStore, SoleLeadership
from varlog.metadata.watch import Watch, Watchers
from varlog.ports.disk import DiskFailed
from varlog.ports.election import Leadership, leader_key
from varlog.ports.metadata import Change, Transaction, Versioned
from varlog.runtime.quick import Quickness

WAITING_JOBS = 10_000
"""Most calls that wait for the database; more are refused."""

ON_THE_SPOT_BYTES = 64 << 10
"""Values of a transaction that may be made durable on the event loop."""

ROUND_JOBS = 256
"""Most calls in one round: bounds how long the first of them waits for the rest."""

TRANSACTION_BYTES = 16 << 20
"""Largest sum of the values in one transaction."""

Result = TypeVar("Result")


@dataclass(slots=True)
class _Job:
    """One call: a transaction, or a read."""

    future: asyncio.Future[Any]
    transaction: Transaction | None = None
    read: Callable[[Database], Any] | None = None
    result: Any = None
    error: BaseException | None = None
    changes: list[Change] = field(default_factory=list)


class _Stop:
    """Queued behind all calls made before `close`."""


class SqliteStore:
    """See the module. Made by `open`; `close` it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self._loop = loop
        self._folder = folder
        self._jobs: SimpleQueue[_Job | _Stop] = SimpleQueue()
        self._waiting = 0
        self._watchers = Watchers()
        self._elections: dict[str, asyncio.Lock] = {}
        """By name; locked while somebody in this process leads."""
        self._closed = False
        self._opened: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._failed: VarlogError | None = None
        self._database: Database | None = None
        """These two belong to the thread, or, while it rests and nothing waits for it, to the loop."""
        self._resting = False
        """The thread waits for a call."""
        self._quick = Quickness()
        self._thread = threading.Thread(target=self._run, name="metadata", daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, folder: str | Path) -> "SqliteStore":
        """Open the store in `folder`, made if missing.

        Raises `Unavailable` when another process has it or it cannot be written, `InvalidArgument` when it
        cannot be a folder at all, `Corrupt` or `Unsupported` when what is there is not a store of ours.
        """
        store = cls(asyncio.get_running_loop(), Path(folder))
        try:
            await store._opened
        except asyncio.CancelledError:
            store._jobs.put(_Stop())  # nobody else will: the thread ends as soon as it has opened it
            raise
        return store

    # ------------------------------------------------------------ on the event loop

    async def get(self, key: str) -> Versioned | None:
        """The value of a key; None if there is none."""
        return await self._read(lambda database: database.get(key))

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """All keys with the prefix, in key order."""
        return await self._read(lambda database: database.scan(prefix))

    async def commit(self, transaction: Transaction) -> bool:
        """True: applied and durable. False: an expectation failed and nothing was changed.

        Raises `NoSpace` when nothing was changed, and `DiskFailed` when the outcome is not known.
        """
        transaction.check()
        size = sum(map(len, transaction.put.values()))
        if size > TRANSACTION_BYTES:
            raise TooLarge("a metadata transaction is too large", TRANSACTION_BYTES)
        if size <= ON_THE_SPOT_BYTES and not self._waiting and self._resting and not self._closed:
            start = monotonic()
            if start >= self._quick.slow_until:
                return self._perform_on_the_spot(transaction, start)
        applied: bool = await self._submit(_Job(self._loop.create_future(), transaction=transaction))
        return applied

    def watch(self, prefix: str) -> Watch:
        """Every change to a key with the prefix from now on, in order; ends when the store is closed."""
        return self._watchers.watch(prefix)

    async def elect(self, name: str, identity: str) -> Leadership:
        """Lead at once: nobody outside this process has the store. Within it, one at a time."""
        key = leader_key(name)
        lock = self._elections.setdefault(name, asyncio.Lock())
        await lock.acquire()
        try:
            try:
                await self.commit(Transaction(put={key: identity.encode()}))  # over what a process that died left
            except NoSpace:
                pass  # what is there can be served all the same
            found = await self.get(key)
        except BaseException:
            lock.release()
            raise
        return SoleLeadership(self, name, identity, found.version if found is not None else 0, lock)

    def fenced(self, leadership: Leadership) -> FencedStore:
        """This store for a leader."""
        return FencedStore(self, leadership)

    async def close(self) -> None:
        """Finish what was asked for, end watches, give the folder free."""
        if not self._closed:
            self._closed = True
            self._jobs.put(_Stop())
        await asyncio.shield(self._ended)

    async def _read(self, read: Callable[[Database], Result]) -> Result:
        result: Result = await self._submit(_Job(self._loop.create_future(), read=read))
        return result

    def _submit(self, job: _Job) -> asyncio.Future[Any]:
        if self._closed:
            raise Unavailable("the metadata store is closed")
        if self._waiting >= WAITING_JOBS:
            raise Overloaded("too many calls wait for the metadata store", 100)
        self._waiting += 1
        self._jobs.put(job)
        return job.future

    def _perform_on_the_spot(self, transaction: Transaction, start: float) -> bool:
        """Here and now, for nothing is before it and the disk is quick: a round of one."""
        database = self._database
        assert database is not None, "a thread that rests has opened it"
        if self._failed is not None:
            raise self._stopped(self._failed)
        try:
            changes = database.note(transaction)
        except NoSpace as error:
            self._undo(database, [], error)
            if self._failed is not None:
                raise self._stopped(self._failed) from error
            raise
        except BaseException as error:
            self._fail(error)
            raise
        if changes:
            self._watchers.offer(changes)
        self._quick.tried(start, monotonic())
        if database.checkpoint_due:
            # A round of the thread ends with one; should that fail, whoever calls next is told.
            self._submit(_Job(self._loop.create_future(), read=lambda _: None)).add_done_callback(_retrieve)
        return changes is not None

    def _deliver(self, jobs: list[_Job]) -> None:
        self._waiting -= len(jobs)
        for job in jobs:
            self._watchers.offer(job.changes)
        for job in jobs:
            if job.future.done():  # its caller was cancelled
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)

    def _deliver_opened(self, error: BaseException | None) -> None:
        if self._opened.done():
            return
        if error is not None:
            self._opened.set_exception(error)
        else:
            self._opened.set_result(None)

    def _deliver_ended(self, error: BaseException | None) -> None:
        self._watchers.close()
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    # ------------------------------------------------------------ on the thread

    def _run(self) -> None:
        try:
            database = Database(self._folder)
        except BaseException as error:  # noqa: BLE001 - the caller of open() gets it
            self._tell(self._deliver_opened, error)
            return
        self._database = database
        self._tell(self._deliver_opened, None)
        going = True
        while going:
            jobs, going = self._next_round()
            self._perform(database, jobs)
            self._tell(self._deliver, jobs)
            self._checkpoint(database)
        try:
            try:
                if self._failed is None:
                    database.settle()
            finally:
                database.close()
        except BaseException as error:  # noqa: BLE001 - the caller of close() gets it
            self._tell(self._deliver_ended, error)
        else:
            self._tell(self._deliver_ended, None)

    def _tell(self, deliver: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(deliver, argument)
        except RuntimeError:
            # The loop was closed without closing the store: nobody is left to be told.
            self._failed = Unavailable("the event loop of the metadata store is closed")

    def _next_round(self) -> tuple[list[_Job], bool]:
        """Wait for a call and take all that wait with it; and whether to go on after them."""
        jobs: list[_Job] = []
        try:
            while len(jobs) < ROUND_JOBS:
                if jobs:
                    job = self._jobs.get_nowait()
                else:
                    self._resting = True
                    job = self._jobs.get()
                    self._resting = False
                if isinstance(job, _Stop):
                    return jobs, False
                jobs.append(job)
        except Empty:
            pass  # that was all
        return jobs, True

    def _perform(self, database: Database, jobs: list[_Job]) -> None:
        """Every job gets its result or its error."""
        try:
            if self._failed is not None:
                raise self._stopped(self._failed)
            for job in jobs:
                self._perform_one(database, job, alone=len(jobs) == 1)
            database.commit()
        except NoSpace as error:
            self._undo(database, jobs, error)
        except BaseException as error:  # noqa: BLE001 - every caller of the round gets it, and so does everyone later
            self._fail(error)
            self._refuse(jobs, error)

    def _perform_one(self, database: Database, job: _Job, *, alone: bool) -> None:
        if job.read is not None:
            job.result = job.read(database)
        elif job.transaction is not None:
            changes = database.apply(job.transaction, alone=alone)
            job.result = changes is not None
            job.changes = changes or []

    def _undo(self, database: Database, jobs: list[_Job], error: NoSpace) -> None:
        """Nothing of the round happened: transactions fail, reads are done once more."""
        try:
            database.roll_back()
            self._refuse([job for job in jobs if job.read is None], error)
            for job in jobs:
                if job.read is not None:
                    job.result = job.read(database)
        except BaseException as unclear:  # noqa: BLE001 - as in _perform
            self._fail(unclear)
            self._refuse(jobs, unclear)

    def _checkpoint(self, database: Database) -> None:
        try:
            if self._failed is None:
                database.checkpoint_if_due()
        except BaseException as error:  # noqa: BLE001 - everyone later gets it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failed is None:
            self._failed = error if isinstance(error, VarlogError) else DiskFailed(f"{type(error).__name__}: {error}")

    @staticmethod
    def _stopped(why: VarlogError) -> DiskFailed:
        return DiskFailed(f"the metadata store has stopped: {why.message}")

    def _refuse(self, jobs: list[_Job], error: BaseException) -> None:
        for job in jobs:
            job.error, job.changes = error, []


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for this one."""
    if not future.cancelled():
        future.exception()
