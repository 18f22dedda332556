"""Two producers of one name at once: the older does not know that it was followed, and nothing is in the log twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_sequencer_stories import FILL_S, NEVER_MS, Brake, brake, entries, two_clients
from tests.repository.test_sequencer import create, roll
from tests.servers import run, servers

import varlog
from varlog.base import limits
from varlog.base.errors import Fenced, OutcomeUnknown, Unavailable
from varlog.client import chain, claim, outlet, past
from varlog.client.context import LogContext
from varlog.client.past import Past
from varlog.node.verbs import Verbs
from varlog.runtime.clock import RealClock
from varlog.transport.peer import Request

__all__ = ["brake"]

TURNS = {"streams": 2, "unit": 1}
"""Batches of one name lie on two streams in turns, neither of which sees them all."""


@pytest.fixture(autouse=True)
def holes_are_filled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "FILL_SECONDS", FILL_S)


async def opened(log: varlog.Log) -> varlog.Producer:
    return await log.producer(id="job", linger=0, timeout=5).open()


async def send(producer: varlog.Producer, payload: bytes, sequence: int) -> int:
    return (await (await producer.send_batch([payload], sequence=sequence))).first


async def payloads(log: varlog.Log) -> list[bytes]:
    return [payload for _, payload in await entries(log)]


def test_who_was_followed_is_granted_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                older = await opened(one)
                await send(older, b"a", 0)
                newer = await opened(two)
                assert newer.next_sequence == 1
                await send(newer, b"b", 1)
                with pytest.raises(Fenced, match="opened since"):
                    await send(older, b"b", 1)
                with pytest.raises(Unavailable, match="open it again"):
                    await send(older, b"c", 2)
                await send(newer, b"c", 2)
                assert await payloads(one) == [b"a", b"b", b"c"]
                older.abort()
                older = await opened(one)
                assert older.next_sequence == 3, "and so it may be taken back"
                await send(older, b"d", 3)
                with pytest.raises(Fenced):
                    await send(newer, b"d", 3)
                assert await payloads(one) == [b"a", b"b", b"c", b"d"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_what_was_on_its_way_as_another_opened_is_there_once(tmp_path: Path, brake: Brake) -> None:
    """Its place is given up, and it is granted no other."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                older = await opened(one)
                sent = await older.send_batch([b"slow"], sequence=0)
                await brake.reached.wait()
                newer = await opened(two)
                assert newer.next_sequence == 0
                brake.word = b"nothing"
                await send(newer, b"slow", 0)
                brake.released.set()
                with pytest.raises(Fenced):
                    await sent
                assert await payloads(two) == [b"slow"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


@pytest.mark.parametrize("first", ["older", "newer"])
@pytest.mark.parametrize("ordering", ["sequencer", "cut", "leader"])
def test_who_was_followed_in_an_earlier_segment_hears_it_in_the_next(ordering: str, first: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                older = await opened(one)
                await send(older, b"a", 0)
                newer = await opened(two)
                await send(newer, b"b", 1)
                await two.reconfigure(ordering=ordering)
                if ordering == "sequencer":
                    await roll(cluster)
                for which in (first, "newer" if first == "older" else "older"):
                    if which == "newer":
                        await send(newer, b"c", 2)
                    else:
                        with pytest.raises((Fenced, Unavailable), match="open it again"):
                            await send(older, b"b", 1)
                assert await payloads(one) == [b"a", b"b", b"c"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_who_was_followed_under_cut_hears_it_on_the_next_stream(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await cluster.create_log(replicas=2, streams=1)
            async with two_clients(cluster) as (one, two):
                older, newer = await opened(one), await opened(two)
                await send(newer, b"a", 0)
                await two.reconfigure(streams=2)
                await two.reconfigure(streams=1)
                await roll(cluster)
                with pytest.raises((Fenced, Unavailable), match="open it again"):
                    await send(older, b"a", 0)
                assert await payloads(one) == [b"a"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_of_two_that_begin_with_different_streams_one_is_refused(tmp_path: Path) -> None:
    """Nothing is in the log yet that would lead the later one to the stream of the other."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await cluster.create_log(replicas=2, streams=2)
            streams = [stream.id for stream in log.chain[0].streams]
            async with two_clients(cluster) as (one, two):
                older = await one.producer(id="job", linger=0, stream=streams[0]).open()
                newer = await two.producer(id="job", linger=0, stream=streams[1]).open()
                with pytest.raises(Fenced, match="another stream"):
                    await send(older, b"a", 0)
                await send(newer, b"a", 0)
                older.abort()
                older = await one.producer(id="job", linger=0, stream=streams[0]).open()
                assert older.next_sequence == 1, "and it goes on where the other is"
                await send(older, b"b", 1)
                assert await payloads(one) == [b"a", b"b"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_what_is_sent_while_another_of_the_name_looks_where_to_go_on_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream has ended, and so has the one in which it has just not found it."""
    plain = past.look_back

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await cluster.create_log(replicas=2, streams=1)
            async with two_clients(cluster) as (one, two):
                older, newer = await opened(one), await opened(two)
                await roll(cluster)

                async def look_back(context: LogContext, *args: Any, **kwargs: Any) -> Past:
                    found = await plain(context, *args, **kwargs)
                    if context is one._context:
                        monkeypatch.setattr(outlet, "look_back", plain)
                        await send(newer, b"a", 0)
                        await roll(cluster)
                        await context.routes.refresh(5)
                    return found

                monkeypatch.setattr(outlet, "look_back", look_back)
                with pytest.raises((Fenced, Unavailable), match="open it again"):
                    await send(older, b"a", 0)
                assert await payloads(one) == [b"a"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_a_clock_that_is_behind_does_not_keep_a_name_from_its_latest_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                older = await opened(one)
                with monkeypatch.context() as behind:
                    behind.setattr(RealClock, "wall_us", lambda _: 1)
                    newer = await opened(two)
                await send(newer, b"a", 0)
                with pytest.raises(Fenced):
                    await send(older, b"a", 0)
                assert await payloads(one) == [b"a"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_a_producer_goes_on_in_the_next_segment_as_often_as_there_is_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                producer = await opened(one)
                for number, ordering in enumerate(("sequencer", "cut", "sequencer", "leader", "sequencer")):
                    await send(producer, b"%d" % number, number)
                    await two.reconfigure(ordering=ordering)
                    if ordering == "sequencer":
                        await roll(cluster)
                futures = [await producer.send_batch([b"%d" % number], sequence=number) for number in range(5, 9)]
                await roll(cluster)
                await asyncio.gather(*futures)
                assert await payloads(two) == [b"%d" % number for number in range(9)]
                producer.abort()

    run(story())


def test_one_whose_answer_is_lost_may_still_be_asked_for(tmp_path: Path, brake: Brake) -> None:
    """A claim takes nothing from what was written before it."""

    async def story() -> None:
        brake.place = 1
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                older = await log_with_short_patience(one)
                with pytest.raises(OutcomeUnknown):
                    await send(older, b"slow", 0)
                brake.word = b"nothing"
                newer = await opened(two)
                assert newer.next_sequence == 1, "the head had it: it was carried on"
                brake.released.set()
                assert await payloads(two) == [b"slow"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_one_that_was_opened_under_another_ordering_goes_on_under_sequencer(ordering: str, tmp_path: Path) -> None:
    """And of two that were, the one that was opened last."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await cluster.create_log(replicas=2, streams=1)
            async with two_clients(cluster) as (one, two):
                await two.reconfigure(ordering=ordering)
                older = await opened(one)
                await send(older, b"a", 0)
                newer = await opened(two)
                await two.reconfigure(ordering="sequencer", streams=2)
                await send(newer, b"b", 1)
                with pytest.raises((Fenced, Unavailable), match="open it again"):
                    await send(older, b"b", 1)
                await send(newer, b"c", 2)
                assert await payloads(one) == [b"a", b"b", b"c"]
                for producer in (older, newer):
                    producer.abort()

    run(story())


def test_an_opening_that_was_given_up_takes_the_name_from_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asking the sequencer when its caller left, and was not heard; another was opened since."""
    asked, heard = asyncio.Event(), asyncio.Event()
    plain = Verbs.grant

    def grant(verbs: Verbs, request: Request) -> None:
        asked.set()
        if heard.is_set():
            plain(verbs, request)

    monkeypatch.setattr(Verbs, "grant", grant)
    monkeypatch.setattr(claim, "STORE_SECONDS", 0.1)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                left = one.producer(id="job", linger=0, timeout=5)
                opening = asyncio.ensure_future(left.__aenter__())
                await asked.wait()
                opening.cancel()
                await asyncio.wait([opening])
                still_asking = left._outlet._opening
                assert still_asking is not None
                heard.set()
                newer = await opened(two)
                await asyncio.wait([still_asking])
                await send(newer, b"a", 0)
                newer.abort()

    run(story())


def test_others_are_forgotten_before_one_that_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_STREAM", 3)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, two):
                producer = await opened(one)
                for number in range(6):
                    await send(producer, b"a", number)
                    (await two.producer(id=f"other-{number}", linger=0, timeout=5).open()).abort()
                producer.abort()

    run(story())


def test_an_opening_that_finds_no_sequencer_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, **TURNS)
            async with two_clients(cluster) as (one, _):
                head = log.chain[0].streams[0].members[0]
                await cluster.stop_node(head)
                with pytest.raises(Unavailable, match=f"node {head}, which grants positions, does not"):
                    await one.producer(id="job", timeout=0.5).open()

    run(story())


async def log_with_short_patience(log: varlog.Log) -> varlog.Producer:
    return await log.producer(id="job", linger=0, timeout=0.3).open()
