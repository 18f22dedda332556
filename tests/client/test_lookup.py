"""Single reads, tails and times."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.client.scripted import run, scripted, stay_silent
from tests.client.test_subscribe import MIXED, fill

from varlog.base.errors import InvalidArgument, NotWritten, Timeout, Trimmed, Unavailable
from varlog.client.limits import ATTEMPT_SECONDS
from varlog.client.lookup import time_us_of


def test_every_position_reads_as_itself() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            for glsn in range(1, 20):
                entry = await log.read(glsn)
                assert (entry.glsn, entry.payload) == (glsn, b"%d" % glsn)
            scanned = [entry async for entry in log.subscribe(wait=False)]
            assert [await log.read(glsn) for glsn in range(1, 20)] == scanned

    run(story())


def test_an_acked_entry_is_asked_of_its_stream_alone() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            log = client.log("log")
            ack = await log.append(b"x")
            assert (await log.read(ack.glsn)).payload == b"x"
            assert [len(node.reads) for node in cluster.nodes if node.reads] == [1]

    run(story())


def test_beyond_the_tail_and_below_the_trim_point() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            assert await log.tail() == 19
            with pytest.raises(NotWritten) as beyond:
                await log.read(20)
            assert beyond.value.tail == 19
            cluster.info.trimmed = 6
            with pytest.raises(Trimmed) as below:
                await log.read(6)
            assert below.value.first == 7
            await log.info()
            with pytest.raises(Trimmed):
                await log.read(1)
            assert (await log.read(7)).glsn == 7
            for glsn in (0, -1, "1", None):
                with pytest.raises(InvalidArgument):
                    await log.read(glsn)  # type: ignore[arg-type]

    run(story())


def test_a_replica_that_is_behind_or_dead_does_not_hide_an_entry() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3, replicas=3) as (cluster, client):
            fill(cluster, *MIXED)
            log = client.log("log")
            cluster.nodes[0].visible = 0
            await cluster.nodes[1].stop()
            for glsn in (1, 8, 19):
                assert (await log.read(glsn)).glsn == glsn
            await cluster.nodes[2].stop()
            with pytest.raises(Timeout):
                await log.read(8, timeout=0.3)

    run(story())


def test_the_first_answer_is_enough() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            fill(cluster, *MIXED)
            cluster.nodes[1].on_read = cluster.nodes[2].on_read = stay_silent
            assert (await client.log("log").read(1)).glsn == 1

    run(story())


def test_a_node_that_stands_still_does_not_keep_the_tail_from_being_asked() -> None:
    """It is a member of all streams, which ask their members in turns: in each attempt it is one that is asked."""

    async def story() -> None:
        async with scripted(nodes=3, streams=3, replicas=3) as (cluster, client):
            fill(cluster, *MIXED)
            cluster.nodes[2].on_read = stay_silent
            with pytest.raises(NotWritten):
                await client.log("log").read(20, timeout=1.9 * ATTEMPT_SECONDS)

    run(story())


def test_a_read_ends_with_its_connection() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            fill(cluster, (1, 1))
            cluster.nodes[0].on_read = stay_silent
            reading = asyncio.create_task(client.log("log").read(1, timeout=30.0))
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(Unavailable, match="was closed"):
                await asyncio.wait_for(reading, 10.0)

    run(story())


def test_times() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3, replicas=3) as (cluster, client):
            log = client.log("log")
            assert await log.find(0) == 1
            fill(cluster, *MIXED)  # the time of a batch is its first position, in microseconds
            cluster.nodes[0].visible = 1
            firsts = [1, 4, 5, 9, 10, 12, 17, 18]
            for microsecond in range(20):
                wanted = min([first for first in firsts if first >= microsecond], default=20)
                time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microsecond)
                assert await log.find(time) == wanted
            cluster.info.trimmed = 5
            assert await log.find(0) == 6

    run(story())


def test_ways_to_say_a_time() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert time_us_of(moment) == time_us_of(moment.astimezone(timezone(timedelta(hours=9)))) == 1767323045678901
    assert time_us_of(moment.timestamp()) == 1767323045678901
    assert time_us_of(1767323045) == 1767323045_000_000
    assert time_us_of(datetime(1960, 1, 1, tzinfo=UTC)) == 0
    unhappy: list[Any] = ["2026", None, True, -1, 1 << 50, float("nan"), datetime(2026, 1, 1)]  # noqa: DTZ001
    for time in unhappy:
        with pytest.raises(InvalidArgument):
            time_us_of(time)
