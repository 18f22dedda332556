"""Producers: order, batches, back-pressure, names."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.scripted import Node, ScriptedCluster, fail_with, run, scripted
from tests.client.test_appends import hold, ignore, take_silently, until

from varlog import Log
from varlog.base.errors import (
    InvalidArgument,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    Sealed,
    Timeout,
    TooLarge,
    Unavailable,
)
from varlog.base.ids import ProducerToken
from varlog.client.outlet import producer_id, stream_of_name
from varlog.client.routes import StreamRoute
from varlog.transport.peer import Request
from varlog.wire.batch import BatchHeader


def counts(cluster: ScriptedCluster, stream: int = 1) -> list[int]:
    return [header.count for header in cluster.primary(stream).appends]


def test_sends_are_gathered_by_size_and_by_time() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            async with client.log("log").producer(linger=0.01, max_batch_bytes=10 * (100 + 128)) as producer:
                futures = [await producer.send(bytes(100)) for _ in range(25)]
                assert producer.next_sequence == 3
                await asyncio.gather(*futures)
            assert counts(cluster) == [10, 10, 5]
            assert [future.result().first for future in futures] == list(range(1, 26))
            assert all(future.result().last == future.result().first for future in futures)

    run(story())


def test_what_is_sent_is_in_the_log_in_the_order_sent() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (cluster, client):
            async with client.log("log").producer(linger=0, max_batch_bytes=500) as producer:
                for number in range(1000):
                    await producer.send(b"%d" % number)
            assert cluster.payloads() == [b"%d" % number for number in range(1000)]
            assert len([stream for stream in cluster.streams if stream.batches]) == 1

    run(story())


def test_keys_headers_and_batches_mix_with_plain_sends() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            async with log.producer() as producer:
                await producer.send(b"a")
                await producer.send(b"b", key=b"k")
                await producer.send(b"c", headers={"h": b"v"})
                await producer.send(bytearray(b"d"))
                batch = await producer.send_batch([b"e", b"f"], keys=[None, b"x"])
                await producer.send(b"g")
            ack = await batch
            assert (ack.first, ack.last) == (5, 6)
            entries = [entry async for entry in log.subscribe(stop=8)]
            assert [entry.payload for entry in entries] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
            assert [entry.key for entry in entries] == [None, b"k", None, None, None, b"x", None]
            assert [dict(entry.headers) for entry in entries] == [{}, {}, {"h": b"v"}, {}, {}, {}, {}]

    run(story())


def test_send_waits_when_too_much_is_in_flight() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            held: list[Callable[[], None]] = []
            cluster.primary(1).on_append = hold(held)
            producer = client.log("log").producer(linger=0, max_batch_bytes=1000, max_in_flight_bytes=5000)
            await producer.open()
            sends = [asyncio.ensure_future(producer.send(bytes(872))) for _ in range(12)]
            await until(lambda: sum(task.done() for task in sends) == 5)
            await asyncio.sleep(0.02)
            assert sum(task.done() for task in sends) == 5
            held.pop(0)()
            await until(lambda: sum(task.done() for task in sends) == 6)
            cluster.primary(1).on_append = None
            while held:
                held.pop(0)()
            await asyncio.gather(*sends)
            await producer.close()
            assert len(cluster.payloads()) == 12

    run(story())


def test_a_lost_connection_repeats_nothing() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            node = cluster.primary(1)
            taken = 0

            def take_some(node: Node, request: Request, header: BatchHeader) -> bool:
                nonlocal taken
                taken += 1
                if taken in (3, 4, 11):
                    node.store(request, header)
                    request.peer.close()
                    return True
                return False

            node.on_append = take_some
            async with client.log("log").producer(linger=0, max_batch_bytes=300) as producer:
                futures = [await producer.send(b"%d" % number) for number in range(60)]
            assert cluster.payloads() == [b"%d" % number for number in range(60)]
            assert [future.result().first for future in futures] == list(range(1, 61))

    run(story())


def test_an_unanswered_send_is_of_unknown_outcome_with_a_token_of_its_own() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            cluster.primary(1).on_append = take_silently
            producer = log.producer(timeout=1.0)
            one, two = await producer.send(b"a"), await producer.send(b"b")
            with pytest.raises(OutcomeUnknown):
                await producer.flush()
            await producer.flush()
            tokens = []
            for future in (one, two):
                unknown = future.exception()
                assert isinstance(unknown, OutcomeUnknown)
                assert isinstance(unknown.token, ProducerToken)
                tokens.append(unknown.token)
            producer.abort()
            cluster.primary(1).on_append = None
            assert [(await log.retry(token)).first for token in tokens] == [1, 2]
            assert cluster.payloads() == [b"a", b"b"]

    run(story())


def test_a_refusal_moves_everything_to_another_stream_in_order() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            async with log.producer(linger=0, max_batch_bytes=300) as producer:
                first = await (await producer.send(b"first"))
                node = cluster.primary(first.stream)
                node.on_append = fail_with(NoSpace("full"), 1_000)
                futures = [await producer.send(b"%d" % number) for number in range(30)]
                await producer.flush()
            assert cluster.payloads() == [b"first"] + [b"%d" % number for number in range(30)]
            assert {future.result().stream for future in futures} == {3 - first.stream}

    run(story())


def test_refused_everywhere_each_send_is_told() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            producer = await log.producer(linger=0, max_batch_bytes=300).open()
            await (await producer.send(b"first"))
            cluster.primary(1).on_append = fail_with(NoSpace("full"), 1_000)
            futures = [await producer.send(b"%d" % number) for number in range(5)]
            with pytest.raises(NoSpace):
                await producer.flush()
            assert all(isinstance(future.exception(), NoSpace) for future in futures)
            await producer.close()
            assert cluster.payloads() == [b"first"]

    run(story())


def test_a_stream_that_was_given_up_is_left() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            producer = await client.log("log").producer(linger=0, timeout=1.5).open()
            first = await (await producer.send(b"first"))
            cluster.primary(first.stream).on_append = ignore
            lost = await producer.send(b"lost")
            with pytest.raises(OutcomeUnknown):
                await lost
            assert (await (await producer.send(b"next"))).stream != first.stream
            producer.abort()

    run(story())


def test_a_named_producer_goes_on_after_a_restart() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            for life in range(3):
                async with log.producer(id="etl-1") as producer:
                    assert producer.next_sequence == life * 2
                    await producer.send_batch([b"%d" % life])
                    await producer.send_batch([b"%d" % life, b"+"])
            used = [stream for stream in cluster.streams if stream.batches]
            assert len(used) == 1
            assert list(used[0].taken) == [producer_id("etl-1")]

    run(story())


def test_a_numbered_batch_that_comes_again_is_recognised() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            batches = [[b"a", b"b"], [b"c"], [b"d", b"e"]]
            async with log.producer(id="job") as producer:
                first = [await producer.send_batch(batch, sequence=n) for n, batch in enumerate(batches[:2])]
            async with log.producer(id="job") as producer:
                again = [await producer.send_batch(batch, sequence=n) for n, batch in enumerate(batches)]
                with pytest.raises(InvalidArgument, match="is number 3"):
                    await producer.send_batch([b"x"], sequence=4)
                with pytest.raises(InvalidArgument, match="is number 3"):
                    await producer.send_batch([b"x"], sequence="3")  # type: ignore[arg-type]
                for entries in ([b"a"], [b"a", b"b", b"c"]):
                    other = await producer.send_batch(entries, sequence=0)
                    assert other.result() == first[0].result(), "it is that of what the log has"
            assert [each.result() for each in again[:2]] == [each.result() for each in first]
            assert cluster.payloads() == [b"a", b"b", b"c", b"d", b"e"]
            async with log.producer() as producer:
                with pytest.raises(InvalidArgument, match="with an id"):
                    await producer.send_batch([b"x"], sequence=0)

    run(story())


def test_a_named_producer_that_is_refused_ends() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            producer = await client.log("log").producer(id="p", linger=0, max_batch_bytes=200).open()
            await (await producer.send(b"first"))
            cluster.primary(1).on_append = fail_with(NoSpace("full"), 1)
            futures = await asyncio.gather(*[producer.send(bytes(100)) for _ in range(3)])
            with pytest.raises(NoSpace):
                await producer.flush()
            assert all(isinstance(future.exception(), NoSpace) for future in futures)
            with pytest.raises(NoSpace):
                await producer.send(b"more")
            producer.abort()
            again = await client.log("log").producer(id="p").open()
            assert again.next_sequence == 1
            await (await again.send(b"second"))
            await again.close()
            assert cluster.payloads() == [b"first", b"second"]

    run(story())


def test_a_name_that_is_used_twice_is_noticed_where_it_can_be() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            one = await log.producer(id="p").open()
            two = await log.producer(id="p").open()
            await (await one.send_batch([b"a", b"b"]))
            taken = await two.send_batch([b"c"])
            with pytest.raises(OutcomeUnknown, match="used twice"):
                await taken
            one.abort()
            two.abort()

    run(story())


def test_names_choose_streams_evenly_and_stay_when_others_go() -> None:
    routes = [StreamRoute(1, 1, number, (1,), True, None, 1, None) for number in range(1, 5)]  # type: ignore[arg-type]
    chosen = {name: stream_of_name(name, routes).id for name in (f"producer-{n}" for n in range(400))}
    for route in routes:
        assert 60 < sum(stream == route.id for stream in chosen.values()) < 140
    left = routes[:3]
    assert all(stream_of_name(name, left).id == stream for name, stream in chosen.items() if stream != 4)


async def fail_inside(log: Log) -> None:
    async with log.producer(linger=5) as producer:
        await producer.send(b"c")
        raise RuntimeError("mine")


def test_life_of_a_producer() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            producer = log.producer()
            await producer.send(b"a")  # opens by itself
            await producer.close()
            await producer.close()
            with pytest.raises(Unavailable, match="closed"):
                await producer.send(b"b")
            aborted = log.producer(linger=5)
            future = await aborted.send(b"never")
            aborted.abort()
            assert isinstance(future.exception(), Unavailable)
            with pytest.raises(RuntimeError, match="mine"):
                await fail_inside(log)
            with pytest.raises(NotFound):
                await client.log("other").producer().send(b"x")
            assert cluster.payloads() == [b"a", b"c"]

    run(story())


def test_closing_the_cluster_ends_its_producers() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            producer = await client.log("log").producer(linger=0).open()
            cluster.primary(1).on_append = ignore
            future = await producer.send(b"x")
            await until(lambda: len(cluster.primary(1).appends) == 1)
            await client.close()
            assert isinstance(future.exception(), OutcomeUnknown)
            with pytest.raises(Unavailable):
                await producer.send(b"y")

    run(story())


def test_a_sealed_log_ends_a_producer() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            producer = await log.producer(linger=0).open()
            await (await producer.send(b"x"))
            assert await log.seal() == 2
            future = await producer.send(b"y")
            with pytest.raises(Sealed) as sealed:
                await future
            assert sealed.value.end == 2
            producer.abort()

    run(story())


def test_a_stream_that_is_away_is_waited_for_until_the_deadline() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            producer = await client.log("log").producer(linger=0, timeout=1.0).open()
            await cluster.primary(1).stop()
            future = await producer.send(b"x")
            with pytest.raises(Timeout):
                await future
            producer.abort()

    run(story())


def test_unhappy_settings() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            unhappy: list[dict[str, Any]] = [
                {"linger": -1},
                {"linger": 1000},
                {"linger": "a"},
                {"max_batch_bytes": 0},
                {"max_batch_bytes": 1 << 30},
                {"max_batch_bytes": "a"},
                {"max_in_flight_bytes": 0},
                {"max_in_flight_bytes": "a"},
                {"stream": "1"},
                {"id": "no spaces"},
            ]
            for settings in unhappy:
                with pytest.raises(InvalidArgument):
                    log.producer(**settings)
            async with log.producer() as producer:
                with pytest.raises(InvalidArgument):
                    await producer.send("text")  # type: ignore[arg-type]
                with pytest.raises(TooLarge):
                    await producer.send(bytes(9 << 20))
                with pytest.raises(InvalidArgument):
                    await producer.send_batch([])

    run(story())


def test_a_flush_does_not_wait_for_what_is_sent_behind_it() -> None:
    """Else it would wait for ever where another goes on sending."""

    async def story() -> None:
        async with scripted() as (cluster, client):
            held: list[Callable[[], None]] = []
            cluster.primary(1).on_append = hold(held)
            async with client.log("log").producer(linger=0) as producer:
                first = await producer.send_batch([b"1"])
                flushing = asyncio.ensure_future(producer.flush())
                await asyncio.sleep(0)
                second = await producer.send_batch([b"2"])
                await until(lambda: len(held) == 2)
                assert not flushing.done()
                held[0]()
                await flushing
                assert (first.done(), second.done()) == (True, False)
                held[1]()

    run(story())


@pytest.mark.parametrize("name", [None, "job"])
def test_a_producer_whose_opening_is_given_up_leaves_nothing_behind(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            await log.append(b"first")
            context = log._context
            before = [list(each) for each in (context.routes.listeners, context.choice.listeners, context.on_close)]
            found = asyncio.Event()
            asked = asyncio.Event()
            plain = context.routes.resolve

            async def resolve(timeout: float) -> Any:
                asked.set()
                await found.wait()
                return await plain(timeout)

            monkeypatch.setattr(context.routes, "resolve", resolve)
            producer = log.producer(id=name)
            opening = asyncio.ensure_future(producer.__aenter__())
            await asked.wait()
            opening.cancel()
            await asyncio.wait([opening])
            task = producer._outlet._opening
            assert task is not None
            found.set()
            await asyncio.wait([task])
            after = [list(each) for each in (context.routes.listeners, context.choice.listeners, context.on_close)]
            assert after == before
            with pytest.raises(Unavailable, match="aborted"):
                await producer.send(b"x")

    run(story())


def test_each_flush_is_told_of_what_it_waited_for() -> None:
    """Two at once for the same batch; and one that is behind a batch of which another is told."""

    async def story() -> None:
        async with scripted() as (cluster, client):
            cluster.primary(1).on_append = take_silently
            producer = client.log("log").producer(linger=0.01, timeout=0.3)
            for entry in (b"a", b"b"):
                await producer.send(entry)
            told = await asyncio.gather(producer.flush(), producer.flush(), return_exceptions=True)
            assert [type(error) for error in told] == [OutcomeUnknown, OutcomeUnknown]
            await producer.flush()  # that was told
            await producer.send(b"c")
            flushing = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.wait([flushing])
            with pytest.raises(OutcomeUnknown):
                await producer.close()

    run(story())


def test_a_flush_is_not_told_of_what_is_sent_behind_it() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            held: list[Callable[[], None]] = []
            cluster.primary(1).on_append = hold(held)
            producer = client.log("log").producer(linger=0)
            await producer.send_batch([b"a"])
            first = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            await producer.send_batch([b"b"])
            await until(lambda: len(held) == 2)
            [_, behind] = producer._open
            behind.fail(NoSpace("no room for that"))
            held[0]()
            await first
            with pytest.raises(NoSpace):
                await producer.flush()
            producer.abort()

    run(story())
