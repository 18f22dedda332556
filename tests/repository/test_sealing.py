"""How long a seal waits, and for whom: on virtual time, with members that answer when they are told to."""

from typing import Any, cast

import pytest
from tests.repository.test_loops import play

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId, StreamId
from varlog.ports import Clock
from varlog.repository.links import NodeLinks
from varlog.repository.sealing import GRACE_S, SEAL_TIMEOUT_S, seal_members
from varlog.sim.host import Process
from varlog.wire.proto import varlog_pb2 as pb

NEVER = 1000.0
EXACT_S = 1e-6
"""Less than anything that is measured here."""


class Members:
    """Of one stream: what each has, after how many seconds it says so, and whether it is known to be alive."""

    def __init__(self, clock: Clock, *members: tuple[int, float], silent: tuple[int, ...] = (), ack: int = 2) -> None:
        self._clock = clock
        self._members = members
        self._silent = silent
        stream = pb.StreamInfo(id=1, members=range(1, len(members) + 1))
        segment = pb.SegmentInfo(epoch=1, ordering="leader", base=1, replicas=len(members), ack=ack, streams=[stream])
        self._log = pb.LogInfo(id=1, chain=[segment])

    def connected(self) -> list[NodeId]:
        """All have their connections; those that are silent count as not connected, as in `NodeLinks`."""
        return [NodeId(node) for node in range(1, len(self._members) + 1) if node not in self._silent]

    async def ask(self, node: NodeId, *_: Any) -> pb.ReplicaStatus:
        has, after = self._members[node - 1]
        await self._clock.sleep(after)
        return pb.ReplicaStatus(contiguous=has)

    async def seal(self) -> tuple[int, float]:
        """Where the stream ends, and after how many seconds that is known."""
        began = self._clock.now()
        ends, _ = await seal_members(cast(NodeLinks, self), self._clock, self._log)
        return ends[StreamId(1)].slot, self._clock.now() - began


def sealed(end: int, seconds: float, *members: tuple[int, float], **settings: Any) -> None:
    async def story(process: Process) -> None:
        found, took = await Members(process.clock, *members, **settings).seal()
        assert found == end
        assert took == pytest.approx(seconds, abs=EXACT_S)

    play(story)


def test_all_who_answer_soon_are_heard() -> None:
    sealed(10, 0.1, (12, 0.01), (10, 0.02), (10, 0.1))  # slots 10 and 11 are on one disk alone


def test_who_is_silent_is_not_waited_for() -> None:
    """Its process is stopped, or its machine cut off: the connection is there, and the question hangs."""
    sealed(12, 0.02, (12, 0.01), (10, 0.02), (10, NEVER), silent=(3,))


def test_who_is_alive_and_slow_is_given_its_moment_and_no_more() -> None:
    sealed(10, 0.02 + 0.9 * GRACE_S, (12, 0.01), (10, 0.02), (10, 0.02 + 0.9 * GRACE_S))
    sealed(12, 0.02 + GRACE_S, (12, 0.01), (10, 0.02), (10, NEVER))


def test_who_is_alive_is_waited_for_though_another_is_silent() -> None:
    sealed(10, 0.1, (12, 0.01), (10, 0.02), (10, 0.03), (10, 0.1), (10, NEVER), silent=(5,), ack=3)


def test_a_silent_one_that_answers_all_the_same_counts() -> None:
    sealed(10, 0.02, (12, 0.01), (10, 0.02), (10, 0.015), silent=(3,))


def test_enough_are_waited_for_whoever_they_are() -> None:
    """Without them nobody can say where the stream ends."""
    sealed(12, 1.0, (12, 0.01), (10, 1.0), (10, NEVER), silent=(2, 3))

    async def story(process: Process) -> None:
        members = Members(process.clock, (12, 0.01), (10, NEVER), (10, NEVER), silent=(2, 3))
        with pytest.raises(Unavailable, match="1 are"):
            await members.seal()
        assert process.clock.now() == pytest.approx(SEAL_TIMEOUT_S, abs=0.01)

    play(story)
