"""How long does a log feel the loss of a node? Four streams on four nodes under load, one of them killed.

./run python -m bench.failover
"""

import asyncio
import os
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import varlog
from bench.cluster import running_cluster
from varlog.runtime.loop import run

NODES = STREAMS = 4
REPLICAS = 3
WRITERS = 4
"""For each stream; and as many that leave the choice of the stream to the client."""
BEFORE_S, AFTER_S = 3.0, 6.0


@dataclass
class Watched:
    """What writers of one kind saw."""

    times: list[tuple[float, float]] = field(default_factory=list)
    """When an append ended, and how long it took."""
    errors: list[str] = field(default_factory=list)

    def p99_ms(self, start: float, end: float) -> float:
        took = [seconds for at, seconds in self.times if start <= at < end]
        return statistics.quantiles(took, n=100)[98] * 1e3 if len(took) > 1 else float("nan")


async def write(log: varlog.Log, stream: int | None, watched: Watched, until: float) -> None:
    payload = os.urandom(100)
    while (start := time.perf_counter()) < until:
        try:
            await log.append(payload, stream=stream)
        except varlog.Sealed:
            return  # the stream it was told to use has ended
        except varlog.VarlogError as error:
            watched.errors.append(repr(error))
        watched.times.append((time.perf_counter(), time.perf_counter() - start))
        await asyncio.sleep(0.002)


async def whole_again(log: varlog.Log, lost: int) -> float:
    """When the log has as many open streams as it wants, none of them on the lost node."""
    while True:
        streams = (await log.info()).chain[-1].streams
        if sum(stream.writable and lost not in stream.members for stream in streams) >= STREAMS:
            return time.perf_counter()
        await asyncio.sleep(0.01)


async def measure(folder: Path) -> None:
    with running_cluster(folder, nodes=NODES) as cluster:
        async with varlog.connect(cluster.url) as connected:
            log = await connected.create_log("failover", replicas=REPLICAS, streams=STREAMS)
            streams = (await log.info()).chain[-1].streams
            victim = next(process for process in cluster.processes if process.role == "node")
            spared = [stream.id for stream in streams if victim.number not in stream.members]
            begin = time.perf_counter()
            end = begin + BEFORE_S + AFTER_S
            free, others = Watched(), Watched()
            tasks = [asyncio.create_task(write(log, None, free, end)) for _ in range(WRITERS)]
            for stream in streams:
                watched = others if stream.id in spared else Watched()
                tasks += [asyncio.create_task(write(log, stream.id, watched, end)) for _ in range(WRITERS)]
            await asyncio.sleep(BEFORE_S)
            os.kill(victim.pid, signal.SIGKILL)
            killed = time.perf_counter()
            whole = await whole_again(log, victim.number)
            await asyncio.gather(*tasks)
            report(streams, spared, free, others, begin, killed, whole)


def report(
    streams: tuple[varlog.StreamDescription, ...],
    spared: list[int],
    free: Watched,
    others: Watched,
    begin: float,
    killed: float,
    whole: float,
) -> None:
    print(f"{NODES} nodes, {len(streams)} streams of {REPLICAS} replicas; one node killed, default timeouts.")
    print(f"As many open streams as wanted again after {whole - killed:.2f} s.")
    longest = max(seconds for at, seconds in free.times if at >= killed)
    print(f"Appends to any stream: {len(free.errors)} errors, the longest took {longest:.2f} s.")
    before, after = others.p99_ms(begin + 1, killed), others.p99_ms(killed, whole + 2)
    print(f"Streams {spared}, not hurt: {len(others.errors)} errors, p99 {before:.1f} ms before, {after:.1f} ms after.")


if __name__ == "__main__":
    run(measure(Path.cwd()))
