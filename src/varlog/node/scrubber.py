"""Reads what the node's own disks hold, again and again at a bounded pace, and looks for what has rotted.

    at its time, or asked to  --> every replica, one after the other --.
    a reader met damage       --> that replica, at once ----------------> verify --> whole:   when, and its fingerprint
                                                                               `--> damaged: kept, reported, served on

A damaged replica goes on with what it does: what is whole can be read, and of a stream with one copy that is all there
is. The repository ends its stream if it is open, and has the replica made anew from its peers.
"""

import asyncio
from collections.abc import Callable

from varlog.base.errors import InvalidArgument, VarlogError
from varlog.base.ids import ReplicaId
from varlog.core.replica import ReplicaState
from varlog.node.pace import Pace
from varlog.node.replica import Replica
from varlog.node.replicas import Replicas
from varlog.ports import World
from varlog.runtime.scope import Scope
from varlog.storage.damage import Damage, describe
from varlog.storage.walk import Pause
from varlog.wire.proto import varlog_pb2 as pb

SOON_S = 600.0
"""The first pass of a node begins within so long of its start, or within its interval if that is shorter."""

FINGERPRINT_CRCS = 1 << 14
"""Of one answer: it fits the header of a frame."""


class Scrubber:
    """The scrub of one node."""

    def __init__(
        self, world: World, replicas: Replicas, pace: Pace, every_s: float, tell: Callable[[str], None]
    ) -> None:
        """`every_s`: from the beginning of one pass to that of the next; 0: only when asked to."""
        self._world = world
        self._replicas = replicas
        self._pace = pace
        self._every_s = every_s
        self._tell = tell
        self._scope = Scope()
        self._wake = asyncio.Event()
        self._looking: dict[ReplicaId, None] = {}
        self._status = pb.ScrubStatus()

    def status(self) -> pb.ScrubStatus:
        status = pb.ScrubStatus()
        status.CopyFrom(self._status)
        status.repaired = self._replicas.repaired
        return status

    def begin(self) -> None:
        """Begin a pass now, unless one is under way."""
        if not self._status.running:
            self._wake.set()

    def suspect(self, replica: Replica) -> None:
        """Somebody who read it met damage: see how much there is."""
        if not replica.log.damage and replica.id not in self._looking:
            self._looking[replica.id] = None
            self._scope.spawn(self._look_at(replica, self._pace.spend), name=f"look at {replica.id}")

    async def run(self) -> None:
        """Until cancelled."""
        clock = self._world.clock
        due = clock.now() + self._world.random.uniform(0, min(SOON_S, self._every_s))
        while True:
            await self._until(due)
            due = clock.now() + self._every_s
            await self._pass()

    async def close(self) -> None:
        await self._scope.close()

    async def _until(self, due: float) -> None:
        timer = None
        if self._every_s:
            timer = self._world.clock.call_later(max(0.0, due - self._world.clock.now()), self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------ reading

    async def _pass(self) -> None:
        replicas = self._replicas.all()
        self._status.running, self._status.done_bytes = True, 0
        self._status.total_bytes = sum(replica.log.stored_bytes for replica in replicas)
        for replica in replicas:
            if replica.id not in self._looking and not replica.log.damage:
                await self._look_at(replica, self._spend)
        self._status.running = False
        self._status.passes += 1
        self._status.ended_us = self._world.clock.wall_us()

    async def _spend(self, size: int) -> None:
        self._status.done_bytes = min(self._status.done_bytes + size, self._status.total_bytes)
        await self._pace.spend(size)

    async def _look_at(self, replica: Replica, spend: Pause) -> None:
        self._looking[replica.id] = None
        try:
            await self._verify(replica, spend)
        except VarlogError as error:
            # it was closed, or has failed by itself, which others tell
            if not isinstance(error, InvalidArgument) and replica.failure is None:
                self._tell(f"replica {replica.id} could not be checked: {error.message}")
        finally:
            del self._looking[replica.id]

    async def _verify(self, replica: Replica, spend: Pause) -> None:
        log = replica.log
        finished = replica.state is ReplicaState.FINISHED
        verification = log.verification(spend)
        await verification.run()
        if verification.damage:
            await self.condemn(replica, [await log.located(each) for each in verification.damage])
            return
        if finished:
            replica.fingerprint = await log.fingerprint(verification.stretches)
        replica.read_us = self._world.clock.wall_us()
        self._replicas.tell_changed(replica)

    async def condemn(self, replica: Replica, damage: list[Damage]) -> None:
        """It is to be made anew: this is kept, and reported."""
        self._status.found += 1
        try:
            await replica.log.mark_damaged(damage)
        finally:
            self._tell(f"replica {replica.id} is damaged: {describe(damage)}")
            self._replicas.tell_changed(replica)

    def fingerprint(self, replica: Replica, first: int) -> pb.FingerprintReply:
        """Some of what is known of it, from a stretch on."""
        if replica.fingerprint is None:
            return pb.FingerprintReply()
        known, crcs = replica.fingerprint
        start = max(first, known)
        part = crcs[start - known : start - known + FINGERPRINT_CRCS]
        end = start + len(part)
        following = end if end < known + len(crcs) else 0
        return pb.FingerprintReply(first=start, crcs=part, next=following, read_us=replica.read_us)
