"""How often members of a journal are asked by one who waits for a member that is away."""

import asyncio

import pytest

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId, ReplicaId
from varlog.repository.journal_tail import PAUSE_S, ROUNDS, journal_tail
from varlog.runtime.clock import RealClock
from varlog.wire.proto import varlog_pb2 as pb

LOG = pb.LogInfo(id=1, chain=[pb.SegmentInfo(epoch=1, ack=2, streams=[pb.StreamInfo(id=1, members=[1, 2])])])


class Members:
    """The first has two slots and knows that one is committed; the second answers from some round on."""

    def __init__(self, back_in: int) -> None:
        self.rounds = 0
        self._back_in = back_in

    async def status(self, node: NodeId, _: ReplicaId) -> pb.ReplicaStatus:
        self.rounds += node == 1
        if node == 2 and self.rounds < self._back_in:
            raise Unavailable("is away")
        return pb.ReplicaStatus(state=pb.REPLICA_OPEN, contiguous=2, committed=1)


class Hasty(RealClock):
    """Remembers how long it was to sleep, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def test_who_is_back_soon_is_heard_soon() -> None:
    members, clock = Members(back_in=2), Hasty()
    assert asyncio.run(journal_tail(members, clock, LOG)) == 2  # type: ignore[arg-type]
    assert clock.slept == [PAUSE_S]


def test_who_stays_away_is_asked_less_and_less_often() -> None:
    members, clock = Members(back_in=1000), Hasty()
    with pytest.raises(Unavailable, match="may have more than the others"):
        asyncio.run(journal_tail(members, clock, LOG))  # type: ignore[arg-type]
    assert members.rounds == ROUNDS
    assert clock.slept == sorted(clock.slept)
    assert sum(clock.slept) > 1.0
    assert members.rounds < sum(clock.slept) / PAUSE_S / 10
