"""How fast are appends? One alone, many at once, and in batches; three replicas, synced before each ack."""

import asyncio
import os
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import varlog
from bench.cluster import RunningCluster


@dataclass(frozen=True)
class Rate:
    """What one kind of work reached."""

    entries: int
    entry_bytes: int
    seconds: float
    median_s: float
    p99_s: float
    cpu_s: float
    """Of all processes, the client's too."""

    @property
    def per_second(self) -> float:
        return self.entries / self.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.per_second * self.entry_bytes

    @property
    def cpu_per_entry_s(self) -> float:
        return self.cpu_s / self.entries


Work = Callable[[], Awaitable[object]]


async def measure(
    cluster: RunningCluster, work: Work, *, workers: int, entries: int, entry_bytes: int, seconds: float
) -> Rate:
    """Run `work` by a number of workers, each waiting for its ack before it goes on."""
    times: list[float] = []

    async def worker(until: float, record: bool) -> None:
        while (start := time.perf_counter()) < until:
            await work()
            if record:
                times.append(time.perf_counter() - start)

    await asyncio.gather(*[worker(time.perf_counter() + seconds / 5, False) for _ in range(workers)])
    cpu, start = cluster.cpu_s() + own_cpu_s(), time.perf_counter()
    await asyncio.gather(*[worker(start + seconds, True) for _ in range(workers)])
    took = time.perf_counter() - start
    cpu = cluster.cpu_s() + own_cpu_s() - cpu
    p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    return Rate(len(times) * entries, entry_bytes, took, statistics.median(times), p99, cpu)


def own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def singles(
    cluster: RunningCluster, log: varlog.Log | varlog.JournalLeader, workers: int, seconds: float
) -> Rate:
    """Single appends of 100 bytes; those that wait together travel together."""
    payload = os.urandom(100)
    return await measure(
        cluster, lambda: log.append(payload), workers=workers, entries=1, entry_bytes=100, seconds=seconds
    )


async def batches(
    cluster: RunningCluster,
    log: varlog.Log | varlog.JournalLeader,
    count: int,
    size: int,
    seconds: float,
    workers: int = 8,
) -> Rate:
    """Batches, eight at a time."""
    payloads = [os.urandom(size) for _ in range(count)]
    return await measure(
        cluster, lambda: log.append_batch(payloads), workers=workers, entries=count, entry_bytes=size, seconds=seconds
    )


@dataclass(frozen=True)
class Memory:
    """A producer's life: a million entries, one `send` each."""

    entries: int
    seconds: float
    resident_before: int
    resident_most: int


async def producer(log: varlog.Log, entries: int = 1_000_000) -> Memory:
    """Send one by one through a producer, and watch this process's memory."""
    payload = os.urandom(100)
    before, most = resident_bytes(), 0
    start = time.perf_counter()
    async with log.producer(linger=0.002) as sender:
        for number in range(entries):
            await sender.send(payload)
            if not number % 20_000:
                most = max(most, resident_bytes())
        await sender.flush()
    return Memory(entries, time.perf_counter() - start, before, max(most, resident_bytes()))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
