"""Reconfigure under `cut`: a segment ends, the next begins where it ended, and nobody who uses the log notices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.servers import run, servers

import varlog
from varlog.base.errors import Conflict, InvalidArgument, Overloaded, Sealed, Unavailable, Unsupported
from varlog.ports import MetadataStore, Transaction
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Load:
    """Writers that never pause, and a subscriber that sees everything."""

    def __init__(self, log: varlog.Log, writers: int = 4) -> None:
        self._log = log
        self._sent = 0
        self.acked: dict[int, bytes] = {}
        self.seen: list[varlog.Entry] = []
        self._stopping = False
        self._writers = [asyncio.create_task(self._write()) for _ in range(writers)]
        self._reader = asyncio.create_task(self._read())

    async def _write(self) -> None:
        while not self._stopping:
            self._sent += 1
            payload = b"%d" % self._sent
            self.acked[(await self._log.append(payload)).glsn] = payload

    async def _read(self) -> None:
        async for entry in self._log.subscribe(1):
            self.seen.append(entry)

    async def some(self, count: int = 50) -> None:
        """Until so many more are acked."""
        wanted = len(self.acked) + count
        while len(self.acked) < wanted:
            await asyncio.sleep(0.01)
            for task in self._writers:
                assert not task.done(), "no writer may see an error"

    async def stop(self, *, junk: bool = False) -> int:
        """The tail, once everything is checked: in order, each with its payload, none twice; dense but for junk."""
        self._stopping = True
        await asyncio.gather(*self._writers)
        tail = (await self._log.append(b"last")).glsn
        self.acked[tail] = b"last"
        while not self.seen or self.seen[-1].glsn < tail:
            assert not self._reader.done()
            await asyncio.sleep(0.01)
        self._reader.cancel()
        assert await self._log.tail() == tail
        positions = [entry.glsn for entry in self.seen]
        assert positions == sorted(self.acked)
        assert {entry.glsn: entry.payload for entry in self.seen} == self.acked
        if not junk:
            assert positions == list(range(1, tail + 1))
        return tail


def check_chain(log: varlog.LogDescription, segments: int) -> None:
    assert [each.epoch for each in log.chain] == list(range(1, segments + 1))
    assert [each.base for each in log.chain[1:]] == [each.end for each in log.chain[:-1]]
    assert [each.state for each in log.chain] == ["sealed"] * (segments - 1) + ["open"]


def test_replicas_streams_members_and_segments_change_under_load() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=4) as cluster:
            log = await cluster.create_log("orders", replicas=3, streams=2)
            load = Load(log)
            await load.some()
            changed = await log.reconfigure(replicas=2)
            check_chain(changed, 2)
            assert [len(stream.members) for stream in changed.chain[-1].streams] == [2, 2]
            await load.some()
            changed = await log.reconfigure(streams=4)
            check_chain(changed, 2)  # streams come and go inside a segment
            assert sum(stream.writable for stream in changed.chain[-1].streams) == 4
            await load.some()
            changed = await log.reconfigure(streams=1)
            check_chain(changed, 2)
            assert sum(stream.writable for stream in changed.chain[-1].streams) == 1
            await load.some()
            changed = await log.reconfigure(replicas=3, members=[1, 2, 4])
            check_chain(changed, 3)
            assert sorted(changed.chain[-1].streams[0].members) == [1, 2, 4]
            await load.some()
            check_chain(await log.reconfigure(roll=True), 4)
            await load.some()
            tail = await load.stop()
            for glsn in (1, tail // 2, tail):
                assert (await log.read(glsn)).payload == load.acked[glsn]
            backwards = [entry.glsn async for entry in log.subscribe(tail // 2, stop=tail)]
            assert backwards == list(range(tail // 2, tail))

    run(story())


def test_a_segment_is_followed_by_the_next_at_its_size_and_at_its_age() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=1) as cluster:
            log = await cluster.create_log("orders", replicas=1, roll_bytes=1 << 20)
            await log.append_batch([bytes(1000)] * 1200)
            while len((await log.info()).chain) < 2:
                await asyncio.sleep(0.05)
            await log.append(b"one more")
            aged = await cluster.create_log("aged", replicas=1, roll_seconds=1.0)
            assert len((await aged.info()).chain) == 1, "an empty segment is as good as new"
            await aged.append(b"x")
            while len((await aged.info()).chain) < 2:
                await asyncio.sleep(0.05)
            check_chain(await log.info(), 2)
            check_chain(await aged.info(), 2)
            assert [entry.glsn async for entry in log.subscribe(1200, wait=False)] == [1200, 1201]

    run(story())


def test_what_makes_no_sense_is_refused_and_nothing_changes() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=2) as cluster:
            log = await cluster.create_log("orders", replicas=2)
            await log.append(b"x")
            for wrong in (
                {},
                {"replicas": 0},
                {"replicas": 17},
                {"streams": 5000},
                {"ack": 3},
                {"members": [1, 1]},
                {"roll_bytes": 10},
                {"roll_seconds": 0.1},
                {"roll_seconds": -1},
            ):
                with pytest.raises(InvalidArgument):
                    await log.reconfigure(**wrong)
            with pytest.raises(Unsupported):
                await log.reconfigure(ordering="chance")
            for too_much in ({"replicas": 3}, {"members": [1, 9]}, {"members": [1]}):
                with pytest.raises(Unavailable):
                    await log.reconfigure(**too_much)
            check_chain(await log.info(), 1)
            assert (await log.append(b"y")).glsn == 2
            await log.seal()
            with pytest.raises(Sealed):
                await log.reconfigure(replicas=1)

    run(story())


def test_asked_again_after_a_lost_answer_it_is_done_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await cluster.create_log()
            peer = await cluster.to_repository()
            request = pb.ReconfigureLogRequest(log=log.id, roll=True, epoch=1)
            first = (await peer.call(Method.RECONFIGURE_LOG, request, timeout=10.0)).message
            assert isinstance(first, pb.LogInfo)
            assert len(first.chain) == 2
            with pytest.raises(Conflict):
                await peer.call(Method.RECONFIGURE_LOG, request, timeout=10.0)

    run(story())


def test_a_restarted_repository_goes_on_in_the_last_segment(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            await cluster.create_log()
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                log = client.log("orders")
                for payload in (b"a", b"b"):
                    await log.append(payload)
                await log.reconfigure(roll=True)
                await log.append(b"c")
                await cluster.stop_repository()
                await cluster.start_repository()
                await log.append(b"d")
                await log.reconfigure(replicas=2)
                await log.append(b"e")
                assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [b"a", b"b", b"c", b"d", b"e"]
                check_chain(await log.info(), 3)

    run(story())


def test_a_named_producer_goes_on_through_segments() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            log = await cluster.create_log("orders", replicas=2)
            async with log.producer(id="etl") as producer:
                for number in range(20):
                    await producer.send(b"%d" % number)
                    if number in (5, 12):
                        await log.reconfigure(roll=True)
            async with log.producer(id="etl") as producer:
                await producer.send(b"20")
            found = [int(entry.payload) async for entry in log.subscribe(1, wait=False)]
            assert found == list(range(21))

    run(story())


def test_a_numbered_batch_of_an_earlier_segment_is_recognised() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            log = await cluster.create_log("orders", replicas=2)
            first = []
            for number in range(3):  # each in a segment of its own
                async with log.producer(id="etl") as producer:
                    assert producer.next_sequence == number
                    first.append(await (await producer.send_batch([b"%d" % number], sequence=number)))
                await log.reconfigure(roll=True)
            async with log.producer(id="etl") as producer:
                assert producer.next_sequence == 3
                again = [await (await producer.send_batch([b"%d" % n], sequence=n)) for n in range(3)]
            assert again == first
            assert await log.tail() == 3

    run(story())


def test_streams_go_on_after_a_change_that_the_store_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await cluster.create_log()
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                handle = client.log("orders")
                await handle.append(b"a")
                assert cluster.repository is not None
                catalog = cluster.repository.catalog
                store = catalog._store
                catalog._store = refusing = Refusing(store, at=2)  # the first reserves the new streams
                peer = await cluster.to_repository()
                with pytest.raises(Overloaded):
                    await peer.call(
                        Method.RECONFIGURE_LOG, pb.ReconfigureLogRequest(log=log.id, roll=True), timeout=10.0
                    )
                assert refusing.commits == 2
                catalog._store = store
                assert (await handle.append(b"b")).glsn == 2

    run(story())


class Refusing:
    """A store that takes one commit less, and says so."""

    def __init__(self, store: MetadataStore, at: int) -> None:
        self._store = store
        self._at = at
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, transaction: Transaction) -> bool:
        self.commits += 1
        if self.commits == self._at:
            raise Overloaded("too much at once", 100)
        return await self._store.commit(transaction)


def test_streams_that_could_not_be_opened_are_when_it_is_asked_again_and_fewer_need_no_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3, lost_ms=60_000) as made,
            varlog.connect(f"varlog://{made.repository_address}") as cluster,
        ):
            log = await cluster.create_log("orders", replicas=3, streams=2, ack=3)
            await made.stop_node(3)
            with pytest.raises(Unavailable, match="2 are connected"):
                await log.reconfigure(streams=4)
            assert (await log.info()).streams == 2  # a change that is refused leaves no wish behind
            await made.start_node(3)
            changed = await log.reconfigure(streams=4)
            assert sum(stream.writable for stream in changed.chain[-1].streams) == 4
            await made.stop_node(3)
            changed = await log.reconfigure(streams=1)
            assert sum(stream.writable for stream in changed.chain[-1].streams) == 1

    run(story())
