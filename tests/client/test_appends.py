"""Appends: how they travel, and how each of them ends, whatever the stream does."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.scripted import PATIENCE_S, Node, fail_with, run, scripted
from tests.servers import servers

from varlog import Ack, Log, connect
from varlog.base.errors import (
    InvalidArgument,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Sealed,
    Timeout,
    TooLarge,
    Unavailable,
    Unsupported,
)
from varlog.base.ids import ProducerToken
from varlog.client import writer
from varlog.client.limits import REFUSED_SECONDS
from varlog.transport.peer import Request
from varlog.wire.batch import BatchHeader

SENT_S = 0.5
"""Within so long an append is sent, however slow the machine; when it is not answered either, it is given up."""


def hold(held: list[Callable[[], None]]) -> Callable[[Node, Request, BatchHeader], bool]:
    """Take appends, and answer them only when told."""

    def script(node: Node, request: Request, header: BatchHeader) -> bool:
        reply = node.store(request, header)
        held.append(lambda: request.reply(reply))
        return True

    return script


def ignore(_: Node, __: Request, ___: BatchHeader) -> bool:
    """Never answer, never take."""
    return True


def take_silently(node: Node, request: Request, header: BatchHeader) -> bool:
    """Take it, and never answer."""
    node.store(request, header)
    return True


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def test_appends_of_one_turn_travel_as_one_batch_and_each_has_its_own_ack() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            acks = await asyncio.gather(
                log.append(b"a"), log.append_batch([b"b", b"c"], key=b"k"), log.append(b"d", headers={"h": b"v"})
            )
            assert [header.count for header in cluster.primary(1).appends] == [1, 4]
            assert [(ack.first, ack.last) for ack in acks] == [(2, 2), (3, 4), (5, 5)]
            assert cluster.payloads() == [b"first", b"a", b"b", b"c", b"d"]
            entries = [entry async for entry in log.subscribe(stop=6)]
            assert [entry.key for entry in entries] == [None, None, b"k", b"k", None]
            assert [entry.headers for entry in entries] == [{}, {}, {}, {}, {"h": b"v"}]

    run(story())


def test_appends_gather_while_the_pipeline_is_full() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            held: list[Callable[[], None]] = []
            node = cluster.primary(1)
            node.on_append = hold(held)
            tasks = []
            for number in range(20):
                tasks.append(asyncio.ensure_future(log.append(b"%d" % number)))
                await until(lambda number=number: len(node.appends) > min(number + 1, 4))  # type: ignore[misc]
            assert [header.count for header in node.appends[1:]] == [1, 1, 1, 1]
            node.on_append = None
            held.pop(0)()
            await until(lambda: len(node.appends) == 6)
            assert node.appends[-1].count == 16
            for answer in held:
                answer()
            assert [ack.first for ack in await asyncio.gather(*tasks)] == list(range(2, 22))

    run(story())


def test_a_gap_is_mended_in_order_and_nothing_is_there_twice() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            node = cluster.primary(1)
            lost = [2]

            def lose_one(_: Node, __: Request, header: BatchHeader) -> bool:
                if header.sequence in lost:
                    lost.remove(header.sequence)
                    return True
                return False

            node.on_append = lose_one
            tasks = []
            for number in range(4):
                tasks.append(asyncio.ensure_future(log.append(b"%d" % number)))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            acks = await asyncio.gather(*tasks)
            assert cluster.payloads() == [b"first", b"0", b"1", b"2", b"3"]
            assert [ack.first for ack in acks] == [2, 3, 4, 5]

    run(story())


def test_an_overloaded_stream_is_given_time() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            cluster.primary(1).on_append = fail_with(Overloaded("busy", 10), 3)
            ack = await client.log("log").append(b"x")
            assert ack == Ack(1, 1, 1)  # type: ignore[arg-type]
            assert len(cluster.primary(1).appends) == 4
            assert {header.sequence for header in cluster.primary(1).appends} == {0}

    run(story())


def test_a_lost_connection_sends_the_same_bytes_again() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            node = cluster.primary(1)
            node.on_append = take_silently
            task = asyncio.ensure_future(log.append(b"second"))
            await until(lambda: len(node.appends) == 2)
            node.on_append = None
            await node.restart()
            assert (await task).first == 2
            assert cluster.payloads() == [b"first", b"second"]
            assert len({(header.producer, header.sequence) for header in node.appends[1:]}) == 1
            assert len({header.crc for header in node.appends[1:]}) == 1

    run(story())


def test_what_was_sent_and_not_answered_is_of_unknown_outcome_and_can_be_settled() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            node = cluster.primary(1)
            for script, there in ((take_silently, True), (ignore, False)):
                node.on_append = script
                before = len(cluster.payloads())
                outcomes = await asyncio.gather(
                    log.append(b"a", timeout=SENT_S),
                    log.append_batch([b"b", b"c"], timeout=SENT_S),
                    return_exceptions=True,
                )
                assert len(cluster.payloads()) == before + 3 * there
                tokens = []
                for outcome in outcomes:
                    assert isinstance(outcome, OutcomeUnknown)
                    assert isinstance(outcome.token, ProducerToken)
                    assert not outcome.outcome_known
                    tokens.append(outcome.token)
                node.on_append = None
                second, first = await asyncio.gather(log.retry(tokens[1]), log.retry(tokens[0]))
                assert (first.first, second.first, second.last) == (before + 1, before + 2, before + 3)
                assert cluster.payloads() == [b"a", b"b", b"c"] * (1 if there else 2)
                assert await log.retry(tokens[0]) == first

    run(story())


def test_a_batch_whose_token_was_given_out_never_goes_on_under_another_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its entries could get there twice: by the client, and by who has the token."""
    monkeypatch.setattr("varlog.client.writer.FIRST_ANSWER_SECONDS", PATIENCE_S)  # nothing is sent again by itself

    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            await asyncio.gather(log.append(b"first", stream=1), log.append(b"second", stream=2))
            requests: list[Request] = []

            def collect(_: Node, request: Request, __: BatchHeader) -> bool:
                requests.append(request)
                return True

            for node in cluster.nodes:
                node.on_append = collect
            short = asyncio.ensure_future(log.append(b"a", timeout=SENT_S))
            long = asyncio.ensure_future(log.append(b"b", timeout=PATIENCE_S))
            with pytest.raises(OutcomeUnknown) as unknown:
                await short
            with pytest.raises(OutcomeUnknown) as still:
                await log.retry(unknown.value.token, timeout=SENT_S)
            for node in cluster.nodes:
                node.on_append = None
            for request in requests:
                request.fail(NoSpace("full"))
            with pytest.raises(OutcomeUnknown) as other:
                await long
            assert cluster.payloads()[2:] == []
            acks = [await log.retry(error.value.token) for error in (still, other)]
            assert [ack.first for ack in acks] == [3, 4]
            assert cluster.payloads()[2:] == [b"a", b"b"]

    run(story())


def test_a_token_settles_its_send_in_another_process_too() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            cluster.primary(1).on_append = ignore
            with pytest.raises(OutcomeUnknown) as unknown:
                await client.log("log").append(b"x", timeout=SENT_S)
            cluster.primary(1).on_append = None
            from varlog import connect

            await client.close()
            async with connect(cluster.url) as other:
                ack = await other.log("log").retry(unknown.value.token)
                assert await other.log("log").retry(unknown.value.token) == ack
            assert cluster.payloads() == [b"x"]

    run(story())


def test_a_wrong_token_is_refused() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            for token in (None, b"x", ProducerToken(b"", 0, 1)):  # type: ignore[arg-type]
                with pytest.raises(Exception, match=r"token|batch") as refused:
                    await client.log("log").retry(token)
                assert type(refused.value).__name__ in ("InvalidArgument", "Corrupt")

    run(story())


def test_what_was_never_sent_is_known_not_to_be_there() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.info()
            await cluster.primary(1).stop()
            with pytest.raises(Timeout) as late:
                await log.append(b"x", timeout=0.2)
            assert late.value.outcome_known
            await cluster.primary(1).start(cluster.primary(1).address)
            await log.append(b"y")
            assert cluster.payloads() == [b"y"]

    run(story())


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_of_a_stream_that_has_ended_each_member_is_asked_in_turn(batches: int) -> None:
    """However many batches were on their way: one member that knows nothing is left for the next."""

    async def story() -> None:
        async with scripted(nodes=3, replicas=3) as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            held: list[Callable[[], None]] = []
            cluster.nodes[0].on_append = hold(held)
            cluster.nodes[1].on_append = fail_with(NotFound("it has no such replica"), 1000)
            waiting = []
            for number in range(batches):
                waiting.append(asyncio.ensure_future(log.append(b"%d" % number)))
                await until(lambda number=number: len(held) > number)  # type: ignore[misc]
            cluster.info.sealed = True
            cluster.change()
            assert [ack.first for ack in await asyncio.gather(*waiting)] == list(range(2, batches + 2))
            assert len(cluster.nodes[0].appends) == batches + 1, "the primary would have come last"

    run(story())


def test_of_a_stream_that_has_ended_and_lost_a_member_those_left_are_asked() -> None:
    """Both are heard of at once: its primary was removed by force."""

    async def story() -> None:
        async with scripted(nodes=2, replicas=2) as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            held: list[Callable[[], None]] = []
            cluster.nodes[0].on_append = hold(held)
            waiting = asyncio.ensure_future(log.append(b"second"))
            await until(lambda: bool(held))
            cluster.stream(1).members = [2]
            cluster.info.sealed = True
            cluster.change()
            assert (await waiting).first == 2

    run(story())


def test_a_primary_that_stands_still_holds_up_nothing_once_its_stream_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others do not know the end yet when they are asked first, and it is asked again itself meanwhile."""
    monkeypatch.setattr(writer, "FIRST_ANSWER_SECONDS", 600.0)

    async def story() -> None:
        async with scripted(nodes=3, replicas=3) as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            cluster.nodes[0].on_append = take_silently
            for node in cluster.nodes[1:]:
                node.on_append = fail_with(Unavailable("where it ends is not known here yet"), 2)
            waiting = asyncio.ensure_future(log.append(b"second", timeout=300.0))
            await until(lambda: len(cluster.nodes[0].appends) == 2)
            cluster.info.sealed = True
            cluster.change()
            assert (await waiting).first == 2

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "sequencer"])
def test_an_append_to_a_log_that_is_removed_is_of_unknown_outcome_and_given_up(ordering: str, tmp_path: Path) -> None:
    """Nothing of it comes into a log that is made anew under the same name."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=2, lost_ms=60_000) as made,
            connect(f"varlog://{made.repository_address}") as client,
        ):
            log = await client.create_log("orders", replicas=2, ordering=ordering)
            await log.append(b"first")
            await made.stop_node((await log.info()).chain[0].streams[0].members[1])
            waiting = asyncio.ensure_future(log.append(b"second", timeout=60.0))
            await asyncio.sleep(0.1)
            await client.remove_log("orders")
            with pytest.raises(OutcomeUnknown, match="the log was removed"):
                await waiting
            again = await client.create_log("orders", replicas=1, ordering=ordering)
            assert (await again.append(b"third")).first == 1
            assert [entry.payload async for entry in again.subscribe(1, wait=False)] == [b"third"]

    run(story())


def test_a_cancelled_append_leaves_the_others_of_its_batch_alone() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            held: list[Callable[[], None]] = []
            cluster.primary(1).on_append = hold(held)
            one, two = asyncio.ensure_future(log.append(b"a")), asyncio.ensure_future(log.append(b"b"))
            await until(lambda: bool(held))
            one.cancel()
            held[0]()
            assert (await two).first == 3
            assert one.cancelled()
            unsent = asyncio.ensure_future(log.append(b"c"))
            await asyncio.sleep(0)
            unsent.cancel()
            cluster.primary(1).on_append = None
            await log.append(b"d")
            assert cluster.payloads() == [b"first", b"a", b"b", b"d"]

    run(story())


def test_a_refused_append_is_refused_and_leaves_no_hole() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            cluster.primary(1).on_append = fail_with(NoSpace("the volume is full"), 1)
            with pytest.raises(NoSpace, match="full"):
                await log.append(b"refused")
            await asyncio.sleep(REFUSED_SECONDS + 0.1)  # a timer may ring a little early
            acks = await asyncio.gather(*(log.append(b"%d" % number) for number in range(3)))
            assert [ack.first for ack in acks] == [2, 3, 4]
            assert cluster.payloads() == [b"first", b"0", b"1", b"2"]
            refused, later = cluster.primary(1).appends[1:3]
            assert refused.producer != later.producer
            assert later.sequence == 0

    run(story())


def test_batches_behind_a_refused_one_go_on_under_another_name() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            await log.append(b"first", stream=1)
            node = cluster.primary(1)
            requests: list[tuple[Request, BatchHeader]] = []

            def collect(_: Node, request: Request, header: BatchHeader) -> bool:
                requests.append((request, header))
                return len(requests) <= 3

            node.on_append = collect
            tasks = []
            for number in range(3):
                tasks.append(asyncio.ensure_future(log.append(b"%d" % number, stream=1)))
                await until(lambda number=number: len(requests) > number)  # type: ignore[misc]
            node.on_append = None
            for request, header in requests[1:]:
                with pytest.raises(Exception, match="expected 1"):
                    node.store(request, header)
            requests[0][0].fail(NoSpace("full"))
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, NoSpace) for outcome in outcomes)
            assert cluster.payloads() == [b"first"]

    run(story())


@pytest.mark.parametrize("refusing", [1, 2])
def test_an_append_moves_on_when_its_stream_refuses_it(refusing: int) -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            node = cluster.primary(refusing)
            await asyncio.gather(log.append(b"warm", stream=1), log.append(b"warm", stream=2))
            node.on_append = fail_with(NoSpace("full"), 1)
            acks = []
            while len(node.appends) < 2:
                acks.append(await log.append(b"x"))
            node.on_append = None
            assert acks[-1].stream != refusing
            assert cluster.payloads() == [b"warm"] * 2 + [b"x"] * len(acks)

    run(story())


def test_a_sealed_log_says_where_it_ends() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            await log.append_batch([b"a", b"b"])
            for node in cluster.nodes:
                node.on_append = fail_with(Sealed("sealed", 99), 100)
            cluster.info.sealed = True  # nobody who watches has been told
            with pytest.raises(Sealed) as sealed:
                await log.append(b"x")
            assert sealed.value.end == 3
            arrived = sum(len(node.appends) for node in cluster.nodes)
            with pytest.raises(Sealed):
                await log.append(b"x")
            assert sum(len(node.appends) for node in cluster.nodes) == arrived

    run(story())


def test_a_stalled_stream_gets_no_new_appends_until_it_answers() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            await asyncio.gather(log.append(b"warm", stream=1), log.append(b"warm", stream=2))
            stalled = cluster.primary(1)
            stalled.on_append = ignore
            waiting = asyncio.ensure_future(log.append(b"waits", stream=1, timeout=30))
            await until(lambda: len(stalled.appends) >= 3)  # sent again: nobody answers
            arrived = len({(header.producer, header.sequence) for header in stalled.appends})
            acks = [await log.append(b"x") for _ in range(20)]
            assert {ack.stream for ack in acks} == {2}
            assert len({(header.producer, header.sequence) for header in stalled.appends}) == arrived
            stalled.on_append = None
            assert (await waiting).stream == 1
            acks = [await log.append(b"x") for _ in range(40)]
            assert {ack.stream for ack in acks} == {1, 2}

    run(story())


def test_streams_are_chosen_at_random_or_by_name() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=3) as (_, client):
            log = client.log("log")
            await asyncio.gather(*(log.append(b"warm", stream=number) for number in (1, 2, 3)))
            assert {(await log.append(b"x")).stream for _ in range(60)} == {1, 2, 3}
            assert {(await log.append(b"x", stream=2)).stream for _ in range(5)} == {2}
            with pytest.raises(NotFound, match="no stream 9"):
                await log.append(b"x", stream=9)

    run(story())


def test_a_producer_that_the_stream_forgot_goes_on() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            for _ in range(3):
                await log.append(b"x")
            cluster.stream(1).taken.clear()
            await log.append(b"y")
            assert cluster.payloads() == [b"x", b"x", b"x", b"y"]

    run(story())


def test_waiting_appends_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlog.client.appender.APPEND_BYTES", 4000)

    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            held: list[Callable[[], None]] = []
            cluster.primary(1).on_append = hold(held)
            tasks = [asyncio.ensure_future(log.append(bytes(872))) for _ in range(10)]
            await until(lambda: bool(held))
            assert sum(header.count for header in cluster.primary(1).appends) == 4
            with pytest.raises(Timeout, match="not done"):
                await log.append(b"x", timeout=0.05)
            cluster.primary(1).on_append = None
            held[0]()
            assert len(await asyncio.gather(*tasks)) == 10
            assert (await log.append(bytes(100_000))).first == 11

    run(story())


def test_unhappy_arguments() -> None:
    async def story() -> None:
        async with scripted() as (_, client):
            log = client.log("log")
            with pytest.raises(Unsupported) as unsupported:
                await log.append(b"x", expect=1)
            assert unsupported.value.capability == "conditional_append"
            with pytest.raises(NotFound):
                await client.log("other").append(b"x")
            with pytest.raises(InvalidArgument):
                await log.append_batch([])
            with pytest.raises(InvalidArgument):
                await log.append("text")  # type: ignore[arg-type]
            wrong: list[Any] = ["1", 1.0, True, []]
            for stream in wrong:
                with pytest.raises(InvalidArgument, match="number of a log stream"):
                    await log.append(b"x", stream=stream)

    run(story())


def test_closing_ends_every_wait() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"first")
            cluster.primary(1).on_append = ignore
            sent = [asyncio.ensure_future(log.append(b"x")) for _ in range(2)]
            await until(lambda: len(cluster.primary(1).appends) == 2)
            unsent = asyncio.ensure_future(log.append(b"y", stream=1))
            await asyncio.sleep(0)
            await client.close()
            assert isinstance((await asyncio.gather(*sent, return_exceptions=True))[0], OutcomeUnknown)
            with pytest.raises(Unavailable):
                await unsent
            with pytest.raises(Unavailable, match="closed"):
                await log.append(b"z")
            with pytest.raises(Unavailable, match="not connected"):
                client.log("log")

    run(story())


def test_large_batches_travel_alone_and_are_judged_before_they_are_sent() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log: Log = client.log("log")
            large = [bytes(1 << 20)] * 15
            many = [bytes(8)] * 200_000
            await asyncio.gather(log.append(b"a"), log.append_batch(large), log.append_batch(many), log.append(b"b"))
            assert sorted(header.count for header in cluster.primary(1).appends) == [1, 1, 15, 200_000]
            with pytest.raises(TooLarge, match="batch of"):
                await log.append_batch([bytes(8)] * 1_000_000 + [bytes(6 << 20)])  # too large by its offsets alone

    run(story())


def test_very_many_appends_are_shared_among_streams_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlog.client.appender.SHARE_APPENDS", 10)

    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (cluster, client):
            log = client.log("log")
            await asyncio.gather(log.append(b"first", stream=1), log.append(b"second", stream=2))
            for node in cluster.nodes:
                node.appends.clear()
            for waiting, batches in ((10, [10]), (15, [10, 5]), (41, [21, 20])):
                acks = await asyncio.gather(*(log.append(b"%d" % number) for number in range(waiting)))
                assert len({ack.glsn for ack in acks}) == waiting
                counts = [header.count for node in cluster.nodes for header in node.appends]
                assert sorted(counts, reverse=True) == batches
                for node in cluster.nodes:
                    node.appends.clear()

    run(story())
