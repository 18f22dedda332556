"""What the metadata store on etcd reaches: commits alone, many at once, and the cuts of a log.

    ./run python -m bench.etcd              1 and 3 members, a minute
    ./run python -m bench.etcd --quick

Everything is on one machine, members, disks and the client, which is one process. `raw` is a transaction of one put
without any of the store's own, to see what a marker costs; its figures are of values of 100 bytes. `cuts` are made by
the repository's orderer from reports of 8 streams with so many entries on their way: each waits until its cut is
announced, and after a while by chance, 2 ms in the mean, the next one follows. Without the while all would come at one
moment, and one cut after the other would be as good as several. `10 ms away` is the same etcd behind a long line.
A store in memory shows what the orderer itself takes.
"""

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import cast

from tools.etcd import running

from bench.scratch import scratch
from varlog.base.ids import LogId, NodeId, Slot, StreamId
from varlog.core.ordering.cut import Cut
from varlog.metadata.etcd import EtcdConfig, EtcdStore
from varlog.metadata.etcd.connection import TXN, Connection
from varlog.metadata.etcd.messages import put
from varlog.ports.metadata import MetadataStore, Transaction
from varlog.repository.orderer import WINDOW, Orderer
from varlog.runtime.clock import RealClock
from varlog.runtime.loop import run
from varlog.runtime.scope import Scope
from varlog.wire.proto import etcd_pb2
from varlog.wire.proto import varlog_pb2 as pb

VALUE = bytes(100)
MANY = 64
STREAMS = 8
PAUSE_S = 0.002
FAR_S = 0.01

Work = Callable[[int], Awaitable[object]]


@dataclass(frozen=True)
class Figure:
    name: str
    per_second: float
    median_s: float
    p99_s: float
    cpu_s: float
    """Of this process, for each."""


async def measure(name: str, work: Work, at_once: int, seconds: float, apart_s: float = 0.0) -> Figure:
    """`work` by so many tasks for so long, each beginning the next when one is done, or some time after."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    cpu = time.process_time()

    async def worker(number: int) -> None:
        random = Random(number)
        while time.perf_counter() < end:
            if apart_s:
                await asyncio.sleep(random.expovariate(1 / apart_s))
            start = time.perf_counter()
            await work(number)
            times.append(time.perf_counter() - start)

    started = time.perf_counter()
    await asyncio.gather(*(worker(number) for number in range(at_once)))
    took = time.perf_counter() - started
    return Figure(
        name, len(times) / took, median(times), quantiles(times, n=100)[98], (time.process_time() - cpu) / len(times)
    )


async def figures(endpoints: tuple[str, ...], seconds: float) -> list[Figure]:
    config = EtcdConfig(endpoints, prefix="bench/")
    connection = Connection(config)
    store = await EtcdStore.open(config)
    leadership = await store.elect("bench", "bench")
    fenced = store.fenced(leadership)

    async def raw(number: int) -> None:
        await connection.once(TXN, etcd_pb2.TxnRequest(success=[put(f"raw/{number}".encode(), VALUE)]))

    done = []
    for at_once in (1, MANY):
        for name, work in (("raw", raw), ("commit", committing(store)), ("fenced commit", committing(fenced))):
            done.append(await measure(f"{name}, {at_once} at once", work, at_once, seconds))
    far = cast(MetadataStore, Far(fenced))
    for place, kept in (("", fenced), (f" {FAR_S * 1e3:.0f} ms away", far)):
        for window in (1, WINDOW):
            for at_once in (1, 8, MANY):
                cuts = Cuts(kept, window)
                name = f"cuts{place}, window {window}, {at_once} at once"
                done.append(await measure(name, cuts.order, at_once, seconds, PAUSE_S))
                await cuts.close()
    await leadership.resign()
    await store.close()
    await connection.close()
    return done


def committing(store: MetadataStore) -> Work:
    return lambda number: store.commit(Transaction(put={f"key/{number}": VALUE}))


class Cuts:
    """A log whose members are made up: an entry is reported, and waits for its cut."""

    def __init__(self, store: MetadataStore, window: int) -> None:
        streams = [pb.StreamInfo(id=number, members=[1]) for number in range(1, STREAMS + 1)]
        log = pb.LogInfo(id=1, chain=[pb.SegmentInfo(epoch=1, base=1, streams=streams)])
        self._orderer = Orderer(store, RealClock(), self._announced, window)
        self._orderer.add(log)
        self._scope = Scope()
        for _ in range(window):
            self._scope.spawn(self._orderer.run(), name="cuts")
        self._tails = [0] * STREAMS
        self._waiting: list[deque[tuple[int, asyncio.Future[None]]]] = [deque() for _ in range(STREAMS)]

    async def order(self, number: int) -> None:
        index = number % STREAMS
        self._tails[index] += 1
        tail, ordered = self._tails[index], asyncio.get_running_loop().create_future()
        self._waiting[index].append((tail, ordered))
        self._orderer.report(LogId(1), NodeId(1), StreamId(index + 1), Slot(tail), Slot(tail - 1))
        await ordered

    def _announced(self, cuts: list[Cut]) -> None:
        for cut in cuts:
            for commit in cut.commits:
                waiting = self._waiting[commit.stream - 1]
                while waiting and waiting[0][0] <= commit.binding.slot_end:
                    waiting.popleft()[1].set_result(None)

    async def close(self) -> None:
        await self._scope.close()


class Far:
    """A store behind a long line."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def commit(self, transaction: Transaction) -> bool:
        await asyncio.sleep(FAR_S)
        return await self._store.commit(transaction)


class InMemory:
    """Takes everything at once."""

    async def commit(self, transaction: Transaction) -> bool:
        await asyncio.sleep(0)
        return True


async def in_memory(seconds: float) -> list[Figure]:
    done = []
    for at_once in (1, MANY):
        cuts = Cuts(cast(MetadataStore, InMemory()), 1)
        done.append(await measure(f"cuts, window 1, {at_once} at once", cuts.order, at_once, seconds))
        await cuts.close()
    return done


def report(where: str, done: list[Figure]) -> Iterator[str]:
    yield f"| {where} | /s | p50, ms | p99, ms | CPU of the client, µs |"
    yield "|---|---|---|---|---|"
    for each in done:
        cells = (f"{each.per_second:,.0f}", f"{each.median_s * 1e3:.2f}", f"{each.p99_s * 1e3:.1f}")
        yield f"| {each.name} | {' | '.join(cells)} | {each.cpu_s * 1e6:.0f} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.etcd", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first look")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    seconds = 0.7 if options.quick else 3.0
    for line in report("in memory", run(in_memory(seconds))):
        print(line)
    for members in (1, 3):
        with running(scratch(options.folder), members) as etcd:
            for line in report(f"{members} member{'s' * (members > 1)}", run(figures(etcd.endpoints, seconds))):
                print(line, flush=True)


if __name__ == "__main__":
    main()
