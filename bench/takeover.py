"""How soon does a log go on when the node that numbers its entries dies or stands still?

./run python -m bench.takeover                 everything, four minutes
./run python -m bench.takeover --quick         once each: whether it works

Four storage nodes and one repository as processes, three replicas, eight writers; `leader` and `sequencer` in turn. A
node that is gone (SIGKILL) is noticed after the repository's `lost_ms`, one that stands still (SIGSTOP) after
`silent_ms` and `lost_ms`: what is printed is the time from there to the first append that is acknowledged in the next
segment, of those that begin meanwhile, one every 5 ms; and until the first and the last of the eight writers go on,
whose appends were on their way to the node that was lost. Then the repository is stopped, for longer than any lease,
under the same load.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import varlog
from bench import away
from bench.cluster import RunningCluster, running_cluster
from bench.figures import Figure, milliseconds
from bench.load import WRITERS, Load, check
from bench.losses import LOSSES, first_elsewhere, lost
from varlog.runtime.loop import run

ORDERINGS = ("leader", "sequencer")
ROUNDS = 5
BEFORE_S = 1.0
AHEAD_S = 0.1
"""Appends begin so long before the loss is noticed."""
EVERY_S = 0.005
TIMEOUT_S = 30.0
WANTED_S = 0.150


@dataclass(frozen=True)
class Takeover:
    """Seconds from when a loss is noticed, in each round."""

    resumed: list[float]
    """To the first append in the next segment,"""
    first: list[float]
    """and to the first acknowledgement of a writer that waited,"""
    last: list[float]
    """and of the last of them."""


async def one_takeover(cluster: RunningCluster, ordering: str, how: signal.Signals) -> tuple[float, float, float]:
    async with varlog.connect(cluster.url, timeout=TIMEOUT_S) as connected:
        log = await connected.create_log("lost", ordering=ordering, replicas=3)
        load = Load([log])
        await asyncio.sleep(BEFORE_S)
        stream = (await log.info()).chain[-1].streams[0]
        async with lost(cluster.process("node", stream.members[0]), how, connected) as noticed:
            begin = noticed - AHEAD_S
            await asyncio.sleep(begin - time.perf_counter())
            resumed, meanwhile = await first_elsewhere(log, stream.id, EVERY_S)
            await load.all_go_on(1)
        await load.stop()
        await check(log, load, meanwhile)
        answered = [min(at for at in writer.ended if at > begin) - noticed for writer in load.writers]
        return resumed - noticed, min(answered), max(answered)


def takeover(folder: Path, ordering: str, how: signal.Signals, rounds: int) -> Takeover:
    """Each round is a cluster of its own."""
    found = []
    for _ in range(rounds):
        with running_cluster(folder, nodes=4) as cluster:
            found.append(run(one_takeover(cluster, ordering, how)))
    resumed, first, last = (list(column) for column in zip(*found, strict=True))
    return Takeover(resumed, first, last)


def measure(folder: Path, rounds: int) -> Iterator[Figure]:
    for ordering in ORDERINGS:
        for how, word in LOSSES.items():
            found = takeover(folder, ordering, how, rounds)
            print(
                f"{ordering}, its first node {word}; from when that was noticed to the next append: "
                f"{milliseconds(found.resumed)}; to the first of {WRITERS} that waited: {milliseconds(found.first)}; "
                f"to the last: {milliseconds(found.last)}",
                flush=True,
            )
            yield Figure(
                f"`{ordering}`, its first node {word}: replaced",
                f"within {WANTED_S * 1e3:.0f} ms of being noticed",
                f"{milliseconds(found.resumed)}; who waited, {max(found.last) * 1e3:.0f} ms at most",
                max(found.resumed) <= WANTED_S,
            )


async def without_repository(cluster: RunningCluster, stopped_s: float) -> list[Figure]:
    figures = []
    async with varlog.connect(cluster.url) as connected:
        for ordering in ORDERINGS:
            log = await connected.create_log(f"alone-{ordering}", ordering=ordering, replicas=3)
            figures.append(await away.without_repository(cluster, f"`{ordering}`", log, log, stopped_s))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.takeover", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round each")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    for _ in measure(options.folder, 1 if options.quick else ROUNDS):
        pass
    with running_cluster(options.folder, nodes=4) as cluster:
        run(without_repository(cluster, away.QUICK_S if options.quick else away.STOPPED_S))


if __name__ == "__main__":
    main()
