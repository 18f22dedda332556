"""Journals that become ordinary logs, and logs that become journals, while they are used."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_journal import led, payloads, replica
from tests.repository.test_reconfigure import check_chain
from tests.servers import TIMEOUT_S, batch, run, servers

import varlog
from varlog.base.errors import WrongWriter
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SOON_S = 15.0
"""Long on any machine."""
TO_ORDINARY = [{"ordering": "cut", "streams": 2}, {"ordering": "sequencer", "streams": 2}, {"journal": False}]


class Reader:
    """A subscriber from the beginning on, whatever becomes of the log."""

    def __init__(self, log: varlog.Log) -> None:
        self._log = log
        self.seen: dict[int, bytes] = {}
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for entry in self._log.subscribe(1):
            assert entry.glsn > max(self.seen, default=0), "in order, none twice"
            self.seen[entry.glsn] = entry.payload

    async def stop(self, tail: int) -> dict[int, bytes]:
        """What it has seen, once it has seen everything."""
        while max(self.seen, default=0) < tail:
            assert not self._task.done()
            await asyncio.sleep(0.01)
        self._task.cancel()
        return self.seen


class Writers:
    """Some that never pause, until they are refused or told to stop; each ends with what refused it, if anything."""

    def __init__(self, to: "varlog.Log | varlog.JournalLeader", name: bytes, count: int = 4) -> None:
        self._to = to
        self._name = name
        self._stopping = False
        self.sent = 0
        self.acked: dict[int, bytes] = {}
        self._tasks = [asyncio.create_task(self._write()) for _ in range(count)]

    async def _write(self) -> varlog.VarlogError | None:
        while not self._stopping:
            self.sent += 1
            payload = b"%s%d" % (self._name, self.sent)
            try:
                self.acked[(await self._to.append(payload)).glsn] = payload
            except varlog.VarlogError as error:
                return error
        return None

    async def some(self, count: int = 50) -> None:
        """Until so many more are acked."""
        wanted = len(self.acked) + count
        while len(self.acked) < wanted:
            assert not any(task.done() for task in self._tasks), "no writer may see an error"
            await asyncio.sleep(0.01)

    async def ended(self) -> list[varlog.VarlogError | None]:
        """By what each was refused."""
        return await asyncio.wait_for(asyncio.gather(*self._tasks), SOON_S)

    async def stop(self) -> None:
        self._stopping = True
        assert await self.ended() == [None] * len(self._tasks)


@pytest.mark.parametrize("change", TO_ORDINARY, ids=["cut", "sequencer", "leader"])
def test_a_journal_becomes_an_ordinary_log_under_load(change: dict[str, Any], tmp_path: Path) -> None:
    """The old leader's appends are in the log or were refused, and others go on behind them."""

    async def story() -> None:
        async with led(tmp_path) as (_cluster, client, journal, leader):
            log = client.log("wal")
            reader, before = Reader(log), Writers(leader, b"led")
            await before.some()
            waits = asyncio.create_task(journal.lead(timeout=TIMEOUT_S).__aenter__())
            changed = await log.reconfigure(**change)
            check_chain(changed, 3)
            last = changed.chain[-1]
            assert (changed.journal, last.journal, last.leader) == (False, False, "")
            assert [segment.journal for segment in changed.chain] == [True, True, False]
            refusals = await before.ended()
            assert all(isinstance(error, varlog.Fenced) and error.epoch == 3 for error in refusals), refusals
            assert max(before.acked) < last.base
            with pytest.raises(varlog.Fenced, match="no journal any more"):
                await leader.append(b"late")
            with pytest.raises(varlog.Unsupported, match="no journal"):
                await asyncio.wait_for(waits, SOON_S)
            after = Writers(journal, b"all")  # a handle on a journal is one on a log
            await after.some()
            await after.stop()
            assert "many_writers" in log.capabilities
            tail = await log.tail()
            assert await reader.stop(tail) == before.acked | after.acked
            assert sorted(reader.seen) == list(range(1, tail + 1)), "nothing is missing, and nothing given up"
            with pytest.raises(varlog.Unsupported, match="journal=True"):
                await client.journal("wal").__aenter__()

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "sequencer", "leader"])
def test_an_ordinary_log_becomes_a_journal_under_load(ordering: str, tmp_path: Path) -> None:
    """Appenders are refused with what to do instead; what they were answered stays; a candidate is elected."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("wal", ordering=ordering, streams=1 if ordering == "leader" else 2)
            reader, before = Reader(log), Writers(log, b"all")
            await before.some()
            changed = await log.reconfigure(journal=True)
            check_chain(changed, 2)
            assert (changed.ordering, changed.journal, changed.chain[-1].journal) == ("leader", True, True)
            for error in await before.ended():
                assert isinstance(error, varlog.Unsupported), error
                assert "journal.lead()" in error.message
            assert max(before.acked) < changed.chain[-1].base
            assert log.capabilities == {"atomic_batch"}
            name, members = await replica(client, "wal")
            for member in members:  # nobody leads it yet, no member does either
                peer = await cluster.to_node(member)
                append = pb.AppendRequest(log=name.log, segment=name.segment, stream=name.stream)
                with pytest.raises(varlog.NotFound, match="not the primary"):
                    await peer.call(Method.APPEND, append, [batch(b"x")], timeout=TIMEOUT_S)
                store = pb.StoreRequest(log=name.log, segment=name.segment, stream=name.stream, writer=1)
                with pytest.raises(WrongWriter):
                    await peer.call(Method.STORE, store, [batch(b"x")], timeout=TIMEOUT_S)
            assert await log.tail() == changed.chain[-1].base - 1, "as fresh, though nobody leads yet"
            async with client.journal("wal") as journal, journal.lead(timeout=TIMEOUT_S) as leader:
                after = Writers(leader, b"led")
                await after.some()
                await after.stop()
                tail = await journal.tail()
            seen = await reader.stop(tail)
            acked = before.acked | after.acked
            assert {glsn: seen[glsn] for glsn in acked} == acked
            assert set(seen) == set(acked), "what was refused is not in the log"

    run(story())


def test_back_and_forth_each_time_with_a_leader_of_its_own(tmp_path: Path) -> None:
    """Also one that did not hear of the log between two journals, and old segments that lose a copy."""

    async def story() -> None:
        async with led(tmp_path, nodes=4, lost_ms=100, rebuild_ms=100) as (cluster, client, journal, first):
            log = client.log("wal")
            await first.append(b"1")
            for ordering in ("sequencer", "cut"):
                await log.reconfigure(ordering=ordering)
                await log.append(b"ordinary")
                await log.reconfigure(journal=True)
                async with journal.lead(timeout=TIMEOUT_S) as leader:
                    with pytest.raises(varlog.Fenced):
                        await first.append(b"never")
                    await leader.append(b"led")
            info = await log.info()
            assert [segment.journal for segment in info.chain][-1:] == [True]
            lost = info.chain[1].streams[0].members[0]
            await cluster.stop_node(lost)
            async with asyncio.timeout(4 * SOON_S):
                while any(lost in stream.members for segment in info.chain for stream in segment.streams):
                    await asyncio.sleep(0.05)
                    info = await log.info()
            assert await payloads(journal) == [b"1", *[b"ordinary", b"led"] * 2]
            async with journal.lead(timeout=TIMEOUT_S) as leader:
                assert (await leader.append(b"last")).glsn == 6

    run(story())


def test_a_named_producer_goes_on_behind_a_journal(tmp_path: Path) -> None:
    """Its numbers are those of the log before; what it repeats is not appended again."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("wal", replicas=3)
            async with log.producer(id="etl") as producer:
                for number in range(3):
                    await (await producer.send_batch([b"%d" % number], sequence=number))
            await log.reconfigure(journal=True)
            async with client.journal("wal") as journal, journal.lead(timeout=TIMEOUT_S) as leader:
                await leader.append(b"led")
                with pytest.raises(varlog.Unsupported, match=r"journal.lead\(\)"):
                    await log.producer(id="etl").open()
            await log.reconfigure(ordering="cut")
            async with log.producer(id="etl") as producer:
                assert producer.next_sequence == 3
                again = await (await producer.send_batch([b"2"], sequence=2))
                assert again.glsn == 3
                assert (await (await producer.send_batch([b"3"], sequence=3))).glsn == 5
            assert await payloads(journal) == [b"0", b"1", b"2", b"led", b"3"]

    run(story())


def test_a_pinned_log_does_not_become_a_journal_and_a_journal_keeps_what_is_not_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with led(tmp_path) as (_cluster, client, journal, leader):
            log = await client.create_log("orders", replicas=3, pin=["many_writers"])
            with pytest.raises(varlog.Unsupported, match="pinned to many_writers, which a journal") as refused:
                await log.reconfigure(journal=True)
            assert refused.value.capability == "many_writers"
            assert not (await log.info()).journal
            assert (await log.append(b"a")).glsn == 1
            with pytest.raises(varlog.Unsupported):
                await journal.reconfigure(pin=["many_writers"])
            epoch = leader.epoch
            for nothing in ({"ordering": "leader"}, {"journal": True}, {"ordering": "leader", "journal": True}):
                assert (await journal.reconfigure(**nothing)).chain[-1].epoch == epoch
            await journal.reconfigure(replication="chain")
            assert (await leader.append(b"a")).glsn == 1
            assert leader.epoch == epoch + 1, "the same goes on"
            changed = await journal.reconfigure(ordering="cut", pin=["many_writers"])
            assert changed.pinned == ("many_writers",)
            with pytest.raises(varlog.Unsupported):
                await journal.reconfigure(journal=True)
            assert (await journal.reconfigure(journal=True, unpin=["many_writers"])).journal

    run(story())


@pytest.mark.parametrize("change", TO_ORDINARY[:2], ids=["cut", "sequencer"])
def test_a_leader_whose_append_one_member_has_is_fenced_by_the_seal(change: dict[str, Any], tmp_path: Path) -> None:
    """What it had sent is decided once: it is not answered, and if it is in the log it lies before the next segment."""

    async def story() -> None:
        async with led(tmp_path, lost_ms=60_000) as (cluster, _client, journal, leader):
            assert (await leader.append(b"a")).glsn == 1
            members = (await journal.info()).chain[-1].streams[0].members
            for node in members[:2]:
                await cluster.stop_node(node)
            append = asyncio.create_task(leader.append(b"b"))
            await asyncio.sleep(0.05)
            assert not append.done()
            with pytest.raises((varlog.Unavailable, varlog.Timeout)):  # too few are there to be sealed
                await journal.reconfigure(**change, timeout=1.0)
            for node in members[:2]:
                await cluster.start_node(node)
            while True:
                try:
                    changed = await journal.reconfigure(**change)
                    break
                except (varlog.Unavailable, varlog.Timeout):
                    await asyncio.sleep(0.05)
            try:
                acked = int((await asyncio.wait_for(append, SOON_S)).glsn)
            except varlog.Fenced:
                acked = 0
            assert changed.chain[-1].base == (3 if acked else 2)
            after = (await journal.append(b"c")).glsn
            assert after == (3 if acked else 2)
            assert await payloads(journal) == ([b"a", b"b", b"c"] if acked else [b"a", b"c"])

    run(story())
