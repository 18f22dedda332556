"""How much a journal's leader has on its way to a member that is behind; and whom it asks about the end."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.runtime.test_polling import Hasty
from tests.servers import run

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId, Slot
from varlog.client.journal_lines import LedSegment, _Line
from varlog.client.limits import JOURNAL_STORE_BYTES, JOURNAL_STORES_IN_FLIGHT, LONGEST_PAUSE_SECONDS
from varlog.core.ordering.journal import Tenure
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_a_member_that_is_behind_gets_several_stores_at_once() -> None:
    async def story() -> None:
        sent: list[int] = []

        def start_call(_: object, __: bytes, body: list[bytes], **___: object) -> "asyncio.Future[Any]":
            sent.append(sum(map(len, body)))
            return asyncio.get_running_loop().create_future()

        tenure = Tenure[Any]([NodeId(1)], 1, 1 << 30)
        for _ in range(2 * JOURNAL_STORES_IN_FLIGHT):
            tenure.add(None, 1, bytes(JOURNAL_STORE_BYTES))
        segment: Any = SimpleNamespace(
            tenure=tenure, context=SimpleNamespace(world=None), encoded=lambda slot: str(slot).encode()
        )
        line = _Line(segment, NodeId(1))
        peer: Any = SimpleNamespace(writable=True, start_call=start_call)
        line._peer = peer
        line.push()
        assert sent == [JOURNAL_STORE_BYTES] * JOURNAL_STORES_IN_FLIGHT
        assert line._cursor == Slot(JOURNAL_STORES_IN_FLIGHT)

    run(story())


def test_a_member_that_is_silent_keeps_nobody_from_hearing_of_the_end() -> None:
    async def story() -> None:
        stream = pb.StreamInfo(id=1, members=[1, 2, 3], held_by=[2])
        info = pb.LogInfo(id=9, chain=[pb.SegmentInfo(epoch=1, base=1, end=3, ack=2, streams=[stream])])
        left: list[int] = []
        asked: list[int] = []

        async def get(node: int) -> Any:
            if node != 2:
                try:
                    await asyncio.Event().wait()
                finally:
                    left.append(node)

            async def call(*_: object, **__: object) -> Any:
                asked.append(node)
                state = pb.REPLICA_FINISHED if len(asked) == 12 else pb.REPLICA_SEALED
                return SimpleNamespace(message=pb.ReplicaStatus(state=state, contiguous=2))

            return SimpleNamespace(call=call)

        clock = Hasty()
        segment: Any = object.__new__(LedSegment)
        segment._name = (9, 1, 1, 7)
        segment.epoch = 1
        segment.context = SimpleNamespace(
            routes=SimpleNamespace(info=info, place=lambda node: node),
            pool=SimpleNamespace(get=get),
            world=SimpleNamespace(clock=clock),
        )
        await segment.wait_until_shown()
        assert asked == [2] * 12, "it has all from the first on, and shows it at last"
        assert clock.slept[-1] == LONGEST_PAUSE_SECONDS, "it may be long"
        assert sorted(left) == [1, 3], "nobody is asked any more"

    run(story())


def test_a_replica_that_has_failed_does_not_count_as_one_that_has_the_end() -> None:
    async def story() -> None:
        stream = pb.StreamInfo(id=1, members=[1, 2, 3], held_by=[1])
        info = pb.LogInfo(id=9, chain=[pb.SegmentInfo(epoch=1, base=1, end=3, ack=2, streams=[stream])])
        failed = {1: 3, 2: 3}
        """For how many questions to each."""

        async def get(node: int) -> Any:
            async def call(*_: object, **__: object) -> Any:
                if node == 3:
                    raise Unavailable("it is away")
                failed[node] -= 1
                state = pb.REPLICA_FAILED if failed[node] >= 0 else pb.REPLICA_SEALED
                return SimpleNamespace(message=pb.ReplicaStatus(state=state, contiguous=2))

            return SimpleNamespace(call=call)

        segment: Any = object.__new__(LedSegment)
        segment._name, segment.epoch = (9, 1, 1, 7), 1
        segment.context = SimpleNamespace(
            routes=SimpleNamespace(info=info, place=lambda node: node),
            pool=SimpleNamespace(get=get),
            world=SimpleNamespace(clock=Hasty()),
        )
        await segment.wait_until_shown()
        assert max(failed.values()) < 0, "both are whole again"

    run(story())


def test_nothing_is_given_where_junk_was_decided() -> None:
    """Others fill that with junk: what is given would be another value of the same position."""

    async def story() -> None:
        stream = pb.StreamInfo(id=1, members=[1, 2, 3], held_by=[1], junk_slot=2)
        info = pb.LogInfo(id=9, chain=[pb.SegmentInfo(epoch=1, base=1, end=4, ack=2, streams=[stream])])
        slots = {1: 2, 2: 0, 3: 0}

        async def get(node: int) -> Any:
            async def call(method: Method, message: Any, body: list[bytes] = [], **_: object) -> Any:  # noqa: B006
                if method is Method.STORE:
                    assert (message.settle, message.slot) == (True, slots[node])
                    slots[node] += len(body)
                return SimpleNamespace(message=pb.ReplicaStatus(state=pb.REPLICA_SEALED, contiguous=slots[node]))

            return SimpleNamespace(call=call)

        tenure = Tenure[str]([NodeId(1), NodeId(2), NodeId(3)], 2, keep_bytes=1 << 20)
        for batch in (b"a", b"b", b"c"):
            tenure.add(batch.decode(), 1, batch)
        segment: Any = object.__new__(LedSegment)
        segment._name, segment.epoch, segment.base, segment.tenure = (9, 1, 1, 7), 1, 1, tenure
        segment.context = SimpleNamespace(
            routes=SimpleNamespace(info=info, place=lambda node: node),
            pool=SimpleNamespace(get=get),
            world=SimpleNamespace(clock=Hasty()),
        )
        await segment.wait_until_shown()
        assert sorted(slots.values()) in ([0, 2, 2], [2, 2, 2]), "as many have it as acknowledge, and no more of it"

    run(story())
