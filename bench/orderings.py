"""What does an append cost under each ordering, and how long does a switch from one to another take?

./run python -m bench.orderings                everything
./run python -m bench.orderings --switches     the switches alone

Three storage nodes and one repository as processes, three replicas, every copy synced before the ack; under `leader`
and in a journal, whose leader is this process, two of three acknowledge. Rounds of all take turns, so that all meet
the same machine.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable
from itertools import pairwise
from pathlib import Path

import varlog
from bench import appends, machine
from bench.cluster import RunningCluster, running_cluster
from bench.scratch import scratch, wait_for_rest
from varlog.runtime.loop import run

ORDERINGS = ("cut", "leader", "sequencer")
DIRECTIONS = ("leader", "cut", "sequencer", "leader", "sequencer", "cut")
"""From `cut` on, all six."""
ROUNDS = 5
SECONDS = 2.0
WRITERS = 8
SWITCHES = 100


async def rates(
    cluster: RunningCluster, folder: Path, logs: dict[str, varlog.Log | varlog.JournalLeader]
) -> tuple[dict[str, float], list[machine.Machine]]:
    """Rows of all, median and range over rounds that take turns; median times of an append alone, and the limits."""
    found: dict[tuple[str, str], list[appends.Rate]] = {}
    limits = []
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
        limits.append(await asyncio.to_thread(machine.measure, folder))
        for ordering, log in logs.items():
            for work, measured in (
                ("alone", await appends.singles(cluster, log, 1, SECONDS)),
                ("64 at once", await appends.singles(cluster, log, 64, SECONDS)),
                ("1000 x 100 B", await appends.batches(cluster, log, 1000, 100, SECONDS)),
            ):
                found.setdefault((work, ordering), []).append(measured)
    print("| work | ordering | entries/s | p50, ms | p99, ms |\n|---|---|---|---|---|")
    for (work, ordering), rounds in sorted(found.items()):
        speeds = sorted(each.per_second for each in rounds)
        p50 = sorted(each.median_s * 1e3 for each in rounds)
        p99 = sorted(each.p99_s * 1e3 for each in rounds)
        middle = len(rounds) // 2
        print(
            f"| {work} | {ordering} | {speeds[middle]:,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f}) "
            f"| {p50[middle]:.2f} ({p50[0]:.2f}-{p50[-1]:.2f}) | {p99[middle]:.1f} |"
        )
    return {name: statistics.median(each.median_s for each in found["alone", name]) for name in logs}, limits


async def switches(log: varlog.Log) -> None:
    """Switch in all directions under load; the pause of one is the longest time between two acks around it.

    Beside it the longest one in as much time without a switch: disks make pauses of their own.
    """
    ended: list[float] = []
    stopping = False
    payload = os.urandom(100)

    async def write() -> None:
        while not stopping:
            await log.append(payload)
            ended.append(time.perf_counter())

    async def pause_around(work: Awaitable[object]) -> float:
        first = max(0, len(ended) - 1)
        await work
        after = len(ended)
        while len(ended) < after + 2 * WRITERS:  # noqa: ASYNC110 - an event for each append would be measured, too
            await asyncio.sleep(0.01)
        return max(b - a for a, b in pairwise(ended[first:])) * 1e3

    writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
    pauses: dict[str, list[float]] = {}
    usual: list[float] = []
    for number in range(SWITCHES):
        direction = f"{DIRECTIONS[number % 6 - 1]} to {DIRECTIONS[number % 6]}"
        await asyncio.sleep(0.1)
        began = time.perf_counter()
        pause = await pause_around(log.reconfigure(ordering=DIRECTIONS[number % 6]))
        pauses.setdefault(direction, []).append(pause)
        await asyncio.sleep(0.1)
        usual.append(await pause_around(asyncio.sleep(time.perf_counter() - began - 0.1)))
    stopping = True
    await asyncio.gather(*writers)
    await check_entries(log, len(ended))
    pauses["all"] = [pause for found in pauses.values() for pause in found]
    pauses["without a switch, in as much time"] = usual
    for direction, found in pauses.items():
        p99 = statistics.quantiles(found, n=100)[98]
        print(f"{direction}: {len(found)} times, pause p50 {statistics.median(found):.0f} ms, p99 {p99:.0f} ms")


async def check_entries(log: varlog.Log, acknowledged: int) -> None:
    """As many as were acknowledged; under `sequencer` positions may have been given up beside them."""
    entries = 0
    async for batch in log.subscribe(1, wait=False).batches():
        entries += len(batch)
    assert entries == acknowledged, f"{acknowledged} appends were acknowledged, {entries} entries are there"
    print(f"{entries:,} entries, none lost or doubled; {await log.tail() - entries} positions were given up")


def compare(alone: dict[str, float], limits: list[machine.Machine]) -> None:
    """An append alone beside the limits of the same rounds."""
    echo, sync, rested, three, bare_cut, bare_leader, bare_sockets = (
        statistics.median(getattr(each, f"{name}_s") for each in limits)
        for name in ("echo", "sync_1k", "sync_1k_rested", "sync_1k_three", "bare_cut", "bare_leader", "bare_sockets")
    )
    print(f"echo {echo * 1e6:.0f} us, write and sync of 1 KiB {sync * 1e6:.0f} us, after a rest {rested * 1e6:.0f} us")
    print(f"the same by three processes at once {three * 1e6:.0f} us")
    print(f"with no log in it: cut {bare_cut * 1e6:.0f} us, leader {bare_leader * 1e6:.0f} us, ", end="")
    print(
        f"on blocking sockets {bare_sockets * 1e6:.0f} us, {bare_sockets / (echo + sync):.2f} x (a round trip + a sync)"
    )
    bare = {"cut": bare_cut, "leader": bare_leader, "journal": bare_leader}
    for name, seconds in alone.items():
        beside = f", {seconds / bare[name]:.2f} x with no log in it" if name in bare else ""
        print(
            f"{name} alone: {seconds / (echo + sync):.2f} x (one round trip + one sync), "
            f"{seconds / (echo + rested):.2f} x (one round trip + one sync after a rest){beside}"
        )


async def main(folder: Path) -> None:
    with running_cluster(folder, nodes=3) as cluster:
        async with varlog.connect(cluster.url) as connected:
            if "--switches" not in sys.argv[1:]:
                logs: dict[str, varlog.Log | varlog.JournalLeader] = {
                    name: await connected.create_log(name, ordering=name, replicas=3) for name in ORDERINGS
                }
                async with connected.journal("wal") as journal, journal.lead() as leader:
                    alone, limits = await rates(cluster, folder, logs | {"journal": leader})
                compare(alone, limits)
                await asyncio.to_thread(wait_for_rest, folder)  # what was written is written back
            await switches(await connected.create_log("switched", ordering="cut", replicas=3))


if __name__ == "__main__":
    run(main(scratch()))
