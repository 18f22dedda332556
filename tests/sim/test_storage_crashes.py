"""A replica's files under loss of power at any moment: whatever sync() promised is there when it is opened again."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from tests.sim.world import Small

from varlog.base.errors import NoSpace, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, ReplicaId, StreamId
from varlog.base.ranges import Binding
from varlog.ports.disk import Disk
from varlog.sim.host import Host, Process
from varlog.sim.weather import DiskWeather, Latency
from varlog.storage.layout import SMALLEST_FILE_BYTES
from varlog.storage.replica_log import ReplicaLog
from varlog.wire.batch import Batch, check_batch, encode_batch
from varlog.wire.record import RecordKind, walk_records

REPLICA = ReplicaId(LogId(1), Epoch(1), StreamId(1))
FOLDER = "replicas/1.1.1"
LIVES = 6


class Promises:
    """What was said to be durable, and what was staged beyond it."""

    def __init__(self) -> None:
        self.created = False
        self.staged: list[bytes] = []
        """Payload of every slot ever staged in the current history."""
        self.durable = 0
        self.bound = 0
        self.glsns: list[int] = []
        self.trimmed_glsn = 0
        self.trim_asked = 0
        self.next_glsn = 1
        self.sequence = 0


async def live(process: Process, promises: Promises, random: Random) -> None:
    """Open or create the replica, check every promise, then make more until the end comes."""
    disk = process.disks[0]
    await disk.make_folder("replicas")
    await disk.sync_folder("")
    log = await open_or_create(disk, promises, random)
    await check(log, promises)
    while True:
        for _ in range(random.randint(1, 4)):
            act(log, promises, random)
        durable, glsns, trim = log.appended, log.committed, promises.trim_asked
        try:
            await log.sync()
        except NoSpace:
            await process.clock.sleep(0.01)
            continue
        promises.durable = max(promises.durable, durable)
        assert log.durable >= durable
        promises.bound = max(promises.bound, log.bound)
        assert log.bound <= glsns
        promises.trimmed_glsn = max(promises.trimmed_glsn, trim)
        if random.random() < 0.2:
            with suppress(NoSpace):
                await log.collect()
        if random.random() < 0.2:
            await check(log, promises)


async def open_or_create(disk: Disk, promises: Promises, random: Random) -> ReplicaLog:
    if not promises.created and not await disk.exists(f"{FOLDER}/spec"):
        log = await ReplicaLog.create(disk, FOLDER, REPLICA, b"spec", random=random, file_bytes=SMALLEST_FILE_BYTES)
        promises.created = True
        return log
    promises.created = True
    return await ReplicaLog.open(disk, FOLDER, random=random, file_bytes=SMALLEST_FILE_BYTES)


def act(log: ReplicaLog, promises: Promises, random: Random) -> None:
    """Stage one thing."""
    choice = random.random()
    if choice < 0.6:
        count = random.randint(1, 5)
        payloads = [b"%d." % promises.sequence + bytes(random.randint(0, 900)) for _ in range(count)]
        data = encode_batch(payloads, producer=b"p" * 16, sequence=promises.sequence)
        try:
            log.stage_batches(log.appended, [(data, check_batch(data))])
        except NoSpace:
            return
        promises.sequence += 1
        promises.staged += payloads
    elif choice < 0.9 and log.committed < log.durable:
        promises.next_glsn += random.choice((0, 0, 3))
        binding = Binding(log.committed, Glsn(promises.next_glsn), log.durable - log.committed)
        promises.next_glsn = binding.glsn_end
        promises.glsns += range(binding.glsn, binding.glsn_end)
        log.stage_binding(binding, promises.next_glsn - 1)
    elif log.committed:
        choices = promises.glsns[log.trimmed : log.committed] or [0]
        promises.trim_asked = max(promises.trim_asked, random.choice(choices))
        log.stage_trim(Glsn(promises.trim_asked))


async def check(log: ReplicaLog, promises: Promises) -> None:
    assert promises.durable <= log.durable <= log.appended <= len(promises.staged)
    assert promises.bound <= log.committed <= len(promises.glsns)
    assert promises.trimmed_glsn <= log.trimmed_glsn <= promises.trim_asked
    found: list[bytes] = []
    slot = log.trimmed
    while slot < log.durable:
        run = await log.read(slot, log.durable, 1 << 16)
        for record in walk_records(run.data):
            if record.kind == RecordKind.BATCH:
                payloads = Batch(run.data[record.body : record.body + record.length]).payloads()
                found += payloads[max(0, slot - record.slot) :]
        slot = run.end
    assert found == promises.staged[log.trimmed : log.durable]
    glsns = [
        glsn for each in await log.bindings(log.trimmed, log.committed) for glsn in range(each.glsn, each.glsn_end)
    ]
    assert glsns == promises.glsns[log.trimmed : log.committed]
    assert log.producers.next_sequence(b"p" * 16) <= promises.sequence


async def survivors(process: Process, promises: Promises) -> None:
    """After a crash: look at what is there, hold it to the promises, and go on from it."""
    disk = process.disks[0]
    if not promises.created and not await disk.exists(f"{FOLDER}/spec"):
        return
    log = await ReplicaLog.open(disk, FOLDER, random=process.world.random, file_bytes=SMALLEST_FILE_BYTES)
    await check(log, promises)
    promises.created = True
    del promises.staged[log.durable :]
    del promises.glsns[log.committed :]
    promises.next_glsn = max(promises.next_glsn, log.next_glsn, 1)
    promises.sequence = log.producers.next_sequence(b"p" * 16)
    promises.trim_asked = log.trimmed_glsn
    promises.durable, promises.bound = log.durable, log.bound
    await log.close()


def weather_of(random: Random) -> DiskWeather:
    return DiskWeather(
        sync=Latency(random.choice((0.0005, 0.005)), random.random()),
        write=Latency(random.choice((0.00002, 0.001)), random.random()),
        capacity=random.choice((40, 1000)) * SMALLEST_FILE_BYTES // 4,
    )


async def torture(host: Host, seed: int) -> None:
    random = Random(seed)
    promises = Promises()
    for _ in range(LIVES):
        process = host.start(lambda process: live(process, promises, random))
        await asyncio.sleep(random.choice((0.005, 0.02, 0.1, 0.5)) * random.random())
        assert process.main is not None
        if process.main.done():
            process.main.result()
        host.crash(power_loss=True)
        process = host.start(lambda process: survivors(process, promises))
        assert process.main is not None
        await process.main
        host.crash(power_loss=random.random() < 0.5)


@pytest.mark.parametrize("block", range(4))
def test_promises_survive_loss_of_power(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        small = Small(seed)
        host = small.host("a", disk=weather_of(Random(seed)))
        try:
            small.run(torture(host, seed))
        except (AssertionError, VarlogError) as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
