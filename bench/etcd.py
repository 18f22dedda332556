"""What the metadata store on etcd reaches: commits alone, many at once, and in a chain that keeps their order.

    ./run python -m bench.etcd              1 and 3 members, a minute
    ./run python -m bench.etcd --quick

Everything is on one machine, members, disks and the client, which is one process. `raw` is a transaction of one put
without any of the store's own, to see what a marker costs. Every figure is of values of 100 bytes.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from tools.etcd import running

from varlog.metadata.chain import Chain
from varlog.metadata.etcd import EtcdConfig, EtcdStore
from varlog.metadata.etcd.connection import TXN, Connection
from varlog.metadata.etcd.messages import put
from varlog.ports.metadata import MetadataStore, Transaction
from varlog.runtime.loop import run
from varlog.wire.proto import etcd_pb2 as pb

VALUE = bytes(100)
MANY = 64

Work = Callable[[int], Awaitable[object]]


@dataclass(frozen=True)
class Figure:
    name: str
    per_second: float
    median_s: float
    p99_s: float
    cpu_s: float
    """Of this process, for each."""


async def measure(name: str, work: Work, at_once: int, seconds: float) -> Figure:
    """`work` by so many tasks for so long, each beginning the next when one is done."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    cpu = time.process_time()

    async def worker(number: int) -> None:
        while (start := time.perf_counter()) < end:
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
        await connection.once(TXN, pb.TxnRequest(success=[put(f"raw/{number}".encode(), VALUE)]))

    done = []
    for at_once in (1, MANY):
        for name, work in (("raw", raw), ("commit", committing(store)), ("fenced commit", committing(fenced))):
            done.append(await measure(f"{name}, {at_once} at once", work, at_once, seconds))
    for window in (1, 2, 4):
        for at_once in (1, 4, MANY):
            chain = await Chain.open(fenced, f"chain/{window}/{at_once}", window)
            done.append(await measure(f"chain, window {window}, {at_once} at once", chained(chain), at_once, seconds))
            await chain.close()
    await leadership.resign()
    await store.close()
    await connection.close()
    return done


def committing(store: MetadataStore) -> Work:
    return lambda number: store.commit(Transaction(put={f"key/{number}": VALUE}))


def chained(chain: Chain) -> Work:
    return lambda number: chain.commit(Transaction(put={f"key/{number}": VALUE}))


def report(members: int, done: list[Figure]) -> Iterator[str]:
    yield f"| {members} member{'s' if members > 1 else ''} | /s | p50, ms | p99, ms | CPU of the client, µs |"
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
    for members in (1, 3):
        with TemporaryDirectory(dir=options.folder, prefix="bench-") as folder, running(Path(folder), members) as etcd:
            for line in report(members, run(figures(etcd.endpoints, 0.7 if options.quick else 3.0))):
                print(line, flush=True)


if __name__ == "__main__":
    main()
