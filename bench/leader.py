"""How long does a log feel the loss of the leading repository? Three on an etcd, under load, the leading one killed.

    ./run python -m bench.leader            five rounds
    ./run python -m bench.leader --rounds 1

Each round is a cluster of its own: 3 nodes, a log of 2 streams of 3 replicas, 8 writers, default timeouts.
"""

import argparse
import asyncio
import os
import signal
import statistics
import time
from pathlib import Path

from tools.etcd import running

import varlog
from bench.cluster import Process, RunningCluster, running_cluster
from bench.scratch import scratch
from varlog.runtime.loop import run

REPOSITORIES = NODES = 3
WRITERS = 8
BEFORE_S, AFTER_S = 2.0, 7.0
UNDER_WAY_S = 0.1
"""What was ordered before the kill may be answered a little after."""


async def write(log: varlog.Log, ended: list[tuple[float, float]], until: float) -> None:
    """When each append ended, and how long it took."""
    payload = os.urandom(100)
    while (start := time.perf_counter()) < until:
        await log.append(payload, timeout=30)
        ended.append((time.perf_counter(), time.perf_counter() - start))
        await asyncio.sleep(0.002)


async def leader(cluster: RunningCluster) -> Process:
    """The one that answers for itself."""
    while True:
        for process in cluster.processes:
            if process.role == "repository":
                try:
                    async with varlog.connect(f"varlog://{process.address}", timeout=0.5) as connected:
                        await connected.status()
                        return process
                except varlog.VarlogError:
                    continue


async def measure(cluster: RunningCluster) -> tuple[float, float, float]:
    """Seconds without an ack; and the median of an append before and after."""
    async with varlog.connect(cluster.url) as connected:
        log = await connected.create_log("leader", replicas=3, streams=2)
        victim = await leader(cluster)
        ended: list[tuple[float, float]] = []
        begin = time.perf_counter()
        until = begin + BEFORE_S + AFTER_S
        writers = [asyncio.create_task(write(log, ended, until)) for _ in range(WRITERS)]
        await asyncio.sleep(BEFORE_S)
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.perf_counter()
        await asyncio.gather(*writers)
        resumed = min(at for at, _ in ended if at > killed + UNDER_WAY_S)
        before = statistics.median(took for at, took in ended if at < killed)
        after = statistics.median(took for at, took in ended if at > resumed + 0.5)
        return resumed - killed, before, after


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.leader", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=1, help="of etcd (default: 1)")
    options = parser.parse_args()
    print(f"{REPOSITORIES} repositories on an etcd of {options.members}, {NODES} nodes; the leading one killed.")
    for number in range(1, options.rounds + 1):
        with (
            running(scratch(Path.cwd()), options.members) as etcd,
            running_cluster(Path.cwd(), NODES, REPOSITORIES, etcd.endpoints) as cluster,
        ):
            pause, before, after = run(measure(cluster))
        print(
            f"round {number}: no append ended for {pause:.2f} s; median {before * 1e3:.1f} ms before, "
            f"{after * 1e3:.1f} ms after",
            flush=True,
        )


if __name__ == "__main__":
    main()
