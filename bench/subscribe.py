"""How fast does a subscriber read? Batches as they come, every payload, every entry as an object."""

import os
import time
from dataclasses import dataclass
from statistics import median

import varlog

AGAIN = 9


@dataclass(frozen=True)
class Reading:
    entries: int
    entry_bytes: int
    first_s: float
    """Batches only, for the first time: what a node let go of while it wrote comes from the disk."""
    batches_s: float
    """Batches only, the median of several times: each may be from another replica."""
    payloads_s: float
    entries_s: float


async def fill(log: varlog.Log, entries: int, size: int) -> None:
    """Entries to read, written in batches of 1000."""
    payloads = [os.urandom(size) for _ in range(1000)]
    async with log.producer() as sender:
        for _ in range(entries // 1000):
            await sender.send_batch(payloads)
        await sender.flush()


async def subscribe(log: varlog.Log, entries: int, size: int) -> Reading:
    await fill(log, entries, size)
    first = await log.tail() - entries + 1
    stop = first + entries

    async def batches_only() -> float:
        start = time.perf_counter()
        count = 0
        async for batch in log.subscribe(start=first, stop=stop).batches():
            count += len(batch)
        assert count == entries
        return time.perf_counter() - start

    first_s = await batches_only()
    batches_s = median([await batches_only() for _ in range(AGAIN)])

    start = time.perf_counter()
    count = 0
    async for batch in log.subscribe(start=first, stop=stop).batches():
        for payload in batch.payloads():
            count += len(payload)
    payloads_s = time.perf_counter() - start
    assert count == entries * size

    start = time.perf_counter()
    count = 0
    async for entry in log.subscribe(start=first, stop=stop):
        count += len(entry.payload)
    assert count == entries * size
    return Reading(entries, size, first_s, batches_s, payloads_s, time.perf_counter() - start)
