"""A replica at work: the judgement of `core.replica` joined to the files of `storage`.

Everything that changes a replica is staged in memory first; one loop writes and syncs whatever has
gathered (`_sync_until_clean`), so any number of stores share a sync. Whoever needs to know that his
change is durable waits for the sync that carries it (`after_sync`, `flush`).

Commits are applied in memory at once and are written with the next sync, or after a short idle: the
repository keeps every cut until all members report it bound on disk, so a crash loses none.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from varlog.base.errors import Corrupt, InvalidArgument, NoSpace, ReplicaFailed, Taken, Unavailable, VarlogError
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding
from varlog.core.ordering.sequencer import Stripes
from varlog.core.replica import MOVES, ReplicaState, Verdict, judge_commit, refuse_slot, refuse_store
from varlog.node.waiters import Waiters
from varlog.ports import Clock, Timer
from varlog.runtime.scope import Scope
from varlog.storage.replica_log import ReplicaLog
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer
from varlog.wire.proto import varlog_pb2 as pb

BIND_IDLE_S = 0.25
"""How long commits wait for a store to ride with before they are written by themselves."""

REPORT_PACE_S = 0.05
"""How long a replica whose positions do not wait for the repository leaves it to gather what it has to report."""

NO_SPACE_PAUSE_S = 0.5
"""How long a full volume, or a node that is short of files, is left alone before what is staged is tried again."""

RECENT_BYTES = 8 << 20
"""Bytes of the newest batches kept in memory for copying to backups; older ones are read back."""

_ALL = Slot(1 << 62)

Batches = Sequence[tuple[Buffer, BatchHeader]]
Done = Callable[[VarlogError | None], None]


class Replica:
    """One open replica of this node."""

    def __init__(
        self,
        log: ReplicaLog,
        spec: pb.ReplicaSpec,
        clock: Clock,
        scope: Scope,
        changed: Callable[["Replica"], None],
    ) -> None:
        """`changed` is called when there is something new to report."""
        self.log = log
        self.id = log.replica
        self.spec = spec
        self.missed_commits = False
        self.trouble = ""
        """What ails it, for people."""
        self.closed = ""
        """Why it takes nothing from writers, though it is open; empty when it does, and once it is sealed."""
        self.gave_up = False
        """It has failed, but not its files: what is committed in them stays right, and is served."""
        self.gone = False
        """It was dropped, or a copy has taken its place: who waits for more of it is to ask anew, or elsewhere."""
        self.full = False
        """Its volume had no room for what came last."""
        self.leads: pb.Leads = pb.LEADS_NOT
        """Whether this node leads the stream, under `leader`."""
        self.last_of_chain = False
        """Whatever it has is in the log, as all members before it have it; under `sequencer`."""
        self.read_us = 0
        """When all of it was last read from its disk, and found whole; 0: not yet."""
        self.fingerprint: tuple[int, list[int]] | None = None
        """As of then, if it had ended: its first stretch of slots, and a crc for each."""
        self.writer = 0
        """The newest life of the primary that stores came from; nothing is taken from an older one."""
        self.on_verdict: list[Callable[[Binding], None]] = []
        """A commit is right, and about to be applied: for those who only wait to hear of it."""
        self.on_commit: list[Callable[[Binding], None]] = []
        self.on_stage: Callable[[], None] | None = None
        """Batches were staged."""
        self.on_group: list[Callable[[], None]] = []
        """What is staged now is about to be written."""
        self.on_sync: list[Callable[[], None]] = []
        self.on_release: list[Callable[[], None]] = []
        """It has heard of more that is committed, whether or not it has bound that already."""
        self.on_fail: list[Callable[[VarlogError], None]] = []
        self.on_finish: list[Callable[[Slot], None]] = []
        """It is about to be finished at this slot."""
        self.on_end: list[Callable[[], None]] = []
        """It is finished."""
        self.keep_recent = False
        self.last_store: tuple[tuple[int, Slot, Slot, list[tuple[Binding, int]]], Sequence[Buffer]] | None = None
        """What was last sent to a backup: whose, from where to where, with which commits; and the frame."""
        self._clock = clock
        self._scope = scope
        self._changed = changed
        self._failure: VarlogError | None = None
        self._short = False
        """Its trouble is that it lacks what was committed."""
        self._short_of = ""
        """What the node lacks to go on with its writes."""
        self._syncing = False
        self._sync_wanted = False
        self._idle: asyncio.Future[None] | None = None
        """Set while there is nothing to sync."""
        self._after_sync: list[Done] = []
        self._released: tuple[Glsn, Slot] | None = None
        """Where the segment begins, and how far the stream is known to be committed; not under `cut`."""
        self._bound_by_cuts = spec.ordering == "cut"
        self._binds_late = spec.ordering == "leader"
        """Nobody asks its members for the tail: commits may come behind an answer that an append waits for."""
        self._bind_timer: Timer | None = None
        self._report_timer: Timer | None = None
        self._readers = Waiters()
        self._recent: OrderedDict[Slot, tuple[Slot, Buffer]] = OrderedDict()
        self._recent_bytes = 0
        self.recent: Callable[[Slot], tuple[Slot, Buffer] | None] = self._recent.get
        """The batch that begins at a slot, staged or synced, if it is still in memory: its end and its bytes."""

    @property
    def state(self) -> ReplicaState:
        facts = self.log.facts
        if self._failure is not None:
            return ReplicaState.FAILED
        if facts.end is not None:
            return ReplicaState.FINISHED
        return ReplicaState.SEALED if facts.sealed else ReplicaState.OPEN

    @property
    def failure(self) -> VarlogError | None:
        return self._failure

    def status(self) -> pb.ReplicaStatus:
        """What rides on every answer."""
        log = self.log
        return pb.ReplicaStatus(
            state=cast("pb.ReplicaState", self.state),
            contiguous=log.durable,
            committed=log.committed,
            trimmed=log.trimmed,
            high_watermark=log.high_watermark,
        )

    # ------------------------------------------------------------ store

    def stage(self, batches: Batches) -> Slot:
        """Take batches at the end of the stream, the primary's way; gives the slot of the first."""
        facts = self.log.facts
        if self._failure is not None or facts.sealed or facts.end is not None:  # not open
            self._refuse_store(settle=False)
        slot = self.log.appended
        self._stage(slot, batches)
        return slot

    async def store(self, slot: Slot, batches: Batches, *, settle: bool) -> None:
        """Take batches at given slots, the backup's way. Known ones are compared; new ones are durable on return."""
        error = refuse_slot(slot, self.log.appended)
        if error is not None:
            raise error
        new = list(batches)
        while new and slot < self.log.appended:
            await self._compare(slot, new[0][1])
            slot = Slot(slot + new.pop(0)[1].count)
        if new:
            # nothing was awaited since `slot` was found to be the end of the stream
            self._refuse_store(settle=settle)
            self._stage(slot, new)
        if self.log.durable < self.log.appended:
            await self.flush()

    def store_at_end(self, slot: Slot, batches: Batches, done: Done | None = None) -> bool:
        """The usual case of `store`, without a task: False if it is not the usual case."""
        facts = self.log.facts
        if self._failure is not None or facts.sealed or facts.end is not None:  # not open
            return False
        if slot != self.log.appended or not batches:
            return False
        self._stage(slot, batches)
        if done is not None:
            self.after_sync(done)
        return True

    def _stage(self, slot: Slot, batches: Batches) -> None:
        try:
            self.log.stage_batches(slot, batches)
        except NoSpace:
            self._set_full(True)
            raise
        if self.full:
            self._set_full(False)
        if self.keep_recent:
            self._remember(slot, batches)
        self._want_sync()
        if self.on_stage is not None:
            self.on_stage()

    def _set_full(self, full: bool) -> None:
        if full != self.full:
            self.full = full
            self._changed(self)

    def _refuse_store(self, *, settle: bool) -> None:
        error = refuse_store(self.state, self.log.appended, settle=settle)
        if error is not None:
            raise error

    async def _compare(self, slot: Slot, header: BatchHeader) -> None:
        """Same batch again: fine. Another one there: `Taken`."""
        if slot < self.log.trimmed:
            return
        there = await self.log.batch_at(slot)
        if there is None or (there.crc, there.count) != (header.crc, header.count):
            raise Taken(f"slot {slot} of {self.id} holds another batch", slot)

    # ------------------------------------------------------------ sync

    def after_sync(self, done: Done) -> None:
        """Call back once everything staged so far is durable, or with the reason why it never will be."""
        if self._failure is not None:
            done(self._failure)
            return
        self._after_sync.append(done)
        self._want_sync()

    def settled(self, done: Done) -> None:
        """Call back once nothing is staged any more; at once if nothing is, or if the replica has stopped."""
        if self._failure is None and self.log.durable < self.log.appended:
            self.after_sync(done)
        else:
            done(None)

    async def flush(self) -> None:
        """Everything staged so far is durable on return."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: VarlogError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.after_sync(done)
        await future

    def _want_sync(self) -> None:
        self._sync_wanted = True
        if self._idle is not None:
            if not self._idle.done():  # it is cancelled when the node ends
                self._idle.set_result(None)
            self._idle = None
        elif not self._syncing and self._failure is None:
            self._syncing = True
            self._scope.spawn(self._sync_for_ever(), name=f"sync {self.id}")

    async def _sync_for_ever(self) -> None:
        """Write and sync whatever has gathered, again and again, until the replica fails."""
        try:
            await self._sync_until_failed()
        except Exception as defect:
            # Whatever it is: who waits would wait for ever, and nobody would hear that another has to take its place.
            self.fail(VarlogError(repr(defect)))
            raise

    async def _sync_until_failed(self) -> None:
        while self._failure is None:
            if not self._sync_wanted:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
            self._sync_wanted = False
            count = len(self._after_sync)
            for callback in self.on_group:
                callback()  # copies leave first: they have the longer way
            try:
                await self.log.sync()
            except (NoSpace, Unavailable) as error:
                # what was staged stays staged, and those who wait for it go on waiting
                self._sync_wanted = True
                if isinstance(error, NoSpace):
                    self._set_full(True)
                else:
                    self._set_short_of(error.message)
                await self._clock.sleep(NO_SPACE_PAUSE_S)
            except VarlogError as error:
                self.fail(error)
            else:
                if self._short_of:
                    self._set_short_of("")
                self._synced(count)

    def _set_short_of(self, what: str) -> None:
        """Something that the node lacks keeps it from writing; empty: no longer."""
        if self.trouble == self._short_of:
            self.trouble = what
        self._short_of = what
        self._changed(self)

    def _synced(self, count: int) -> None:
        """So many of those who wait have what they wait for."""
        if self._released is not None and not self._binds_late:
            self._bind_released()
        if self.spec.ordering == "cut" or self.log.sealed:
            self._changed(self)
        elif self._report_timer is None:
            self._report_timer = self._clock.call_later(REPORT_PACE_S, self._report)
        for callback in self.on_sync:
            callback()
        waiting = self._after_sync[:count]
        del self._after_sync[:count]
        if waiting and self._binds_late:
            _tell(waiting)  # an append waits for the answer
        elif waiting:
            # behind the report, for which an append waits
            asyncio.get_running_loop().call_soon(_tell, waiting)
        if self._binds_late and self._released is not None:
            asyncio.get_running_loop().call_soon(self._bind_late)

    def _report(self) -> None:
        self._report_timer = None
        self._changed(self)

    def fail(self, error: VarlogError) -> None:
        """A write or sync failed: stop, and tell everyone who waits. The files are not trusted again."""
        if self._failure is not None:
            return
        invariant(ReplicaState.FAILED in MOVES[self.state], "any working replica can fail", state=self.state)
        self._failure = ReplicaFailed(f"replica {self.id} has stopped: {error.message}", self.log.durable)
        self._failure.__cause__ = error
        self.trouble = self._failure.message
        waiting, self._after_sync = self._after_sync, []
        for done in waiting:
            done(self._failure)
        for callback in self.on_fail:
            callback(self._failure)
        self._readers.wake()
        self._changed(self)

    def give_up(self, why: str) -> None:
        """It cannot become what the log's record says: others must, and until they have, it serves what it has."""
        self.gave_up = self._failure is None
        self.fail(Unavailable(why))

    # ------------------------------------------------------------ commits

    def advance(self, binding: Binding, high_watermark: int) -> None:
        """Apply one commit if it continues where this replica stands."""
        log = self.log
        if self._failure is not None or log.failure is not None:  # the files fail a moment before all know it
            return
        verdict = judge_commit(log.committed, log.durable, log.next_glsn, binding)
        if verdict is Verdict.APPLY:
            self._apply(binding, high_watermark)
            if self._short:
                self.regained()
            return
        match verdict:
            case Verdict.MISSED:
                self.missed_commits = True
                self._changed(self)
            case Verdict.BEYOND:
                self.trouble = f"the repository committed slot {binding.slot_end} of {self.id}; it has {log.durable}"
                self._short = True
                self._changed(self)
            case Verdict.OLD:
                pass

    @property
    def released(self) -> tuple[Glsn, Slot] | None:
        """Where slot 0 is, and how far the leader has committed, as far as it is known here."""
        return self._released

    def regained(self) -> None:
        """It had lost what was committed, and has taken it back from others."""
        if self._short:
            self._short, self.trouble = False, ""
            self._changed(self)

    def release(self, base: Glsn, upto: Slot) -> None:
        """Slots below `upto` are committed, in a segment from `base` on; those that come later are bound then."""
        self.hear(base, upto, at_once=True)

    def hear(self, base: Glsn, upto: Slot, *, at_once: bool) -> None:
        """The same; but unless `at_once`, a member of a leader's binds them only when it has synced what comes next."""
        if self._bound_by_cuts:
            raise InvalidArgument(f"{self.id} learns from cuts alone what is committed")
        if self.last_of_chain and not self.log.sealed:
            upto = _ALL
        if self._released is None or upto > self._released[1]:
            self._released = (base, upto)
            for callback in self.on_release:
                callback()
        if at_once or not self._binds_late:
            self._bind_released()

    def _bind_late(self) -> None:
        try:
            self._bind_released()
        except VarlogError:
            pass  # it was closed meanwhile; what it misses it is told again

    def _bind_released(self) -> None:
        log = self.log
        if self._released is None or self._failure is not None or log.failure is not None:
            return
        base, upto = self._released
        end = min(upto, log.durable)  # never ahead of what is here
        if end > log.committed:
            spec = self.spec
            for binding in Stripes(base, spec.unit or 1, spec.streams or 1).bindings(spec.index, log.committed, end):
                self._apply(binding, binding.glsn_end - 1)

    def _apply(self, binding: Binding, high_watermark: int) -> None:
        log = self.log
        for callback in self.on_verdict:
            callback(binding)
        log.stage_binding(binding, high_watermark)
        self.missed_commits = False
        if binding.glsn <= log.trimmed_glsn:
            # the trim came before the commit it covers
            log.stage_trim(log.trimmed_glsn)
        for callback in self.on_commit:
            callback(binding)
        if self._readers:
            self._readers.wake()
        if self._bind_timer is None:
            self._bind_timer = self._clock.call_later(BIND_IDLE_S, self._bind_idle)

    def _bind_idle(self) -> None:
        self._bind_timer = None
        if self.log.bound < self.log.committed and self._failure is None:
            self._want_sync()

    def committed_beyond(self, slot: Slot) -> "asyncio.Future[None]":
        """Done when something may be readable at `slot`, when the replica is finished, fails, or is gone."""
        if self.log.committed > slot or self._failure is not None or self.log.end is not None or self.gone:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return future
        return self._readers.add()

    # ------------------------------------------------------------ seal, finish, trim

    async def seal(self) -> None:
        """One way; queued behind the stores accepted before it.

        On return it would be missed if it rotted: who asks for a tail relies on it that what is sealed stays so.
        """
        if self._failure is not None:
            raise self._failure
        if self.state is ReplicaState.OPEN:
            self.log.stage_seal()
            if self._released is not None:  # what comes from here on, others are to have before it is shown
                base, upto = self._released
                self._released = (base, min(upto, self.log.appended))
        self.closed = ""  # what it would not give to another is not given any more
        await self.flush()
        if self.state is ReplicaState.SEALED and not self.log.seal_holds:
            self.log.stage_seal()
            await self.flush()

    async def finish(self, end: Slot) -> None:
        """Cut off what lies beyond the end; from now on the replica is immutable."""
        if self._failure is not None:
            raise self._failure
        if self.state is ReplicaState.OPEN:
            raise InvalidArgument(f"{self.id} must be sealed before it is finished")
        if self.log.end is not None and self.log.end != end:
            raise Corrupt(f"{self.id} was finished at {self.log.end}, not at {end}", self.log.end)
        if self.log.committed != end:
            raise Unavailable(f"{self.id} has commits up to {self.log.committed} and is to end at {end}")
        if self.log.end is None:
            self.log.stage_finish(end)
            for callback in self.on_finish:
                callback(end)  # before the sync: the end is on record already, and appends wait to go elsewhere
            self.after_sync(self._finished)  # also when who asks has gone by then
        await self.flush()

    def _finished(self, error: VarlogError | None) -> None:
        if error is not None:
            return
        self._readers.wake()
        self._forget_recent()
        self.log.forget_recent()
        for ended in self.on_end:
            ended()

    async def trim(self, upto: Glsn) -> None:
        """Everything at or below is gone, durably; whole files below it give their space back."""
        if self._failure is not None:
            raise self._failure
        if upto > self.log.durable_trimmed_glsn:
            self.log.stage_trim(upto)
        await self.flush()
        if upto > self.log.durable_trimmed_glsn:
            raise Unavailable(f"{self.id} cannot read up to where it is to be trimmed; try again when it is mended")
        await self.tidy()

    async def tidy(self) -> None:
        """Give back the space of what is trimmed, and move indexes of full files from memory to disk.

        A volume that was full may have room by now, though nobody has appended anything since.
        """
        if self._failure is None:
            await self.log.collect()
            if self.full and await self.log.has_room():
                self._set_full(False)

    # ------------------------------------------------------------ recent batches, for copying

    def _remember(self, slot: Slot, batches: Batches) -> None:
        for data, header in batches:
            end = Slot(slot + header.count)
            self._recent[slot] = (end, data)
            self._recent_bytes += len(data)
            slot = end
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            _, (_, data) = self._recent.popitem(last=False)
            self._recent_bytes -= len(data)

    def _forget_recent(self) -> None:
        """Nobody is sent anything from here any more: who lacks something takes it from the disk."""
        self.keep_recent = False
        self._recent.clear()
        self._recent_bytes = 0
        self.last_store = None

    # ------------------------------------------------------------ life

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something that lives no longer than the node."""
        self._scope.spawn(work, name=name)

    def close(self) -> None:
        for timer in (self._bind_timer, self._report_timer):
            if timer is not None:
                timer.cancel()
        self._bind_timer = self._report_timer = None
        self._forget_recent()
        self.gone = True
        self._readers.wake()


def _tell(waiting: list[Done]) -> None:
    for done in waiting:
        done(None)
