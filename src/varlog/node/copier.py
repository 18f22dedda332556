"""What all have in common that bring one backup up to its primary: whom to ask, how far it is, what to read back."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from varlog.base.errors import Sealed, Unavailable, VarlogError
from varlog.base.ids import NodeId, Slot
from varlog.core.ordering.leader import CHAIN
from varlog.core.replica import ReplicaState
from varlog.node.replica import Replica
from varlog.ports import Clock
from varlog.transport.peer import Peer, Reply
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

STORE_BYTES = 1 << 20
"""Wanted size of one STORE; a larger batch goes alone."""
STORE_TIMEOUT_S = 5.0
PAUSE_S = 0.002
"""After a failure, before the next try; doubles up to `LONGEST_PAUSE_S`. Short at first: all members of a stream are
opened at the same time, and its primary may ask a backup that is not ready yet."""
LONGEST_PAUSE_S = 1.0
OVER = (ReplicaState.FAILED, ReplicaState.FINISHED)
"""A backup that could not be reached until then is brought up by who finishes it, or copied as a whole."""

Connect = Callable[[NodeId], Awaitable[Peer]]


class Copier(ABC):
    """One task per backup. It connects again and again, until its stream takes no more."""

    def __init__(self, replica: Replica, backup: NodeId, connect: Connect, clock: Clock, writer: int) -> None:
        self.trouble = ""
        self._replica = replica
        self._backup = backup
        self._connect = connect
        self._clock = clock
        self._writer = writer
        self._wake = asyncio.Event()
        replica.on_end.append(self._wake.set)
        self._cursor = Slot(0)
        """What comes next."""

    async def run(self) -> None:
        """Until cancelled, or until the replica is finished or failed."""
        pause = PAUSE_S
        try:
            while self._replica.state not in OVER:
                began = self._clock.now()
                try:
                    await self._follow(await self._connect(self._backup))
                except Sealed:
                    return
                except VarlogError as error:
                    self.trouble = f"node {self._backup}: {error.message}"
                finally:
                    self._left()
                pause = PAUSE_S if self._clock.now() - began > LONGEST_PAUSE_S else min(LONGEST_PAUSE_S, pause * 2)
                await self._clock.sleep(pause)
        finally:
            self._stop()

    @abstractmethod
    async def _follow(self, peer: Peer) -> None:
        """Ask how far the backup is and send what it lacks, for ever."""

    @abstractmethod
    def _left(self) -> None:
        """The connection is gone."""

    def _stop(self) -> None:  # noqa: B027 - not everybody has something to end
        """The work is over."""

    async def _tail_of(self, peer: Peer, question: pb.StoreRequest) -> Slot:
        """How far the backup is, by its own word."""
        return self._judge(await peer.call(Method.STORE, question, timeout=STORE_TIMEOUT_S))

    def _judge(self, reply: Reply) -> Slot:
        status = reply.message
        assert isinstance(status, pb.ReplicaStatus)
        if status.state == pb.REPLICA_FAILED:
            raise Unavailable("its replica has stopped")
        if status.state in (pb.REPLICA_SEALED, pb.REPLICA_FINISHED):
            raise Sealed("it takes no more", status.contiguous)
        if status.contiguous > self._replica.log.appended and self._replica.state is ReplicaState.OPEN:
            more = (
                f"node {self._backup} has {status.contiguous} slots of {self._replica.id}, "
                f"more than its primary ever had ({self._replica.log.appended})"
            )
            if self._replica.spec.replication != CHAIN:
                # In a chain it may be we who lost the end in a crash: then it comes again from the one before us.
                self._replica.trouble = more
            raise Unavailable(more)
        return Slot(status.contiguous)

    def _is_behind(self) -> bool:
        """What comes next is no longer in memory, and on disk by now."""
        return self._cursor < self._replica.log.durable and self._replica.recent(self._cursor) is None

    async def _read_back(self) -> tuple[Slot, list[Buffer]]:
        run = await self._replica.log.read(self._cursor, self._replica.log.durable, STORE_BYTES)
        return run.end, list(batches_in(run.data))

    def _request(self, slot: Slot) -> pb.StoreRequest:
        log, segment, stream = self._replica.id
        return pb.StoreRequest(log=log, segment=segment, stream=stream, slot=slot, writer=self._writer)
