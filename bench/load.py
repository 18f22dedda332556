"""Writers whose every entry says whose it is and the how many-th, a reader that follows them, and what must come of it.

While they are at work they only keep what they are told. All is compared when they have ended: every acknowledged
append is at its acknowledged position, exactly once, and nothing else is in the log; each writer's entries are in its
order; who read along got what is read afterwards.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import varlog

WRITERS = 8
FILLER_BYTES = 90
"""Beside ten that tell entries apart."""
LOOK_S = 0.01
"""How often it is looked how far they are: an event for each append would be measured, too."""
PATIENCE_S = 60.0
"""For what has to come in the end."""

Placed = list[tuple[int, bytes]]
"""Payloads, each behind its position."""
Appending = varlog.Log | varlog.JournalLeader


class Writer:
    """Appends one entry after the other."""

    def __init__(self, log: Appending, number: int) -> None:
        self.ended: list[float] = []
        """When each append was acknowledged,"""
        self.positions: list[int] = []
        """and where it is."""
        self._log = log
        self._head = number.to_bytes(2)
        self._filler = os.urandom(FILLER_BYTES)
        self._stopping = False
        self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while not self._stopping:
            ack = await self._log.append(self._payload(len(self.ended)))
            self.ended.append(time.perf_counter())
            self.positions.append(ack.glsn)

    def _payload(self, index: int) -> bytes:
        return self._head + index.to_bytes(8) + self._filler

    def check(self) -> None:
        """Raises what has ended it, if something has."""
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """On return all its appends are acknowledged."""
        self._stopping = True
        await self._task

    def placed(self) -> Placed:
        return [(position, self._payload(index)) for index, position in enumerate(self.positions)]

    def in_order(self) -> bool:
        return all(a < b for a, b in pairwise(self.positions))


class Load:
    """Writers, in turn through the handles they are given."""

    def __init__(self, logs: Sequence[Appending], writers: int = WRITERS) -> None:
        self.writers = [Writer(logs[number % len(logs)], number) for number in range(writers)]

    @property
    def count(self) -> int:
        """Appends that are acknowledged."""
        return sum(len(writer.ended) for writer in self.writers)

    async def all_go_on(self, times: int) -> None:
        """Until every writer has got so many acknowledgements more."""
        wanted = [len(writer.ended) + times for writer in self.writers]
        while any(len(writer.ended) < count for writer, count in zip(self.writers, wanted, strict=True)):
            for writer in self.writers:
                writer.check()
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        await asyncio.gather(*(writer.stop() for writer in self.writers))

    def ended(self) -> list[float]:
        """When appends were acknowledged, whosever they were."""
        return sorted(at for writer in self.writers for at in writer.ended)

    def placed(self) -> Placed:
        return [each for writer in self.writers for each in writer.placed()]


class Reader:
    """Follows a log from its beginning."""

    def __init__(self, log: varlog.Log) -> None:
        self.count = 0
        """Entries that it has got."""
        self._log = log
        self._batches: list[varlog.ReadBatch] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for run in self._log.subscribe(1).runs():
            self._batches += run
            self.count += sum(map(len, run))

    async def stop(self, count: int) -> Placed:
        """What it has got, once that is as many; or what it has after a long time without."""
        until = time.perf_counter() + PATIENCE_S
        while self.count < count and time.perf_counter() < until and not self._task.done():  # noqa: ASYNC110 - see LOOK_S
            await asyncio.sleep(LOOK_S)
        if self._task.done():
            self._task.result()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return entries(self._batches)


def entries(batches: Iterable[varlog.ReadBatch]) -> Placed:
    return [(batch.first + index, payload) for batch in batches for index, payload in enumerate(batch.payloads())]


async def whole(log: varlog.Log) -> Placed:
    """All that is in the log, as it is read now."""
    return entries([batch async for batch in log.subscribe(1, wait=False).batches()])


def problems(load: Load, there: Placed, others: Placed | None = None, along: Placed | None = None) -> list[str]:
    """What is not as it must be. `others` were acknowledged, too, in no order; `along` is what a reader got live."""
    acknowledged = Counter(load.placed() + (others or []))
    found = Counter(there)
    listed = {
        "acknowledged appends are not where they were acknowledged": (acknowledged - found).total(),
        "entries are there that nobody was told of, or once more": (found - acknowledged).total(),
        "entries were read out of order": sum(b[0] <= a[0] for a, b in pairwise(there)),
        "writers find their entries in another order": sum(not writer.in_order() for writer in load.writers),
        "entries are not what a reader got live": 0 if along is None else differences(along, there),
    }
    return [f"{count:,} {what}" for what, count in listed.items() if count]


def differences(one: Placed, other: Placed) -> int:
    """At how many places of two sequences there is not the same."""
    return sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))


async def check(log: varlog.Log, load: Load, others: Placed | None = None) -> None:
    """To be called when the writers have stopped. A bench whose log is wrong has measured nothing."""
    found = problems(load, await whole(log), others)
    if found:
        raise RuntimeError(f"log {log.name}: {'; '.join(found)}")
