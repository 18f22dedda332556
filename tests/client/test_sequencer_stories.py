"""The stories of the `sequencer` design, told step by step on real nodes and a real repository in one process.

A client that dies half-way is played in the raw protocol: it does its first steps, and no more. A client that is
slow is a real one whose stores are held back. Nobody watches the log here, so clients learn of a new segment as the
design has it: by being refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.repository.test_sequencer import create, roll, write
from tests.servers import TIMEOUT_S, Servers, batch, read_parts, run, servers
from tests.soon import soon

import varlog
from varlog.base.errors import Conflict, Corrupt, InvalidArgument, Junk, OutcomeUnknown, Timeout, Unsupported
from varlog.base.ids import Slot
from varlog.client import chain
from varlog.client.chain import Chain
from varlog.client.limits import FILL_SECONDS, STORE_SECONDS
from varlog.client.routes import Routes
from varlog.wire.batch import junk_batch
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

FILL_S = 0.1
"""Holes are filled after so long here."""
NEVER_MS = 60_000
COMPLETING = "complete what is half written"
"""The name of a subscription's task."""


@pytest.fixture(autouse=True)
def nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routes, "_start_watch", lambda self: None)
    monkeypatch.setattr(chain, "FILL_SECONDS", FILL_S)


class Brake:
    """Holds back stores of batches that have a word in them, at and behind a place in the chain, until released."""

    def __init__(self) -> None:
        self.word = b"slow"
        self.place = 0
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


@pytest.fixture
def brake(monkeypatch: pytest.MonkeyPatch) -> Brake:
    plain = Chain._store
    made = Brake()

    async def store(self: Chain, place: int, slot: Slot, body: list[Buffer]) -> pb.ReplicaStatus:
        if place >= made.place and any(made.word in bytes(each) for each in body):
            made.reached.set()
            await made.released.wait()
        return await plain(self, place, slot, body)

    monkeypatch.setattr(Chain, "_store", store)
    return made


@asynccontextmanager
async def two_clients(cluster: Servers) -> AsyncIterator[tuple[varlog.Log, varlog.Log]]:
    address = f"varlog://{cluster.repository_address}"
    async with varlog.connect(address) as one, varlog.connect(address) as two:
        yield one.log("orders"), two.log("orders")


async def grant(cluster: Servers, log: pb.LogInfo, count: int = 1) -> int:
    stream = log.chain[0].streams[0]
    peer = await cluster.to_node(stream.members[0])
    request = pb.GrantRequest(log=log.id, segment=1, stream=stream.id, count=count, base=1)
    first = (await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)).message.first
    assert isinstance(first, int)
    return first


async def held_by(cluster: Servers, log: pb.LogInfo, node: int) -> list[bytes]:
    """The batches that a node has of the first stream, in the log or not."""
    parts = await read_parts(await cluster.to_node(node), log, slot=0, stored=True)
    return [bytes(each) for part in parts for each in batches_in(part.body)]


async def everywhere(cluster: Servers, log: pb.LogInfo, *batches: bytes) -> None:
    for node in log.chain[0].streams[0].members:
        assert await held_by(cluster, log, node) == list(batches)


async def entries(log: varlog.Log) -> list[tuple[int, bytes]]:
    return [(entry.glsn, entry.payload) async for entry in log.subscribe(1, wait=False)]


def known_segments(log: varlog.Log) -> int:
    info = log._context.routes.info
    assert info is not None
    return len(info.chain)


def room_used(log: varlog.Log) -> int:
    """Bytes of appends that are kept."""
    return log._appender._room.used


# ---------------------------------------------------------------- a failed node, and those who know nothing of it


@pytest.mark.parametrize("place", [0, 1])
def test_an_append_meets_a_failed_node_and_a_reader_learns_of_it_later(tmp_path: Path, place: int) -> None:
    """The node is the sequencer and head of the chain, or its last member. No caller sees an error."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=100) as cluster:
            log = await create(cluster, streams=1)
            failed = log.chain[0].streams[0].members[place]
            async with two_clients(cluster) as (writer, reader):
                assert (await writer.append(b"before")).glsn == 1
                assert (await reader.read(1)).payload == b"before"
                await cluster.stop_node(failed)
                assert (await writer.append(b"unseen")).glsn == 2
                info = await writer.info()
                assert len(info.chain) >= 2
                assert failed not in info.chain[-1].streams[0].members
                assert known_segments(reader) == 1, "it has heard nothing"
                assert (await reader.read(2)).payload == b"unseen"
                assert (await reader.append(b"after")).glsn == 3
                assert await entries(writer) == [(1, b"before"), (2, b"unseen"), (3, b"after")]

    run(story())


def test_a_stale_writer_is_refused_and_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, streams=2, unit=4)
            async with two_clients(cluster) as (writer, other):
                assert (await writer.append(b"a")).glsn == 1
                await other.reconfigure(roll=True)
                assert known_segments(writer) == 1
                acks = await asyncio.gather(*(writer.append_batch([b"b", b"c"]) for _ in range(3)))
                assert known_segments(writer) == 2
                assert len({ack.first for ack in acks}) == 3
                assert [payload for _, payload in await entries(other)] == [b"a"] + [b"b", b"c"] * 3

    run(story())


def test_a_stale_tail_is_none(tmp_path: Path) -> None:
    """Who asks an old sequencer hears that its segment is over (I10)."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, streams=1)
            async with two_clients(cluster) as (writer, reader):
                await writer.append(b"a")
                assert await reader.tail() == 1
                await writer.reconfigure(roll=True)
                await writer.append(b"b")
                assert known_segments(reader) == 1
                assert await reader.tail() == 2

    run(story())


# ---------------------------------------------------------------- half-written chains


async def read_first(log: varlog.Log) -> None:
    assert (await log.read(1)).payload == b"1"


async def ask_tail(log: varlog.Log) -> None:
    assert await log.tail() == 1


async def subscribe(log: varlog.Log) -> None:
    assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [b"1"]


async def append_behind(log: varlog.Log) -> None:
    assert (await log.append(b"2")).glsn == 2


def test_a_member_that_stands_still_holds_up_no_writer_once_the_segment_has_ended(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            await create(cluster, streams=1)
            async with two_clients(cluster) as (log, _):
                slow = asyncio.ensure_future(log.append(b"slow"))
                await brake.reached.wait()
                await roll(cluster)
                brake.word = b"nothing is slow any more"  # but what was, goes on being so
                await log.info()
                assert (await slow).glsn == 1
                assert [entry.payload async for entry in log.subscribe(stop=2)] == [b"slow"]

    run(story())


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("need", [read_first, ask_tail, subscribe, append_behind])
def test_whoever_finds_a_chain_half_written_completes_it(
    tmp_path: Path, members: int, need: Callable[[varlog.Log], Awaitable[None]]
) -> None:
    """The writer died after the head, or before the last member. Its entry is in the log, on all of them."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            assert await grant(cluster, log) == 1
            await write(cluster, log, 1, members=members)
            async with two_clients(cluster) as (reader, _):
                await need(reader)
                there = await asyncio.gather(*(held_by(cluster, log, node) for node in log.chain[0].streams[0].members))
                assert [held[0] for held in there] == [batch(b"1", sequence=1)] * 3
                assert (await entries(reader))[0] == (1, b"1")

    run(story())


def test_nobody_is_shown_what_the_last_member_lacks(tmp_path: Path) -> None:
    """Until it is completed it may yet be lost with its segment."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            assert await grant(cluster, log) == 1
            await write(cluster, log, 1, members=2)
            for node in log.chain[0].streams[0].members:
                (part,) = await read_parts(await cluster.to_node(node), log, slot=0)
                assert len(part.body) == 0

    run(story())


def test_members_before_the_last_hear_what_it_has_though_nothing_follows(tmp_path: Path) -> None:
    """The last one may be away when somebody reads."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            async with two_clients(cluster) as (writer, _):
                await writer.append(b"a")
                for node in log.chain[0].streams[0].members:
                    peer = await cluster.to_node(node)
                    while not len((await read_parts(peer, log, slot=0))[0].body):
                        await asyncio.sleep(0.005)

    run(story())


def test_a_subscription_that_is_closed_sees_to_nothing_any_more(tmp_path: Path) -> None:
    """What it tried to complete on a member that is away is tried no more when nobody reads."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=1, streams=2)
            assert [await grant(cluster, log), await grant(cluster, log)] == [1, 2]
            await write(cluster, log, 2)
            await cluster.stop_node(log.chain[0].streams[0].members[0])
            async with two_clients(cluster) as (reader, _):
                async with reader.subscribe(1) as subscription:
                    waiting = asyncio.ensure_future(anext(subscription))
                    while not tasks(COMPLETING):
                        await asyncio.sleep(0.01)
                with pytest.raises(StopAsyncIteration):
                    await waiting
                await soon()
                assert not tasks(COMPLETING)

    run(story())


def test_a_segment_that_ends_while_a_gap_is_mended_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer hears it from the member that it asks how far it is: the caller sees none of it."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            assert await grant(cluster, log) == 1

            async def overdue(self: Chain, missing: Slot) -> bool:
                await roll(cluster)
                return True

            monkeypatch.setattr(Chain, "_is_overdue", overdue)
            async with two_clients(cluster) as (writer, reader):
                ack = await writer.append(b"goes on")
                assert await entries(reader) == [(ack.glsn, b"goes on")]

    run(story())


@pytest.mark.parametrize("need", [ask_tail, append_behind])
def test_what_has_rotted_before_others_got_it_is_nobodys_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Callable[[varlog.Log], Awaitable[None]]
) -> None:
    """It was never acknowledged: who needs what lies behind it waits until the member works, or the segment ends."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            assert await grant(cluster, log) == 1
            await write(cluster, log, 1, members=1)
            plain, refusals = Chain._copy, [0, 0]

            async def copy(self: Chain, place: int, start: Slot, end: Slot) -> None:
                if refusals:
                    refusals.pop()
                    raise Corrupt("a batch does not match its checksum", start)
                await plain(self, place, start, end)

            monkeypatch.setattr(Chain, "_copy", copy)
            async with two_clients(cluster) as (one, _):
                await need(one)
            assert not refusals

    run(story())


def tasks(name: str) -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


# ---------------------------------------------------------------- holes


def test_a_position_that_nobody_wrote_is_filled(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            assert await grant(cluster, log) == 1
            async with two_clients(cluster) as (reader, writer):
                with pytest.raises(Junk) as junk:
                    await reader.read(1)
                assert junk.value.glsn == 1
                await everywhere(cluster, log, junk_batch(1))
                assert await grant(cluster, log, 2) == 2
                assert await writer.tail() == 3
                await everywhere(cluster, log, junk_batch(1), junk_batch(2))
                assert (await writer.append(b"goes on")).glsn == 4
                assert await entries(reader) == [(4, b"goes on")]

    run(story())


def test_a_writer_that_waits_behind_a_hole_fills_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            async with two_clients(cluster) as (reader, writer):
                assert (await writer.append(b"a")).glsn == 1
                assert await grant(cluster, log, 3) == 2
                assert (await writer.append(b"b")).glsn == 5
                assert await entries(reader) == [(1, b"a"), (5, b"b")]

    run(story())


def test_a_writer_that_was_too_slow_gets_another_place_once(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=3, streams=1)
            async with two_clients(cluster) as (writer, reader):
                appending = asyncio.create_task(writer.append(b"slow"))
                await brake.reached.wait()
                with pytest.raises(Junk):
                    await reader.read(1)
                brake.released.set()
                assert (await appending).glsn == 2
                assert await entries(reader) == [(2, b"slow")]

    run(story())


def test_a_writer_that_was_slow_behind_the_head_keeps_its_place(tmp_path: Path, brake: Brake) -> None:
    """The head has decided: a reader carries the entry on, and the writer finds that all have it."""

    async def story() -> None:
        brake.place = 1
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            async with two_clients(cluster) as (writer, reader):
                appending = asyncio.create_task(writer.append(b"slow"))
                await brake.reached.wait()
                brake.word = b"only those of the first writer are held back"
                assert (await reader.read(1)).payload == b"slow"
                assert not appending.done()
                brake.released.set()
                assert (await appending).glsn == 1
                assert await entries(reader) == [(1, b"slow")]
                assert len(await held_by(cluster, log, log.chain[0].streams[0].members[2])) == 1

    run(story())


def test_a_writer_whose_place_is_taken_carries_what_is_there_to_the_end(tmp_path: Path, brake: Brake) -> None:
    """It returns only then: the head alone has what is there, and who put it there may be gone."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=3, streams=1)
            async with two_clients(cluster) as (writer, _):
                appending = asyncio.create_task(writer.append(b"slow", expect=1))
                await brake.reached.wait()
                head = await cluster.to_node(log.chain[0].streams[0].members[0])
                request = pb.StoreRequest(log=log.id, segment=1, stream=log.chain[0].streams[0].id, base=1)
                await head.call(Method.STORE, request, [junk_batch(1)], timeout=TIMEOUT_S)
                brake.released.set()
                with pytest.raises(Conflict):
                    await appending
                await everywhere(cluster, log, junk_batch(1))

    run(story())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Slot]]:
    """Which slot of which stream was found missing at the head, as often as somebody looked. None is filled."""
    monkeypatch.setattr(chain, "FILL_SECONDS", TIMEOUT_S)
    plain = Chain._is_overdue
    made: list[tuple[int, Slot]] = []

    async def is_overdue(self: Chain, missing: Slot) -> bool:
        made.append((self.route.index, missing))
        return await plain(self, missing)

    monkeypatch.setattr(Chain, "_is_overdue", is_overdue)
    return made


@pytest.mark.parametrize("rolled", [False, True])
def test_the_first_position_of_a_segment_is_waited_for_as_any_other(
    tmp_path: Path, brake: Brake, looks: list[tuple[int, Slot]], rolled: bool
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            if rolled:
                await roll(cluster)
            async with two_clients(cluster) as (writer, reader):
                appending = asyncio.create_task(writer.append(b"slow", expect=1))
                await brake.reached.wait()
                asking = asyncio.create_task(reader.tail())
                while looks.count((0, Slot(0))) < 3 and not asking.done():
                    await asyncio.sleep(0.001)
                brake.released.set()
                assert (await appending).glsn == 1
                assert await asking == 1

    run(story())


def test_holes_in_several_streams_are_waited_for_at_the_same_time(
    tmp_path: Path, looks: list[tuple[int, Slot]]
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=4)
            for _ in range(4):
                await grant(cluster, log)
            async with two_clients(cluster) as (reader, _):
                asking = asyncio.create_task(reader.tail())
                while len(dict(looks)) < 4 and not asking.done():
                    await asyncio.sleep(0.001)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking

    run(story())


def test_a_hole_is_waited_for_longer_than_its_writer_waits_for_an_answer() -> None:
    """Only so that writers need not go elsewhere: with any patience the head decides, and nothing is lost."""
    assert FILL_SECONDS > STORE_SECONDS


# ---------------------------------------------------------------- conditional appends


def test_of_those_who_expect_the_same_position_one_wins(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=3, streams=2)
            async with two_clients(cluster) as logs:
                won: list[tuple[int, bytes]] = []
                for position in range(1, 6):
                    works = [logs[number % 2].append(b"%d" % number, expect=position) for number in range(6)]
                    results = await asyncio.gather(*works, return_exceptions=True)
                    acks = [(each.glsn, b"%d" % at) for at, each in enumerate(results) if isinstance(each, varlog.Ack)]
                    assert [glsn for glsn, _ in acks] == [position]
                    refused = [each for each in results if isinstance(each, Conflict)]
                    assert [each.tail for each in refused] == [position] * 5
                    won += acks
                assert await entries(logs[0]) == won
                with pytest.raises(Conflict):
                    await logs[0].append(b"too early", expect=7)

    run(story())


def test_a_condition_whose_position_was_given_up_is_not_met(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (writer, reader):
                appending = asyncio.create_task(writer.append(b"slow", expect=1))
                await brake.reached.wait()
                assert await reader.tail() == 1
                brake.released.set()
                with pytest.raises(Conflict):
                    await appending
                assert await entries(reader) == []
                await reader.reconfigure(ordering="cut")
                with pytest.raises(Unsupported):
                    await writer.append(b"x", expect=2)

    run(story())


def test_who_last_heard_of_another_ordering_may_name_a_position(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await cluster.create_log(replicas=2)
            async with two_clients(cluster) as (writer, other):
                assert (await writer.append(b"a")).glsn == 1
                with pytest.raises(Unsupported):
                    await writer.append(b"x", expect=2)
                await other.reconfigure(ordering="sequencer")
                assert known_segments(writer) == 1, "it has heard nothing"
                assert (await writer.append(b"b", expect=2)).glsn == 2

    run(story())


def alone_in_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next append is let in when nothing is kept of those before it."""
    monkeypatch.setattr("varlog.client.appender.APPEND_BYTES", 1)


def test_conditional_appends_that_were_never_sent_take_up_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone_in_the_room(monkeypatch)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            for node in list(cluster.nodes):
                await cluster.stop_node(node)
            async with two_clients(cluster) as (writer, _):
                for payload in (b"small", bytes(2 << 20)):
                    for _ in range(2):
                        with pytest.raises(Timeout, match="not sent in time"):
                            await writer.append(payload, expect=1, timeout=0.2)
                    appending = asyncio.create_task(writer.append(payload, expect=1))
                    while not room_used(writer):
                        await asyncio.sleep(0.005)
                    appending.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await appending
                with pytest.raises(Timeout, match="not sent in time"):
                    await writer.append(b"x", expect=1, timeout=0.2)
                assert room_used(writer) == 0

    run(story())


def test_a_conditional_append_that_comes_back_when_nobody_waits_takes_up_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brake: Brake
) -> None:
    """Its caller was cancelled while it was on its way, then its segment ended."""
    alone_in_the_room(monkeypatch)

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (writer, reader):
                appending = asyncio.create_task(writer.append(b"slow", expect=1))
                await brake.reached.wait()
                appending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await appending
                await roll(cluster)
                brake.released.set()
                assert (await writer.append(b"next", timeout=10.0)).glsn == 1
                with pytest.raises(Conflict):
                    await writer.append(b"x", expect=1)
                assert room_used(writer) == 0, "and nothing is given back twice"
                assert await entries(reader) == [(1, b"next")]

    run(story())


def test_what_waits_behind_a_batch_that_was_given_up_goes_on(tmp_path: Path, brake: Brake) -> None:
    """Its sender was told that nobody knows, then its place was filled: nobody asks for the next one but we."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with (
                two_clients(cluster) as (writer, other),
                writer.producer(linger=0, timeout=2.0) as producer,
            ):
                slow = await producer.send(b"slow")
                await asyncio.sleep(1.0)
                waiting = await producer.send(b"waiting")
                with pytest.raises(OutcomeUnknown):
                    await slow
                assert (await other.append(b"next")).glsn == 2
                brake.released.set()
                assert (await waiting).glsn == 3
                with pytest.raises(OutcomeUnknown):
                    await producer.flush()

    run(story())


# ---------------------------------------------------------------- tokens


def test_the_token_of_a_position_that_was_given_up_says_so(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (writer, other):
                with pytest.raises(OutcomeUnknown) as unknown:
                    await writer.append(b"slow", timeout=1.0)
                for _ in range(2):
                    with pytest.raises(Junk):
                        await other.retry(unknown.value.token)
                brake.released.set()
                assert (await other.append(b"next")).glsn == 2
                assert await entries(other) == [(2, b"next")], "who was told is not moved elsewhere"

    run(story())


def test_the_token_of_a_batch_that_was_given_up_fills_all_of_it(tmp_path: Path, brake: Brake) -> None:
    """What is left of it would be a hole of its own, for which others wait once more."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (writer, other):
                with pytest.raises(OutcomeUnknown) as unknown:
                    await writer.append_batch([b"slow"] * 3, timeout=1.0)
                with pytest.raises(Junk):
                    await other.retry(unknown.value.token)
                await everywhere(cluster, log, junk_batch(3))

    run(story())


@pytest.mark.parametrize("switched", [False, True])
def test_the_token_of_a_half_written_position_gets_its_ack(tmp_path: Path, brake: Brake, switched: bool) -> None:
    async def story() -> None:
        brake.place = 1
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (writer, other):
                with pytest.raises(OutcomeUnknown) as unknown:
                    await writer.append(b"slow", timeout=1.0)
                brake.word = b"only those of the first writer are held back"
                if switched:
                    assert await other.tail() == 1
                    await other.reconfigure(ordering="leader")
                ack = await other.retry(unknown.value.token)
                assert (ack.first, ack.last) == (1, 1)
                brake.released.set()
                assert (await other.retry(unknown.value.token)).first == 1
                assert (await writer.append(b"next")).glsn == 2
                assert await entries(other) == [(1, b"slow"), (2, b"next")]

    run(story())


# ---------------------------------------------------------------- stripes


def test_batches_do_not_go_over_the_edge_of_a_stripe(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=4)
            async with two_clients(cluster) as (writer, reader):
                acks = [
                    await writer.append_batch([b"%d.%d" % (number, each) for each in range(3)]) for number in (1, 2)
                ]
                assert [ack.first for ack in acks] == [1, 5]
                assert acks[0].stream != acks[1].stream
                assert (await writer.append_batch([b"x"] * 4)).first == 9
                with pytest.raises(InvalidArgument, match="stripe"):
                    await writer.append_batch([b"x"] * 5)
                assert [glsn for glsn, _ in await entries(reader)] == [1, 2, 3, 5, 6, 7, 9, 10, 11, 12]
                for glsn in (4, 8):
                    with pytest.raises(Junk):
                        await reader.read(glsn)

    run(story())


def test_a_batch_that_is_expected_where_it_does_not_fit_gets_through_behind_the_edge(tmp_path: Path) -> None:
    """As whoever asks where the log ends, and expects his batch there, cannot know where stripes end."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=4)
            async with two_clients(cluster) as (writer, reader):
                payloads = [b"a", b"b", b"c"]
                assert (await writer.append_batch(payloads, expect=await writer.tail() + 1)).first == 1
                for first in (5, 9):
                    left = await writer.tail() + 1
                    with pytest.raises(Conflict) as refused:
                        await writer.append_batch(payloads, expect=left)
                    assert refused.value.tail == left == first - 1, "one position was left before the edge"
                    assert (await writer.append_batch(payloads, expect=await writer.tail() + 1)).first == first
                found = [(first + at, payload) for first in (1, 5, 9) for at, payload in enumerate(payloads)]
                assert await entries(reader) == found
                for glsn in (4, 8):
                    with pytest.raises(Junk):
                        await reader.read(glsn)

    run(story())


def test_who_is_refused_at_the_edge_fills_what_is_left_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody need wait for it until it is overdue."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=4)
            async with two_clients(cluster) as (writer, reader):
                await writer.append_batch([b"a", b"b"])
                with pytest.raises(Conflict):
                    await writer.append_batch([b"c"] * 3, expect=3)
                assert await reader.tail() == 4

    monkeypatch.setattr(chain, "FILL_SECONDS", 10 * TIMEOUT_S)
    run(story())


def test_many_writers_over_short_stripes_agree(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=3, unit=3)
            async with two_clients(cluster) as logs:
                acked: dict[int, bytes] = {}

                async def work(number: int) -> None:
                    for round_ in range(8):
                        payloads = [b"%d.%d.%d" % (number, round_, each) for each in range(1 + (number + round_) % 3)]
                        ack = await logs[number % 2].append_batch(payloads)
                        acked.update(zip(range(ack.first, ack.last + 1), payloads, strict=True))

                await asyncio.gather(*(work(number) for number in range(6)))
                tail = await logs[0].tail()
                found = await entries(logs[1])
                assert found == sorted(acked.items())
                for glsn in range(1, tail + 1):
                    if glsn not in acked:
                        with pytest.raises(Junk):
                            await logs[0].read(glsn)

    run(story())


def test_a_named_producer_goes_on_after_its_process(tmp_path: Path) -> None:
    """What its earlier life left half written is in the log, and counts."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=2)
            async with two_clients(cluster) as logs:
                for life in range(2):
                    async with logs[life].producer(id="job") as producer:
                        sent = [
                            await producer.send_batch([b"%d" % each], sequence=each) for each in range(3 + 2 * life)
                        ]
                    assert [future.result().first for future in sent] == list(range(1, 4 + 2 * life))
                assert [payload for _, payload in await entries(logs[0])] == [b"%d" % each for each in range(5)]

    run(story())
