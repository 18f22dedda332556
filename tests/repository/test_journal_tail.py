"""What a repository that asks the members of a journal for its tail takes for an answer."""

import asyncio

import pytest

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId, ReplicaId
from varlog.repository import journal_tail as asking
from varlog.repository.journal_tail import journal_tail
from varlog.runtime.clock import RealClock
from varlog.wire.proto import varlog_pb2 as pb

LOG = pb.LogInfo(id=1, chain=[pb.SegmentInfo(epoch=1, base=1, ack=2, streams=[pb.StreamInfo(id=1, members=[1, 2])])])


class Members:
    """The first has two slots and knows that one is committed; the second answers from some question on.

    A third would be silent.
    """

    def __init__(self, back_in: float, state: pb.ReplicaState = pb.REPLICA_OPEN) -> None:
        self.asked = 0
        self._back_in = back_in
        self._state = state

    async def status(self, node: NodeId, _: ReplicaId) -> pb.ReplicaStatus:
        if node == 1:
            return pb.ReplicaStatus(state=pb.REPLICA_OPEN, contiguous=2, committed=1)
        if node == 3:
            await asyncio.get_running_loop().create_future()
        self.asked += 1
        if self.asked < self._back_in:
            raise Unavailable("is away")
        return pb.ReplicaStatus(state=self._state, contiguous=2, committed=1)


def ask(members: Members) -> int:
    return asyncio.run(journal_tail(members, RealClock(), LOG))  # type: ignore[arg-type]


def test_who_is_back_soon_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 60.0)
    members = Members(back_in=3)
    assert ask(members) == 3, "both have two slots"
    assert members.asked == 3


def test_where_one_stays_away_that_may_have_more_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.05)
    with pytest.raises(Unavailable, match="may have more than the others"):
        ask(Members(back_in=float("inf")))


def test_a_member_that_is_sealed_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.1)
    log = pb.LogInfo()
    log.CopyFrom(LOG)
    log.chain[0].streams[0].members.append(3)
    members = Members(back_in=1, state=pb.REPLICA_SEALED)
    with pytest.raises(Unavailable, match="one that does not may have more"):
        asyncio.run(journal_tail(members, RealClock(), log))  # type: ignore[arg-type]
    assert members.asked == 1


def test_too_few_members_that_are_open_are_waited_for_in_vain() -> None:
    log = pb.LogInfo()
    log.CopyFrom(LOG)
    log.chain[0].ack = 1
    members = Members(back_in=1, state=pb.REPLICA_SEALED)
    with pytest.raises(Unavailable, match="fewer than 2 of its 2 members are open"):
        asyncio.run(journal_tail(members, RealClock(), log))  # type: ignore[arg-type]
    assert members.asked == 1
