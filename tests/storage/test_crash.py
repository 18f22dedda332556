"""Random histories with crashes, checked against the naive model: nothing synced is lost, nothing wrong is served."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import Model, batch, bind, create, reopen, run

from varlog.base.errors import ReplicaFailed
from varlog.base.ids import Glsn
from varlog.ports.disk import DiskFailed
from varlog.storage import index, reader
from varlog.storage.replica_log import ReplicaLog

APPEND = st.tuples(
    st.just("append"),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([0, 30, 400, 3000]), st.integers(0, 9)), min_size=1, max_size=6
    ),
)
BIND = st.tuples(st.just("bind"), st.integers(1, 8), st.integers(0, 2))
TRIM = st.tuples(st.just("trim"), st.integers(0, 60))
CRASH = st.tuples(
    st.just("crash"), st.integers(0, (1 << 64) - 1), st.sampled_from([512, 4096]), st.integers(0, 8), st.booleans()
)
OTHER = st.tuples(st.sampled_from(["sync", "sync", "collect", "reopen", "seal"]))
STEPS = st.lists(st.one_of(APPEND, APPEND, BIND, BIND, OTHER, OTHER, TRIM, CRASH), max_size=25)


@dataclass
class History:
    """One replica, what is done to it, and what should come of it."""

    disk: CrashDisk = field(default_factory=CrashDisk)
    model: Model = field(default_factory=Model)
    log: ReplicaLog = field(init=False)
    number: int = 0

    async def play(self, steps: list[tuple]) -> None:  # type: ignore[type-arg]
        self.log = await create(self.disk)
        for name, *arguments in steps:
            await getattr(self, name)(*arguments)
        await self.sync()
        await self.model.check(self.log)
        await self.reopen()

    async def append(self, shapes: list[tuple[int, int, int]]) -> None:
        batches = []
        for count, size, time_us in shapes:
            self.number += 1
            encoded = batch(self.number, count=count, size=size, time_us=time_us, producer=b"p" * 16, sequence=0)
            self.model.batches.append((self.model.appended, encoded))
            batches.append(encoded)
        self.log.stage_batches(self.log.appended, batches)

    async def bind(self, count: int, gap: int) -> None:
        """As many slots as whole batches allow, the way a cut does it."""
        edges = [slot + encoded[1].count for slot, encoded in self.model.batches]
        ends = [edge for edge in edges if self.log.committed < edge <= self.log.durable][:count]
        if ends:
            first = max(self.log.next_glsn, 1) + gap
            bound = ends[-1] - self.log.committed
            bind(self.log, bound, gap=gap)
            self.model.glsns += range(first, first + bound)

    async def trim(self, upto: int) -> None:
        self.log.stage_trim(Glsn(upto))
        self.model.trimmed_glsn = max(self.model.trimmed_glsn, upto)

    async def seal(self) -> None:
        self.log.stage_seal()
        self.model.sealed = True

    async def sync(self) -> None:
        await self.log.sync()
        assert not self.log.staged
        self.model.synced()
        assert (self.log.durable, self.log.bound) == (self.model.durable, self.model.bound)
        assert self.log.trimmed == self.model.trimmed

    async def collect(self) -> None:
        await self.log.collect()

    async def reopen(self) -> None:
        await self.sync()
        await self.log.close()
        self.log = await reopen(self.disk)
        self.model.adopt(self.log)
        await self.model.check(self.log)

    async def crash(self, bits: int, block: int, moves: int, twice: bool) -> None:
        """Power is lost while a group is being written (it was given to the disk, but never synced)."""
        await self.unsynced_write()
        await self.log.close()
        self.disk.crash(lambda number: bool(bits >> number % 64 & 1), block=block, moves=moves)
        if twice:
            await self.crash_in_recovery(bits, block)
        self.log = await reopen(self.disk)
        self.model.adopt(self.log)
        await self.model.check(self.log)

    async def crash_in_recovery(self, bits: int, block: int) -> None:
        """What recovery writes is itself torn."""
        self.disk.lose_power_in_sync = True
        try:
            await (await reopen(self.disk)).close()
        except ReplicaFailed:
            self.disk.crash(lambda number: bool(bits >> number % 61 & 1), block=block)
        self.disk.lose_power_in_sync = False

    async def unsynced_write(self) -> None:
        """Let the next group reach the page cache, and no more."""
        self.disk.lose_power_in_sync = True
        with suppress(DiskFailed):  # a trim that changes nothing is staged, but not written
            await self.log.sync()


@pytest.fixture(autouse=True, scope="module")
def dense_index() -> Iterator[None]:
    """Files in these tests are small: without this, each would have a single entry in its index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "INDEX_EVERY_BYTES", 1000)
        patch.setattr(reader, "INDEX_EVERY_BYTES", 1000)
        patch.setattr(reader, "LEAST_READ_BYTES", 256)
        yield


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_history_with_crashes(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    run(History().play(steps))


def long_history(random: Random) -> list[tuple]:  # type: ignore[type-arg]
    """Longer than shrinking likes: files are rolled, trimmed and recycled many times."""
    steps: list[tuple] = []  # type: ignore[type-arg]
    for _ in range(random.randint(20, 80)):
        shapes = [
            (random.randint(1, 4), random.choice([0, 30, 400, 3000, 9000]), random.randint(0, 9))
            for _ in range(random.randint(1, 6))
        ]
        bits = random.choice([random.getrandbits(64), random.getrandbits(64), 0, (1 << 64) - 1])
        choices: list[list[tuple]] = [  # type: ignore[type-arg]
            [("append", shapes)],
            [("bind", random.randint(1, 8), random.randint(0, 2))],
            [(random.choice(["sync", "sync", "sync", "collect", "reopen"]),)],
            [("trim", random.randint(0, 200))],
            [("crash", bits, random.choice([512, 4096]), random.randint(0, 8), random.random() < 0.5)],
            [("sync",), ("bind", 8, random.randint(0, 1)), ("sync",)],
        ]
        steps += random.choices(choices, weights=[35, 15, 20, 8, 12, 10])[0]
    return steps


@pytest.mark.parametrize("seed", range(50))
def test_a_long_history_with_crashes(seed: int) -> None:
    run(History().play(long_history(Random(seed))))
