"""Appends under each ordering beside each other, and an append alone beside the machine's limits of the same minutes.

Three replicas, every copy synced before the ack; under `leader` and in a journal, whose leader is this process, two of
three acknowledge, in a chain all three. Rounds of all take turns, so that all meet the same machine.
"""

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import varlog
from bench import appends, machine
from bench.cluster import RunningCluster
from bench.figures import Figure, spread
from bench.load import Appending

ALONE = "alone"
LED = ("leader", "journal")
"""Both forms of `leader`, to be quicker than"""
OTHERS = ("cut", "sequencer")
WANTED = 1.5
"""Times a round trip and a sync."""

Found = dict[tuple[str, str], list[appends.Rate]]
"""By work and ordering, one of each round."""


@dataclass(frozen=True)
class Pace:
    """How long it takes, and how much the figures are worth."""

    rounds: int = 5
    seconds: float = 2.0
    """Of one kind of work; half of it for batches, since what they write stays on the disk until all has ended."""


QUICK = Pace(1, 0.3)


@asynccontextmanager
async def all_orderings(cluster: varlog.Cluster) -> AsyncIterator[dict[str, Appending]]:
    """A log of each kind; the journals are led inside the block."""
    logs: dict[str, Appending] = {
        name: await cluster.create_log(name, ordering=name, replicas=3) for name in (*OTHERS, "leader")
    }
    logs["leader, chain"] = await cluster.create_log("chain", ordering="leader", replication="chain", replicas=3)
    async with (
        cluster.journal("wal") as wal,
        cluster.journal("wal-chain", replication="chain") as chained,
        wal.lead() as leader,
        chained.lead() as leader_of_chain,
    ):
        yield logs | {"journal": leader, "journal, chain": leader_of_chain}


async def measure(cluster: RunningCluster, folder: Path, pace: Pace) -> list[Figure]:
    found: Found = {}
    limits = []
    async with varlog.connect(cluster.url) as connected, all_orderings(connected) as logs:
        for number in range(pace.rounds):
            print(f"round {number + 1} of {pace.rounds}", file=sys.stderr)
            limits.append(await asyncio.to_thread(machine.measure, folder))
            for ordering, log in logs.items():
                for work, measured in (
                    (ALONE, await appends.singles(cluster, log, 1, pace.seconds)),
                    ("64 at once", await appends.singles(cluster, log, 64, pace.seconds)),
                    ("1000 × 100 B", await appends.batches(cluster, log, 1000, 100, pace.seconds / 2)),
                ):
                    found.setdefault((work, ordering), []).append(measured)
    print_rates(found)
    alone = {name: statistics.median(each.median_s for each in found[ALONE, name]) for name in logs}
    return compare(alone, limits)


def print_rates(found: Found) -> None:
    """Medians and ranges over the rounds, work by work."""
    print("| work | ordering | entries/s | p50, ms | p99, ms |\n|---|---|---|---|---|")
    for work in dict.fromkeys(work for work, _ in found):
        for ordering in (ordering for each, ordering in found if each == work):
            rounds = found[work, ordering]
            p99 = statistics.median(each.p99_s for each in rounds) * 1e3
            print(
                f"| {work} | {ordering} | {spread([each.per_second for each in rounds], ',.0f')} "
                f"| {spread([each.median_s * 1e3 for each in rounds], '.2f')} | {p99:.1f} |"
            )


def compare(alone: dict[str, float], limits: list[machine.Machine]) -> list[Figure]:
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
    sys.stdout.flush()
    return judge(alone, echo + sync)


def judge(alone: dict[str, float], least: float) -> list[Figure]:
    times = ", ".join(f"{name} {alone[name] * 1e3:.2f} ms" for name in (*LED, *OTHERS))
    lowest = max(alone[name] for name in LED) < min(alone[name] for name in OTHERS)
    return [
        Figure("append alone: `leader`, served and as a journal", "less than under any other ordering", times, lowest),
        *(
            Figure(
                f"append alone: `leader`, {'served' if name == 'leader' else 'as a journal'}",
                f"at most {WANTED} × (a round trip + a sync), {WANTED * least * 1e3:.2f} ms in this run",
                f"{alone[name] / least:.2f} ×, {alone[name] * 1e3:.2f} ms",
                alone[name] <= WANTED * least,
            )
            for name in LED
        ),
    ]
