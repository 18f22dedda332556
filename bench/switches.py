"""How long does a switch from one ordering to another take, and is everything there afterwards, once and in order?

./run python -m bench.switches                 a hundred switches
./run python -m bench.switches --quick         twelve

A log under eight writers is switched in all six directions in turn. Half of the writers are on a connection that hears
nothing of the switch but what nodes and repository tell it, and a reader on a third one follows from the beginning.
The pause of a switch is the longest time between two acknowledgements around it, whosever they are; beside it the
longest time that any single writer waited for one, and the pauses in as much time without a switch: disks make some of
their own.
"""

import argparse
import asyncio
import statistics
import time
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import varlog
from bench.cluster import RunningCluster, running_cluster
from bench.figures import Figure, milliseconds, p99, print_table
from bench.load import Load, Reader, problems, whole
from varlog.runtime.loop import run

DIRECTIONS = ("leader", "cut", "sequencer", "leader", "sequencer", "cut")
"""From `cut` on, all six."""
COUNT, QUICK_COUNT = 100, 12
REST_S = 0.1
"""Before each switch, and before as much time without one."""
GO_ON = 2
"""A switch is over when every writer has got so many acknowledgements after it: the second was begun after it, too."""
WANTED_S = 0.100


@dataclass(frozen=True)
class Window:
    """From when a switch began to when every writer had gone on after it."""

    direction: str
    begin: float
    end: float

    def longest(self, times: Sequence[float]) -> float:
        """Between two that follow each other, of which one lies in the window, or it between them."""
        first = max(0, bisect_left(times, self.begin) - 1)
        return max(b - a for a, b in pairwise(times[first : bisect_right(times, self.end) + 1]))


async def observe(load: Load, direction: str, work: Awaitable[object]) -> Window:
    begin = time.perf_counter()
    await work
    await load.all_go_on(GO_ON)
    return Window(direction, begin, time.perf_counter())


async def measure(cluster: RunningCluster, count: int) -> list[Figure]:
    async with (
        varlog.connect(cluster.url) as asking,
        varlog.connect(cluster.url) as unaware,
        varlog.connect(cluster.url) as reading,
    ):
        log = await asking.create_log("switched", ordering="cut", replicas=3)
        reader = Reader(reading.log("switched"))
        load = Load([log, unaware.log("switched")])
        await load.all_go_on(GO_ON)
        switched: list[Window] = []
        usual: list[Window] = []
        behind = 0
        for number in range(count):
            before, after = DIRECTIONS[number % 6 - 1], DIRECTIONS[number % 6]
            await asyncio.sleep(REST_S)
            switched.append(await observe(load, f"`{before}` to `{after}`", log.reconfigure(ordering=after)))
            behind = max(behind, load.count - reader.count)
            await asyncio.sleep(REST_S)
            took = switched[-1].end - switched[-1].begin
            usual.append(await observe(load, "none, in as much time", asyncio.sleep(took)))
        await load.stop()
        there = await whole(log)
        along = await reader.stop(len(there))
        found = problems(load, there, along=along)
        given_up = await log.tail() - len(there)
    print(f"{len(there):,} entries, {given_up} positions were given up; the reader was {behind} behind at most")
    print(f"lost, doubled or reordered: {'; '.join(found) or 'nothing'}")
    return report(load, switched, usual, found)


def report(load: Load, switched: list[Window], usual: list[Window], found: list[str]) -> list[Figure]:
    acknowledged = load.ended()
    pauses = [window.longest(acknowledged) for window in switched]
    print(
        "| from, to | times | pause, p50 | longest | a single writer waited, p50 | longest |\n|---|---|---|---|---|---|"
    )
    directions = dict.fromkeys(window.direction for window in [*switched, *usual])
    for direction in directions:
        windows = [window for window in [*switched, *usual] if window.direction == direction]
        print(row(direction, windows, load, acknowledged))
    print(row("all", switched, load, acknowledged))
    beyond = sum(pause > WANTED_S for pause in pauses)
    usual_p99 = p99([window.longest(acknowledged) for window in usual])
    seen = f"p99 {p99(pauses) * 1e3:.0f} ms, {milliseconds(pauses)}; {beyond} longer than {WANTED_S * 1e3:.0f} ms"
    print(f"pauses of switches: {seen}; without a switch p99 {usual_p99 * 1e3:.0f} ms", flush=True)
    wanted = f"at most {WANTED_S * 1e3:.0f} ms at p99 of {COUNT}"
    return [
        Figure("a switch, any direction: pause of appends", wanted, seen, p99(pauses) <= WANTED_S),
        Figure(
            "by switches lost, doubled, reordered",
            "nothing",
            "; ".join(found) or f"nothing of {load.count:,}",
            not found,
        ),
    ]


def row(name: str, windows: list[Window], load: Load, acknowledged: list[float]) -> str:
    pauses = [window.longest(acknowledged) * 1e3 for window in windows]
    waits = [max(window.longest(writer.ended) for writer in load.writers) * 1e3 for window in windows]
    cells = [f"{value:.0f} ms" for column in (pauses, waits) for value in (statistics.median(column), max(column))]
    return f"| {name} | {len(windows)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.switches", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_COUNT} switches")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    with running_cluster(options.folder) as cluster:
        figures = run(measure(cluster, QUICK_COUNT if options.quick else COUNT))
    print_table(figures)


if __name__ == "__main__":
    main()
