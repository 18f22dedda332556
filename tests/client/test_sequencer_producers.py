"""Producers and retries under `sequencer`: what is said of a batch is true, whatever became of it. On real nodes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_sequencer_stories import FILL_S, NEVER_MS, Brake, brake, entries, two_clients
from tests.repository.test_sequencer import create, record, roll
from tests.servers import TIMEOUT_S, Servers, batch, run, servers
from tests.soon import soon

import varlog
from varlog.base.errors import Junk, NoSpace, OutcomeUnknown, ReplicaFailed, Unavailable, VarlogError, WrongWriter
from varlog.base.ids import Epoch, LogId, ProducerToken, Slot, StreamId
from varlog.client import chain, chain_writer, lookup, past, retry
from varlog.client.chain import Chain, Over
from varlog.client.chain_writer import ChainWriter
from varlog.client.chunk import Chunk
from varlog.client.columns import many_entries
from varlog.client.outlet import producer_id
from varlog.node.replica import Replica
from varlog.storage.replica_log import ReplicaLog
from varlog.transport.peer import Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

__all__ = ["brake"]


@pytest.fixture(autouse=True)
def holes_are_filled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "FILL_SECONDS", FILL_S)


# ---------------------------------------------------------------- a named producer, and what is not in the log


def test_a_named_producer_takes_nothing_behind_a_batch_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number would be taken for one that the log has: whoever sends it again would be told that it is there."""
    plain = ReplicaLog.stage_batches

    def stage(self: ReplicaLog, slot: Slot, batches: Any) -> None:
        if any(b"large" in bytes(each) for each, _ in batches):
            raise NoSpace("no room for that")
        plain(self, slot, batches)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, other):
                producer = await log.producer(id="job", linger=0).open()
                assert (await (await producer.send_batch([b"a"], sequence=0))).first == 1
                with monkeypatch.context() as full:
                    full.setattr(ReplicaLog, "stage_batches", stage)
                    large = await producer.send_batch([b"large"], sequence=1)
                    small = await producer.send_batch([b"small"], sequence=2)
                    results = await asyncio.gather(large, small, return_exceptions=True)
                assert isinstance(results[0], VarlogError)
                assert isinstance(results[1], Unavailable), "it would hide the one before it"
                producer.abort()
                async with other.producer(id="job", linger=0) as producer:
                    assert producer.next_sequence == 1
                    await (await producer.send_batch([b"large"], sequence=1))
                    await (await producer.send_batch([b"small"], sequence=2))
                assert [payload for _, payload in await entries(other)] == [b"a", b"large", b"small"]

    run(story())


def test_a_number_that_is_sent_again_while_it_is_on_its_way_is_waited_for(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        brake.place = 1
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, _), log.producer(id="job", linger=0, timeout=0.5) as producer:
                first = await producer.send_batch([b"slow"], sequence=0)
                with pytest.raises(OutcomeUnknown):
                    await first
                again = asyncio.create_task(producer.send_batch([b"slow"], sequence=0))
                await asyncio.sleep(0.1)
                assert not again.done(), "it may yet be written"
                brake.released.set()
                assert (await (await again)).first == 1
                with pytest.raises(OutcomeUnknown):
                    await producer.flush()
                assert await entries(log) == [(1, b"slow")]

    run(story())


def test_a_number_that_stays_undecided_is_of_unknown_outcome(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        brake.place = 1
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, _):
                producer = log.producer(id="job", linger=0, timeout=0.3)
                await producer.open()
                first = await producer.send_batch([b"slow"], sequence=0)
                for sending in (first, producer.send_batch([b"slow"], sequence=0)):
                    with pytest.raises(OutcomeUnknown):
                        await sending
                producer.abort()
                brake.released.set()

    run(story())


@pytest.mark.parametrize("life", ["the same", "another"])
def test_a_number_that_another_stream_has_is_not_said_to_be_given_up(tmp_path: Path, life: str) -> None:
    """Whoever is told so appends it anew, and has it twice. One stream cannot say it: batches lie on all in turns."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=3, unit=1)
            async with two_clients(cluster) as (log, other):
                producer = await log.producer(id="job", linger=0).open()
                acks = []
                for number in range(5):
                    acks.append(await (await producer.send_batch([b"a"], sequence=number)))
                    if acks[-1].last % 3 == 0:
                        await other.append(b"b")  # the first stream has only the first number
                if life == "another":
                    producer.abort()
                    producer = await other.producer(id="job", linger=0).open()
                told = 0
                for number, ack in enumerate(acks):
                    try:
                        assert await (await producer.send_batch([b"a"], sequence=number)) == ack
                        told += 1
                    except OutcomeUnknown:
                        pass  # it is in the log, and where it is nobody remembers
                assert told
                producer.abort()
                assert [glsn for glsn, payload in await entries(log) if payload == b"a"] == [1, 2, 3, 5, 6]

    run(story())


def test_a_named_producer_whose_batch_was_lost_with_its_segment_is_not_told_that_its_log_is_sealed(
    tmp_path: Path, brake: Brake
) -> None:
    """It is to be opened again, as after any batch that is not in the log; the log goes on."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, other):
                producer = await log.producer(id="job", linger=0, timeout=0.3).open()
                with pytest.raises(OutcomeUnknown):
                    await (await producer.send_batch([b"slow"], sequence=0))
                await other.reconfigure(roll=True)
                while producer._outlet.broken is None:
                    await asyncio.sleep(0.01)
                with pytest.raises(Unavailable, match="open it again"):
                    await producer.send_batch([b"next"], sequence=1)
                producer.abort()

    run(story())


def test_numbers_are_kept_where_what_was_sent_one_by_one_makes_several_batches(tmp_path: Path, brake: Brake) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=2)
            async with two_clients(cluster) as (log, other):
                async with log.producer(id="job", linger=1.0) as producer:
                    await producer.send_batch([b"slow"], sequence=0)
                    await brake.reached.wait()
                    for payload in (b"a", b"b", b"c"):
                        await producer.send(payload)
                    assert producer.next_sequence == 3, "a stripe takes two"
                    await producer.send_batch([b"d"], sequence=3)
                    assert producer.next_sequence == 4
                    brake.released.set()
                async with other.producer(id="job", linger=0) as producer:
                    assert producer.next_sequence == 4
                    ack = await (await producer.send_batch([b"d"], sequence=3))
                assert (await other.read(ack.glsn)).payload == b"d"
                assert [payload for _, payload in await entries(other)] == [b"slow", b"a", b"b", b"c", b"d"]

    run(story())


def test_a_number_that_has_gone_to_another_batch_is_refused(tmp_path: Path, brake: Brake) -> None:
    """What waits before it makes more batches in the next segment than in the one for which they were counted."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=2, unit=4)
            async with two_clients(cluster) as (log, other):
                producer = await log.producer(id="job", linger=1.0).open()
                await producer.send_batch([b"slow"], sequence=0)
                await brake.reached.wait()
                singles = [await producer.send(payload) for payload in (b"a", b"b", b"c")]
                numbered = await producer.send_batch([b"d"], sequence=2)
                await other.reconfigure(unit=2)
                brake.released.set()
                with pytest.raises(Unavailable, match="open the producer again"):
                    await numbered
                await asyncio.gather(*singles)
                with pytest.raises(Unavailable):
                    await producer.send_batch([b"d"], sequence=3)
                producer.abort()
                async with other.producer(id="job", linger=0) as producer:
                    assert producer.next_sequence == 3
                    await producer.send_batch([b"d"], sequence=3)
                assert [payload for _, payload in await entries(other)] == [b"slow", b"a", b"b", b"c", b"d"]

    run(story())


# ---------------------------------------------------------------- tokens


def test_a_token_names_no_place_of_a_segment_that_its_batch_has_left() -> None:
    chunk = Chunk(
        lambda *_: None, lambda: 0, many_entries([b"a"], None, None, None), [], 1.0, whole=True, compress=False
    )
    route: Any = object()
    chunk.stamp(b"producer-one-16b", 0)
    chunk.place(route, Slot(7))
    assert chunk.slot == 7
    chunk.stamp(b"producer-two-16b", 0)
    assert chunk.slot is None


def token_for(log: pb.LogInfo, data: bytes, sequence: int, slot: Slot | None) -> ProducerToken:
    stream = log.chain[-1].streams[0]
    return ProducerToken(
        b"producer-one-16b", sequence, StreamId(stream.id), LogId(log.id), Epoch(log.chain[-1].epoch), 0, 1, data, slot
    )


def test_a_place_is_looked_at_only_where_clients_write_them(tmp_path: Path) -> None:
    """A token that was given out under another ordering is asked about as any other: by what its stream knows."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await cluster.create_log(replicas=2)
            async with two_clients(cluster) as (one, _):
                assert (await one.append(b"first")).glsn == 1
                data = batch(b"again")
                ack = await one.retry(token_for(log, data, 0, Slot(0)))
                assert ack.glsn == 2
                assert await entries(one) == [(1, b"first"), (2, b"again")]

    run(story())


def test_what_never_got_a_place_is_not_in_the_log(tmp_path: Path) -> None:
    """Its sender was told before the grant came. What the same producer wrote since says nothing of it."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            log = await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (one, _):
                stream = log.chain[0].streams[0]
                for node in stream.members:
                    request = pb.StoreRequest(log=log.id, segment=1, stream=stream.id, slot=0, base=1)
                    peer = await cluster.to_node(node)
                    await peer.call(Method.STORE, request, [batch(b"later", sequence=5)], timeout=TIMEOUT_S)
                with pytest.raises(Junk):
                    await one.retry(token_for(log, batch(b"never", sequence=3), 3, None))

    run(story())


def test_what_was_granted_a_place_after_its_sender_was_told_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His token says that it got none: by then it may have been appended anew. Nobody waits for the place."""
    plain, released = ChainWriter._ask, asyncio.Event()

    async def ask_late(self: ChainWriter, request: pb.GrantRequest) -> Reply:
        reply = await plain(self, request)
        await released.wait()
        return reply

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, other):
                with monkeypatch.context() as slow:
                    slow.setattr(ChainWriter, "_ask", ask_late)
                    with pytest.raises(OutcomeUnknown) as unknown:
                        await log.append(b"late", timeout=0.3)
                    released.set()
                    with pytest.raises(Junk):
                        await other.retry(unknown.value.token)
                monkeypatch.setattr(chain, "FILL_SECONDS", 10 * TIMEOUT_S)
                assert (await other.append(b"anew")).glsn == 2
                assert await entries(other) == [(2, b"anew")]

    run(story())


def test_a_member_that_has_failed_is_not_the_last_word_on_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=1)
            data = batch(b"there")
            stream = log.chain[0].streams[0]
            for node in stream.members:
                request = pb.StoreRequest(log=log.id, segment=1, stream=stream.id, slot=0, base=1)
                await (await cluster.to_node(node)).call(Method.STORE, request, [data], timeout=TIMEOUT_S)
            plain, troubles = lookup.header_at, [ReplicaFailed("it has stopped"), NoSpace("unheard of")]

            async def header_at(*arguments: Any) -> Any:
                if troubles:
                    raise troubles.pop(0)
                return await plain(*arguments)

            monkeypatch.setattr(retry, "header_at", header_at)
            async with two_clients(cluster) as (one, _):
                token = token_for(log, data, 0, Slot(0))
                with pytest.raises(OutcomeUnknown) as unknown:
                    await one.retry(token)  # the second error says nothing that we know the meaning of
                assert unknown.value.token == token
                assert (await one.retry(token)).glsn == 1

    run(story())


# ---------------------------------------------------------------- members that cannot tell


async def ask(cluster: Servers, log: pb.LogInfo, node: int) -> int:
    request = pb.ProducerRequest(log=log.id, segment=1, stream=1, producer=b"producer-one-16b")
    reply = (await (await cluster.to_node(node)).call(Method.PRODUCER, request, timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.ProducerReply)
    return reply.next_sequence


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("how", ["sealed", "failed"])
def test_a_member_that_is_not_settled_says_nothing_of_a_batch_that_it_lacks(
    tmp_path: Path, how: str, known: bool
) -> None:
    """Whether or not it was asked before: who asks is to ask again, and not to hear that there is no such stream."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=1)
            last = log.chain[0].streams[0].members[-1]
            if known:
                await ask(cluster, log, last)
            await cluster.stop_repository()  # or it would see to the member
            [replica] = cluster.nodes[last].replicas.all()
            if how == "sealed":
                await replica.seal()
            else:
                replica.fail(NoSpace("a sync failed"))
            request = pb.AppendRequest(log=log.id, segment=1, stream=1)
            peer = await cluster.to_node(last)
            with pytest.raises(Unavailable):
                await peer.call(Method.APPEND, request, [batch(b"a")], timeout=TIMEOUT_S)
            with pytest.raises(Unavailable):
                await ask(cluster, log, last)
            await cluster.start_repository()

    run(story())


def test_a_member_that_has_not_heard_that_its_segment_ended_says_nothing_of_a_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silent when the others were sealed, and lacks what only they have: that is in the log all the same."""
    answers, asked = asyncio.Event(), asyncio.Event()
    plain_seal, plain_ask = Replica.seal, past._ask

    async def ask_once(*arguments: Any) -> pb.ProducerReply:
        try:
            return await plain_ask(*arguments)
        finally:
            asked.set()

    monkeypatch.setattr(past, "_ask", ask_once)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=1)
            stream = log.chain[0].streams[0]
            (last,) = cluster.nodes[stream.members[1]].replicas.all()

            async def seal(self: Replica) -> None:
                if self is last and not answers.is_set():
                    raise Unavailable("it does not answer")
                await plain_seal(self)

            monkeypatch.setattr(Replica, "seal", seal)
            head = await cluster.to_node(stream.members[0])
            request = pb.StoreRequest(log=log.id, segment=1, stream=stream.id, slot=0, base=1)
            data = batch(b"there", producer=producer_id("job"))
            await head.call(Method.STORE, request, [data], timeout=TIMEOUT_S)
            assert (await roll(cluster)).end == 2
            async with two_clients(cluster) as (one, _):
                opening = asyncio.create_task(one.producer(id="job", timeout=TIMEOUT_S).open())
                await asked.wait()
                answers.set()
                job = await opening
                assert job.next_sequence == 1
                await job.close()
                assert await entries(one) == [(1, b"there")]

    run(story())


def test_a_batch_for_a_log_that_was_made_anew_is_not_carried_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, _):
                await log.append(b"a")
                routes = log._context.routes
                old = Chain(log._context, routes.streams[0], routes.stripes(routes.streams[0]))
                await roll(cluster)
                async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                    await client.remove_log("orders")
                await create(cluster, replicas=2, streams=1)
                routes.adopt(await record(cluster))
                with pytest.raises(Over):
                    await old._wait(Unavailable("nobody is there"), 1)

    run(story())


# ---------------------------------------------------------------- a log that is removed


def test_nobody_looks_for_an_append_in_a_log_that_was_removed_behind_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def header_at(*_: Any) -> Any:
        looked.set()
        raise Unavailable("nobody answers")

    async def story() -> None:
        async with servers(tmp_path, nodes=3, lost_ms=100) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                log = client.log("orders")
                await log.append(b"a")
                monkeypatch.setattr(chain_writer, "header_at", header_at)
                last = (await log.info()).chain[0].streams[0].members[-1]
                await cluster.stop_node(last)
                waiting = asyncio.ensure_future(log.append(b"b", timeout=TIMEOUT_S))
                await looked.wait()
                await client.remove_log("orders")
                with pytest.raises(OutcomeUnknown, match="the log was removed"):
                    await waiting

    run(story())


# ---------------------------------------------------------------- holes


@pytest.mark.parametrize(("streams", "unit", "grants"), [(1, 4096, (600_000, 600_000)), (2, 1, (1,) * 300)])
def test_a_hole_of_any_size_is_filled(
    streams: int, unit: int, grants: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than a batch may be; and of more pieces than go into one message."""
    monkeypatch.setattr(chain, "MOST_PIECES", 64)

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            log = await create(cluster, replicas=2, streams=streams, unit=unit)
            first = log.chain[0].streams[0]
            head = await cluster.to_node(first.members[0])
            for count in grants:
                request = pb.GrantRequest(log=log.id, segment=1, stream=first.id, count=count, base=1)
                while True:
                    try:
                        await head.call(Method.GRANT, request, timeout=TIMEOUT_S)
                        break
                    except WrongWriter:
                        await asyncio.sleep(0.01)  # it has not heard yet that the segment has begun
            async with two_clients(cluster) as (orders, _):
                ack = await orders.append(b"behind", timeout=TIMEOUT_S)
                assert ack.first == sum(grants) + 1
                with pytest.raises(Junk):
                    await orders.read(sum(grants))
                assert await orders.tail() == ack.first

    run(story())


# ---------------------------------------------------------------- a producer that ends


@pytest.mark.parametrize("name", [None, "job"])
def test_a_producer_that_ends_while_it_waits_for_a_position_leaves_the_log_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """Nobody has said that the segment has ended: only the producer has."""
    asked: list[bytes] = []

    async def ask(self: ChainWriter, request: pb.GrantRequest) -> Reply:
        asked.append(request.producer)
        raise Unavailable("who grants positions does not answer")

    async def story() -> None:
        async with servers(tmp_path, nodes=2, lost_ms=NEVER_MS) as cluster:
            await create(cluster, replicas=2, streams=1)
            async with two_clients(cluster) as (log, _):
                producer = await log.producer(id=name, linger=0).open()
                with monkeypatch.context() as silent:
                    silent.setattr(ChainWriter, "_ask", ask)
                    sent = await producer.send_batch([b"given up"])
                    while not asked:
                        await asyncio.sleep(0.001)
                    producer.abort()
                    with pytest.raises(OutcomeUnknown):
                        await sent
                    await soon()
                assert (await log.append(b"goes on", timeout=5.0)).glsn == 1
                assert await entries(log) == [(1, b"goes on")]

    run(story())
