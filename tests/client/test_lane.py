"""Appends that wait: whatever is cut, dropped and put back, each keeps its entries, its place and its cost."""

import asyncio
from math import inf
from typing import NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.scripted import run

from varlog.base.errors import Timeout, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, StreamId
from varlog.client.columns import Columns, many_entries, one_entry
from varlog.client.entry import Ack
from varlog.client.gathered import Gathered
from varlog.client.lane import Appends, Lane
from varlog.client.limits import GATHER_BYTES
from varlog.client.routes import StreamRoute
from varlog.wire.batch import Batch

Entry = tuple[bytes, bytes | None, dict[str, bytes]]
Future = asyncio.Future[Ack]

ROUTE = StreamRoute(LogId(1), Epoch(1), StreamId(3), (), True, None, Glsn(1), None)


class Owner:
    """Counts what leaves."""

    def __init__(self) -> None:
        self.left = 0

    def wall_us(self) -> int:
        return 0

    def acked(self, batch: Gathered, _: Glsn) -> None:
        self.left += batch.cost

    def leave(self, cost: int) -> None:
        self.left += cost


class Call(NamedTuple):
    """One append of a test."""

    entries: list[Entry]
    compress: bool
    given_up: bool

    def columns(self) -> Columns:
        payloads, keys, headers = zip(*self.entries, strict=True)
        if len(self.entries) == 1:
            return one_entry(payloads[0], keys[0], headers[0])
        return many_entries(payloads, None, keys if any(keys) else None, headers if any(headers) else None)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
entries = st.tuples(
    st.binary(max_size=5),
    st.one_of(st.none(), st.binary(min_size=1, max_size=3)),
    st.dictionaries(names, st.binary(max_size=3), max_size=2),
)
plain = st.tuples(st.binary(max_size=5), st.none(), st.just(cast(dict[str, bytes], {})))
calls = st.builds(
    Call,
    st.one_of(st.lists(plain, min_size=1, max_size=1), st.lists(entries, min_size=1, max_size=3)),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, False, True]),
)


def decoded(batch: Gathered) -> list[Entry]:
    stored = Batch(batch.data)
    return list(zip(stored.payloads(), stored.keys(), stored.headers(), strict=True))


async def filled(lane: Lane, appends: list[Call]) -> list[Future]:
    futures = []
    for call in appends:
        future = lane.new_future()
        lane.add(call.columns(), None, call.compress, inf, future)
        futures.append(future)
    for future, call in zip(futures, appends, strict=True):
        if call.given_up:
            future.cancel()
    return futures


def new_lane() -> Lane:
    return Lane(None, asyncio.get_running_loop().create_future)


@settings(max_examples=100, deadline=None)
@given(st.lists(calls, max_size=12), st.integers(1, 5), st.booleans())
def test_appends_that_travel_together_stay_what_they_were(appends: list[Call], most: int, returned: bool) -> None:
    async def story() -> None:
        lane, owner = new_lane(), Owner()
        sent: list[Gathered] = []
        futures = await filled(lane, appends)
        assert len(lane) == len(appends)
        total = sum(each.cost for each in lane)
        assert total == sum(call.columns().cost for call in appends)
        while lane:
            taken = lane.take(most)
            assert 1 <= len(taken.futures) <= most
            kept = taken.awaited()
            owner.leave(taken.cost - kept.cost)
            if not kept.futures:
                continue
            batch = Gathered(owner, lane, kept, ROUTE)
            batch.stamp(b"p" * 16, len(sent))
            if returned:
                lane.put_back(batch.dissolve())
                taken = lane.take(most)
                assert taken.cost == batch.cost
                batch = Gathered(owner, lane, taken.awaited(), ROUTE)
                batch.stamp(b"q" * 16, len(sent))
            sent.append(batch)
        there: list[Entry] = []
        for batch in sent:
            batch.acked(Glsn(1 + len(there)), ROUTE)
            assert batch.count == len(decoded(batch))
            there += decoded(batch)
        assert there == [entry for call in appends if not call.given_up for entry in call.entries]
        for call, future in zip(appends, futures, strict=True):
            if not call.given_up:
                ack = future.result()
                assert type(ack) is Ack
                assert ack.stream == ROUTE.id
                assert there[ack.first - 1 : ack.last] == call.entries
        assert owner.left == total

    run(story())


def alone(size: int) -> Columns:
    return one_entry(b"x" * size, None, None)


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([10, 10, 10], [3]),
        ([GATHER_BYTES, 10, 10], [1, 2]),
        ([10, GATHER_BYTES, 10], [1, 1, 1]),
        ([GATHER_BYTES // 2, GATHER_BYTES // 3, GATHER_BYTES // 3], [2, 1]),
    ],
)
def test_what_does_not_fit_one_batch_goes_with_the_next(sizes: list[int], together: list[int]) -> None:
    async def story() -> None:
        lane = new_lane()
        for size in sizes:
            lane.add(alone(size), None, False, inf, lane.new_future())
        found = []
        while lane:
            found.append(len(lane.take(100).futures))
        assert found == together

    run(story())


def test_what_is_encoded_already_goes_alone() -> None:
    async def story() -> None:
        lane = new_lane()
        for data in (None, b"encoded", None, None):
            lane.add(alone(1), data, False, inf, lane.new_future())
        taken = [lane.take(100) for _ in range(3)]
        assert [(len(each.futures), each.data) for each in taken] == [(1, None), (1, b"encoded"), (2, None)]
        assert not lane
        taken[1].futures[0].cancel()
        assert taken[1].awaited().futures == []

    run(story())


def test_those_that_are_due_end_and_the_others_wait_on() -> None:
    async def story() -> None:
        lane = new_lane()
        for deadline, count in ((3.0, 1), (1.0, 2), (2.0, 1)):
            columns = many_entries([b"x"] * count, None, None, None)
            lane.add(columns, None, False, deadline, lane.new_future())
        appends = lane.take(100)
        told = fail_due(appends, 0.5)
        assert told == (1.0, [])
        assert fail_due(appends, 1.0) == (2.0, [(1, 2)])
        assert fail_due(appends, 1.5) == (2.0, [])
        appends.futures[2].cancel()
        assert fail_due(appends, 1.5) == (3.0, [])
        assert fail_due(appends, inf) == (inf, [(0, 1)])
        for future in appends.futures[:2]:
            assert isinstance(future.exception(), Timeout)

    run(story())


def fail_due(appends: Appends, now: float) -> tuple[float, list[tuple[int, int]]]:
    """The next deadline, and index and count of those who were told."""
    told: list[tuple[int, int]] = []

    def error(index: int, count: int) -> VarlogError:
        told.append((index, count))
        return Timeout("due")

    return appends.fail(error, now), told


def test_who_asks_again_takes_the_place_of_who_gave_up() -> None:
    async def story() -> None:
        lane = new_lane()
        for count in (1, 2, 1):
            columns = many_entries([b"x"] * count, None, None, None)
            lane.add(columns, None, False, 1.0, lane.new_future())
        appends = lane.take(100)
        waiting = list(appends.futures)
        assert appends.join(3, 1, 0.0) is waiting[2]
        assert appends.join(1, 1, 0.0) is None
        fail_due(appends, 1.0)
        again = expect(appends.join(1, 2, 5.0))
        assert again not in waiting
        assert appends.join(1, 2, 3.0) is again
        assert fail_due(appends, 4.0) == (5.0, [])
        assert appends.join(1, 2, 7.0) is again
        assert fail_due(appends, 6.0) == (7.0, [])
        given_up = expect(appends.join(0, 1, 5.0))
        assert fail_due(appends, 6.0) == (7.0, [(0, 1)])
        assert isinstance(given_up.exception(), Timeout), "nobody waits for it any more, so nothing does"
        appends.acked(Glsn(10), StreamId(1))
        assert again.result() == Ack(Glsn(11), Glsn(12), StreamId(1))
        for future in waiting:
            assert isinstance(future.exception(), Timeout)

    run(story())


def expect(future: "Future | None") -> Future:
    assert future is not None
    return future
