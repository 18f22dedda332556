"""Positions and reads of a healthy replica."""

import asyncio

import pytest
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import append, batch, bind, create, data_files, fill, read_all, reopen, run
from tests.turns import others

from varlog.base.errors import AlreadyExists, NotFound, NotWritten, Trimmed
from varlog.base.ids import Glsn, Slot
from varlog.base.invariant import InvariantBroken
from varlog.base.ranges import Binding
from varlog.storage.pool import GROWTH
from varlog.storage.reader import TURN_BATCHES
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.search import DigestRow
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

MIB = 1 << 20


def test_positions_move_as_staged_and_synced() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        assert (log.appended, log.durable, log.committed, log.bound, log.next_glsn) == (0, 0, 0, 0, 0)
        assert (log.spec, log.staged, log.sealed, log.end) == (b"the spec", False, False, None)
        log.stage_batches(Slot(0), [batch(0, count=3), batch(1, count=2)])
        assert (log.appended, log.durable, log.staged) == (5, 0, True)
        await log.sync()
        assert (log.durable, log.staged) == (5, False)
        log.stage_binding(Binding(Slot(0), Glsn(11), 3), 20)
        assert (log.committed, log.bound, log.next_glsn, log.high_watermark) == (3, 0, 14, 20)
        assert await log.bindings(Slot(1), Slot(3)) == [Binding(Slot(1), Glsn(12), 2)]
        await log.sync()
        assert log.bound == 3
        log.stage_trim(Glsn(11))
        await log.sync()
        assert (log.trimmed, log.trimmed_glsn) == (1, 11)

    run(scenario())


def test_one_group_is_one_write_and_one_sync() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, batch(0))
        bind(log, 1)
        log.stage_batches(log.appended, [batch(number) for number in range(1, 9)])
        log.stage_seal()
        writes, syncs = len(disk.writes), disk.syncs
        await log.sync()
        assert (len(disk.writes) - writes, disk.syncs - syncs) == (1, 1)
        await log.sync()
        assert len(disk.writes) - writes == 1, "nothing staged, nothing written"

    run(scenario())


def test_bindings_that_continue_each_other_are_one_record() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number) for number in range(6)])
        for gap in (0, 0, 0, 2, 0, 0):
            bind(log, 1, gap=gap)
        await log.sync()
        kinds = [record.kind for record in walk_records(disk.writes[-1][2])]
        assert kinds == [RecordKind.BIND, RecordKind.BIND]
        assert await log.bindings(Slot(0), Slot(6)) == [Binding(Slot(0), Glsn(1), 3), Binding(Slot(3), Glsn(6), 3)]

    run(scenario())


def test_what_is_staged_during_a_sync_belongs_to_the_next() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number) for number in range(4)])
        bind(log, 1)
        disk.wait_in_write = asyncio.Event()
        syncing = asyncio.create_task(log.sync())
        while not disk.waiting:
            await asyncio.sleep(0)
        bind(log, 1)
        bind(log, 1)
        log.stage_batches(log.appended, [batch(4)])
        with pytest.raises(InvariantBroken):
            await log.sync()
        disk.wait_in_write.set()
        await syncing
        assert (log.bound, log.committed, log.durable, log.staged) == (1, 3, 4, True)
        await log.sync()
        assert (log.bound, log.durable, log.staged) == (3, 5, False)
        await log.close()
        log = await reopen(disk)
        assert await log.bindings(Slot(0), log.committed) == [Binding(Slot(0), Glsn(1), 3)]

    run(scenario())


def test_a_cancelled_sync_is_made_up_for_by_the_next() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        log.stage_batches(log.appended, [batch(0), batch(1)])
        disk.wait_in_write = asyncio.Event()
        syncing = asyncio.create_task(log.sync())
        while not disk.waiting:
            await asyncio.sleep(0)
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing
        disk.wait_in_write = None
        assert (log.durable, log.staged) == (0, True)
        await append(log, batch(2))
        assert log.durable == 3
        assert len(await read_all(await reopen(disk))) == 3

    run(scenario())


def test_limits_of_a_read() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk(), file_bytes=MIB)
        await append(log, *[batch(number, count=2, size=1000) for number in range(20)])
        whole = await log.read(Slot(0), Slot(40), MIB)
        assert (whole.slot, whole.end, whole.batches) == (0, 40, 20)
        assert (await log.read(Slot(7), Slot(40), MIB)).slot == 6, "from the batch that contains the slot"
        assert (await log.read(Slot(0), Slot(9), MIB)).end == 8, "whole batches below the limit"
        assert (await log.read(Slot(0), Slot(1), MIB)).end == 0, "or none"
        assert (await log.read(Slot(4), Slot(40), 1)).batches == 1, "at least one, however large"
        assert (await log.read(Slot(4), Slot(40), 5000)).batches == 2
        assert (await log.read(Slot(4), Slot(40), MIB, 3)).end == 10
        for start in (40, 41, 100):
            empty = await log.read(Slot(start), Slot(1000), MIB)
            assert (empty.slot, empty.end, len(empty.data)) == (start, start, 0)

    run(scenario())


def test_a_read_is_one_input_operation() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=MIB)
        while data_files(log) < 3:
            await append(log, *[batch(log.appended, count=3, size=500)] * 8)
        await log.close()
        log = await reopen(disk, file_bytes=MIB)
        for slot in range(0, log.durable, 97):
            disk.reads = 0
            assert (await log.read(Slot(slot), log.durable, 8000)).slot <= slot
            assert disk.reads == 1
        disk.bytes_read, slot = 0, Slot(0)
        while slot < log.durable:
            slot = (await log.read(slot, log.durable, 20_000)).end
        assert disk.bytes_read < 1.2 * log.stored_bytes, "who goes on where he stopped reads nothing twice"

    run(scenario())


def test_a_batch_larger_than_asked_for_takes_a_second_look() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk, file_bytes=4 * MIB)
        await append(log, batch(0), batch(1, size=300_000), batch(2))
        await log.close()
        log = await reopen(disk, file_bytes=4 * MIB)
        disk.reads = 0
        found = await log.read(Slot(1), Slot(3), 100)
        assert (found.slot, found.end) == (1, 2)
        assert disk.reads == 2

    run(scenario())


def test_headers_of_recent_batches_cost_nothing() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number, count=2) for number in range(50)])
        log.stage_batches(log.appended, [batch(50, count=2)])
        disk.reads = 0
        assert await log.batch_at(Slot(100)) == batch(50, count=2)[1], "staged ones too"
        assert await log.batch_at(Slot(40)) == batch(20, count=2)[1]
        assert await log.batch_at(Slot(41)) is None
        assert await log.batch_at(Slot(102)) is None
        assert disk.reads == 0
        await log.sync()
        await log.close()
        log = await reopen(disk)
        assert await log.batch_at(Slot(40)) == batch(20, count=2)[1]
        assert await log.batch_at(Slot(41)) is None

    run(scenario())


def test_a_read_ends_with_the_file() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        count = await fill(log, 3)
        first = await log.read(Slot(0), log.durable, MIB)
        assert first.end == log._files[1].first_slot < count
        assert len(await read_all(log)) == count

    run(scenario())


def test_a_finished_replica_ends_where_it_was_told() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        producer = b"q" * 16
        await append(log, *[batch(n, count=2, time_us=n, producer=producer, sequence=n) for n in range(10)])
        bind(log, 8)
        log.stage_seal()
        log.stage_finish(Slot(8))
        await log.sync()
        await check_finished(log, producer)
        await log.close()
        await check_finished(await reopen(disk), producer)

    async def check_finished(log: ReplicaLog, producer: bytes) -> None:
        assert (log.appended, log.durable, log.committed, log.end, log.sealed) == (8, 8, 8, 8, True)
        assert len(await read_all(log)) == 4
        assert (await log.read(Slot(8), Slot(20), MIB)).end == 8
        assert await log.batch_at(Slot(8)) is None
        assert await log.find_time(6) == 8
        assert log.producers.next_sequence(producer) == 4
        assert [row.slot for row in await log.digest(Slot(0), Slot(8))] == [0, 2, 4, 6]

    run(scenario())


def test_what_is_committed_during_a_search_by_time_is_looked_at_too() -> None:
    """Where nothing was found the committed end is told: it must not have become the place of another batch."""

    async def scenario() -> None:
        log = await create(CrashDisk())
        await append(log, *[batch(number, time_us=time) for number, time in enumerate((1, 2, 3, 9))])
        bind(log, 2)
        plain = log._reader.headers_from

        async def commit_meanwhile(*asked: int) -> object:
            found = await plain(*asked)
            if log.committed == 2:
                bind(log, 2)
            return found

        log._reader.headers_from = commit_meanwhile  # type: ignore[assignment, method-assign]
        assert await log.find_time(5) == 3

    run(scenario())


def test_digest() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        batches = [batch(number, count=2) for number in range(4)]
        await append(log, *batches)
        bind(log, 8)
        log.stage_trim(Glsn(2))
        await log.sync()
        rows = await log.digest(Slot(0), Slot(12))
        assert rows == [
            DigestRow(Slot(0), 2, pb.SLOT_UNKNOWN, 0),
            *[DigestRow(Slot(2 * n), 2, pb.SLOT_DATA, batches[n][1].crc) for n in (1, 2, 3)],
            DigestRow(Slot(8), 4, pb.SLOT_EMPTY, 0),
        ]
        assert await log.digest(Slot(4), Slot(6)) == [DigestRow(Slot(4), 2, pb.SLOT_DATA, batches[2][1].crc)]
        assert await log.digest(Slot(4), Slot(4)) == []

    run(scenario())


def test_a_trim_ahead_of_the_commits_it_covers() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await create(disk)
        await append(log, *[batch(number) for number in range(10)])
        bind(log, 2)
        log.stage_trim(Glsn(6))
        await log.sync()
        assert (log.trimmed, log.trimmed_glsn) == (2, 6)
        bind(log, 8)
        assert log.trimmed == 6
        await log.sync()
        await log.close()
        assert (await reopen(disk)).trimmed == 6

    run(scenario())


def test_what_is_not_there() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        with pytest.raises(NotFound):
            await reopen(disk)
        log = await create(disk)
        with pytest.raises(AlreadyExists):
            await create(disk)
        await append(log, batch(0), batch(1))
        bind(log, 1)
        with pytest.raises(NotWritten) as error:
            await log.bindings(Slot(0), Slot(2))
        assert error.value.tail == 1
        assert await log.bindings(Slot(1), Slot(1)) == []
        bind(log, 1)
        log.stage_trim(Glsn(1))
        await log.sync()
        for call in (log.bindings(Slot(0), Slot(2)), log.batch_at(Slot(0)), log.read(Slot(0), Slot(2), 9)):
            with pytest.raises(Trimmed):
                await call
        log.stage_trim(Glsn(0))
        await log.sync()
        assert log.trimmed_glsn == 1, "a trim point never moves back"

    run(scenario())


def test_handles_are_bounded() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        await fill(log, 14)
        await read_all(log)
        assert len(log._files._open) <= 9
        assert len(log._files) == 14

    run(scenario())


def test_marks_tell_what_is_stored_from_a_position_on() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        assert log.marks() == []
        count = await fill(log, 5)
        for summarized in (False, True):
            marks = log.marks()
            assert [glsn for glsn, _ in marks] == sorted(glsn for glsn, _ in marks)
            for glsn, size in marks:
                held = (count + 1 - glsn) * 500
                assert held <= size <= 2 * held + 5 * 4096, "payloads, records, the heads of files"
            assert len(marks) >= 4, "one for each file at least"
            if not summarized:
                await log.collect()
        log.stage_trim(Glsn(count // 2))
        await log.sync()
        await log.collect()
        assert log.marks()[0][0] > count // 2
        assert max(size for _, size in log.marks()) <= log.stored_bytes

    run(scenario())


def test_marks_count_nothing_that_may_be_cut_off_yet() -> None:
    async def scenario() -> None:
        log = await create(CrashDisk())
        committed = await fill(log, 3)
        whole = log.marks()
        assert whole[0] == (1, log.stored_bytes)
        for number in range(200):
            await append(log, batch(number, size=500))
        assert log.committed == committed < log.durable
        assert log.stored_bytes > whole[0][1] + 100_000
        assert [glsn for glsn, _ in log.marks()] == [glsn for glsn, _ in whole]
        for (_, size), (_, before) in zip(log.marks(), whole, strict=True):
            assert size <= before

    run(scenario())


@pytest.mark.parametrize("what", ["read", "digest"])
def test_others_have_their_turn_while_many_small_batches_are_looked_through(what: str) -> None:
    """They lie in the page cache, so that nothing waits for the disk."""

    async def scenario() -> None:
        log = await create(CrashDisk(), file_bytes=GROWTH**2 * 2 * MIB)
        many = 8 * TURN_BATCHES
        log.stage_batches(Slot(0), [batch(0)] * many)
        await log.sync()
        async with others() as turns:
            if what == "read":
                assert (await log.read(Slot(0), Slot(many), 2 * MIB)).end == many
            else:
                assert len(await log.digest(Slot(0), Slot(many))) == many
        assert turns.count >= many // (2 * TURN_BATCHES)

    run(scenario())
