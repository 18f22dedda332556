"""The cut loop beside changes of a log, with cuts that overlap, and after a leader that left some behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from tests.servers import run
from tests.soon import soon

from varlog.base.errors import NoSpace, OutcomeUnknown, VarlogError
from varlog.base.ids import LogId, NodeId, Slot, StreamId
from varlog.core.ordering.cut import Cut
from varlog.ports import MetadataStore, Transaction
from varlog.ports.metadata import Versioned
from varlog.repository import keys
from varlog.repository import orderer as ordering
from varlog.repository.orderer import Orderer
from varlog.runtime.clock import RealClock
from varlog.wire.proto import varlog_pb2 as pb

LOG = pb.LogInfo(
    id=1,
    chain=[
        pb.SegmentInfo(
            epoch=1,
            ordering="cut",
            base=1,
            streams=[pb.StreamInfo(id=1, members=[1]), pb.StreamInfo(id=2, members=[1])],
        )
    ],
)


class SlowStore:
    """Commits when it is told to, in whatever order."""

    def __init__(self) -> None:
        self.data: dict[str, Versioned] = {}
        self.asked: list[tuple[Transaction, asyncio.Future[None]]] = []

    async def commit(self, transaction: Transaction) -> bool:
        answer = asyncio.get_running_loop().create_future()
        self.asked.append((transaction, answer))
        await answer
        return True

    async def get(self, key: str) -> Versioned | None:
        return self.data.get(key)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return sorted(pair for pair in self.data.items() if pair[0].startswith(prefix))

    def apply(self, index: int, *, answer: bool = True) -> None:
        transaction, waiting = self.asked[index]
        for key in transaction.delete:
            self.data.pop(key, None)
        self.data |= {key: Versioned(value, 1) for key, value in transaction.put.items()}
        if answer:
            waiting.set_result(None)

    def fail(self, index: int, error: VarlogError) -> None:
        self.asked[index][1].set_exception(error)


class Ordered:
    """An orderer of one log, and what it announced."""

    def __init__(self, store: SlowStore, window: int) -> None:
        self.announced: list[int] = []
        self.orderer = Orderer(cast(MetadataStore, store), RealClock(), self._announce, window)
        self.workers = [asyncio.ensure_future(self.orderer.run()) for _ in range(window)]

    def _announce(self, cuts: list[Cut]) -> None:
        self.announced += [cut.high_watermark for cut in cuts]

    async def report(self, stream: int, tail: int) -> None:
        self.orderer.report(LogId(1), NodeId(1), StreamId(stream), Slot(tail), Slot(0))
        await soon()


def play(story: Callable[[SlowStore, Ordered], Coroutine[Any, Any, None]], window: int) -> None:
    async def played() -> None:
        store = SlowStore()
        ordered = Ordered(store, window)
        ordered.orderer.add(LOG)
        await story(store, ordered)
        for worker in ordered.workers:
            worker.cancel()
        await asyncio.gather(*ordered.workers, return_exceptions=True)

    run(played())


def test_a_stream_ends_behind_the_cut_that_is_being_persisted() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 5)
        ending = asyncio.ensure_future(ordered.orderer.finalize(LogId(1), StreamId(1)))
        await soon()
        assert not ending.done(), "five slots may be in the log, or not"
        store.apply(0)
        assert await ending == 5
        await ordered.report(1, 9)
        assert ordered.announced == [5], "nothing behind the end"

    play(story, 1)


@pytest.mark.parametrize("window", [1, 4])
def test_a_stream_ends_though_others_are_ordered_without_a_pause(window: int) -> None:
    """There is never an instant without a cut under way."""

    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 5)
        ending = asyncio.ensure_future(ordered.orderer.finalize(LogId(1), StreamId(1)))
        await ordered.report(2, 1)
        store.apply(0)
        await soon()
        assert len(store.asked) == 2, "the next cut left before anybody could see that there was none"
        assert await asyncio.wait_for(ending, 10) == 5

    play(story, window)


def test_an_embedded_store_gets_one_cut_at_a_time() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        for tail in (1, 2, 3):
            await ordered.report(1, tail)
        assert len(store.asked) == 1
        store.apply(0)
        await soon()
        store.apply(1)
        await soon()
        assert (len(store.asked), ordered.announced) == (2, [1, 3])

    play(story, 1)


def test_cuts_that_overlap_are_announced_in_order() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 2)
        await ordered.report(2, 3)
        await ordered.report(1, 4)
        assert len(store.asked) == 3
        store.apply(2)
        store.apply(1)
        await soon()
        assert ordered.announced == []
        assert ordered.orderer.order(LogId(1)).high_watermark == 0
        store.apply(0)
        await soon()
        assert ordered.announced == [2, 5, 7]

    play(story, 4)


def test_nothing_behind_a_failed_cut_is_announced() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 2)
        await ordered.report(2, 3)
        ending = asyncio.ensure_future(ordered.orderer.close(LogId(1)))
        store.apply(1)
        store.fail(0, OutcomeUnknown("no answer"))
        with pytest.raises(OutcomeUnknown):
            await ending  # where the log ends can not be said
        await ordered.report(1, 9)
        assert (ordered.announced, len(store.asked)) == ([], 2)

    play(story, 4)


def test_a_cut_without_room_is_tried_again_as_it_was() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 2)
        await ordered.report(2, 3)
        store.apply(1)
        store.fail(0, NoSpace("full"))
        while len(store.asked) < 3:
            await soon()
        assert store.asked[2][0] == store.asked[0][0]
        store.apply(2)
        await soon()
        assert ordered.announced == [2, 5]

    play(story, 4)


def test_who_ends_a_stream_is_refused_while_there_is_no_room_for_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """He holds up all others who want to change the log, be it to make an end of it."""
    monkeypatch.setattr(ordering, "FULL_S", 0.05)
    monkeypatch.setattr(ordering, "NO_SPACE_PAUSE_S", 0.0)

    async def story(store: SlowStore, ordered: Ordered) -> None:
        await ordered.report(1, 5)
        ending = asyncio.ensure_future(ordered.orderer.finalize(LogId(1), StreamId(1)))
        await asyncio.sleep(0.2)
        assert not ending.done(), "it is slow, and not full"
        store.fail(0, NoSpace("full"))
        with pytest.raises(NoSpace):
            await ending
        ordered.orderer.resume(LogId(1), StreamId(1))
        store.apply(1)
        while ordered.announced != [5]:
            await soon()
        assert await ordered.orderer.finalize(LogId(1), StreamId(1)) == 5

    play(story, 1)


def test_a_new_leader_leaves_out_a_cut_without_the_one_before() -> None:
    async def story(store: SlowStore, ordered: Ordered) -> None:
        for stream, tail in ((1, 2), (2, 3), (1, 4)):
            await ordered.report(stream, tail)
        store.apply(0)
        store.apply(2)  # and its leader dies
        later = Ordered(store, 4)
        loading = asyncio.ensure_future(later.orderer.load(LOG))
        await soon()
        assert store.asked[3][0].delete == [keys.cut(LogId(1), 7)], "before it makes any"
        store.apply(3)
        await loading
        await later.report(1, 4)
        store.apply(4)
        await soon()
        assert later.announced == [4]
        for worker in later.workers:
            worker.cancel()

    play(story, 4)


@pytest.mark.parametrize("window", [1, 4])
def test_what_is_due_at_once_travels_in_transactions_that_a_store_takes(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "DROP_IDLE_S", 0.05)
    logs = range(1, 2501)

    async def story(store: SlowStore, ordered: Ordered) -> None:
        for number in logs:
            log = pb.LogInfo()
            log.CopyFrom(LOG)
            log.id = number
            ordered.orderer.add(log)
        for tail, bound in ((1, 0), (2, 1)):
            for number in logs:
                ordered.orderer.report(LogId(number), NodeId(1), StreamId(1), Slot(tail), Slot(bound))
            first = len(store.asked)
            for index in range(first, first + 3):
                while len(store.asked) <= index:
                    await asyncio.sleep(0.01)
                store.apply(index)
            while len(ordered.announced) < tail * len(logs):
                await asyncio.sleep(0.01)
            assert [len(asked.put) for asked, _ in store.asked[first:]] == [1000, 1000, 500]
        dropping = asyncio.ensure_future(ordered.orderer.drop_idle())
        for deleted in (1000, 1000, 500):
            index = len(store.asked)
            while len(store.asked) <= index:
                await asyncio.sleep(0.01)
            assert len(store.asked[index][0].delete) == deleted
            store.apply(index)
        dropping.cancel()

    play(story, window)


def test_large_cuts_do_not_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "TRANSACTION_BYTES", 1)

    async def story(store: SlowStore, ordered: Ordered) -> None:
        other = pb.LogInfo()
        other.CopyFrom(LOG)
        other.id = 2
        ordered.orderer.add(other)
        for log in (1, 2):
            ordered.orderer.report(LogId(log), NodeId(1), StreamId(1), Slot(1), Slot(0))
        await soon()
        assert [len(asked.put) for asked, _ in store.asked] == [1, 1]

    play(story, 4)
