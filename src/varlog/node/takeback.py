"""A primary that was started again takes back what its backups have and its own disk has not (S4).

Batches go to the primary's disk and to the backups at the same time, so a crash may leave a backup with
more. None of that was reported by this node, so none of it is committed; but its slots are taken. Before
the primary gives a slot to anybody it therefore

1. asks *every* backup how far it is. The question carries the number of this start, and a backup that has
   heard it takes nothing from an earlier one any more: what is still on its way from before comes too late.
2. takes what it lacks from those that have more. All of them have beginnings of the same stream.

A backup that does not answer keeps the stream closed, as it would hold up every append to it.
"""

import asyncio
from collections.abc import Sequence

from varlog.base.errors import Sealed, Unavailable, VarlogError
from varlog.base.ids import NodeId, Slot
from varlog.core.replica import ReplicaState
from varlog.node.catch_up import catch_up
from varlog.node.copier import LONGEST_PAUSE_S, PAUSE_S, STORE_TIMEOUT_S, Connect
from varlog.node.replica import Replica
from varlog.ports import Clock
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

NOT_YET = "takes no appends yet"
"""The beginning of what is told as long as it lasts."""


class TakeBack:
    """Of one stream, once in the life of its primary."""

    def __init__(
        self, replica: Replica, backups: Sequence[NodeId], connect: Connect, clock: Clock, writer: int
    ) -> None:
        self._replica = replica
        self._backups = backups
        self._connect = connect
        self._clock = clock
        self._writer = writer

    async def run(self) -> None:
        """Returns when this primary has all that any backup has, or takes no more appends anyway."""
        pause = PAUSE_S
        replica = self._replica
        while replica.state is ReplicaState.OPEN:
            try:
                answers = await asyncio.gather(*map(self._ask, self._backups), return_exceptions=True)
                for answer in answers:
                    if not isinstance(answer, BaseException):
                        await catch_up(replica, answer[1], answer[0], settle=False)
                await replica.flush()
                for answer in answers:
                    if isinstance(answer, BaseException):
                        raise answer
            except Sealed:
                break
            except VarlogError as error:
                replica.trouble = f"{NOT_YET}: {error.message}"
            else:
                break
            await self._clock.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)
        if replica.trouble.startswith(NOT_YET):
            replica.trouble = ""
        replica.regained()

    async def _ask(self, backup: NodeId) -> tuple[Slot, Peer]:
        """How far a backup is, with everything it took before."""
        name = self._replica.id
        request = pb.StoreRequest(log=name.log, segment=name.segment, stream=name.stream, writer=self._writer)
        try:
            peer = await self._connect(backup)
            status = (await peer.call(Method.STORE, request, timeout=STORE_TIMEOUT_S)).message
        except VarlogError as error:
            raise Unavailable(f"node {backup} has not said how far it is: {error.message}") from error
        assert isinstance(status, pb.ReplicaStatus)
        if status.state == pb.REPLICA_FAILED:
            raise Unavailable(f"the replica of node {backup} has stopped")
        return Slot(status.contiguous), peer
