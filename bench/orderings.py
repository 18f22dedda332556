"""All that is wanted of the orderings, in one run: appends, switches, takeovers, and a repository that is stopped.

./run python -m bench.orderings                everything, a quarter of an hour and up to 60 GB
./run python -m bench.orderings --quick        two minutes: whether it works, not what it reaches
./run python -m bench.orderings --switches     the switches alone, as bench.switches

Each question has its own file, bench.rates, bench.switches, bench.takeover and bench.journal, and all but the first
their own command. Each gets a cluster of its own, which begins on a disk at rest: three storage nodes and one
repository as processes, four nodes where one of them is lost. At the end stands one table of what is wanted and what
was seen.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import away, journal, rates, switches, takeover
from bench.cluster import running_cluster
from bench.figures import Figure, print_table
from bench.scratch import clear, need
from varlog.runtime.loop import run

MOST_GB = 60
QUICK_GB = 15


def everything(folder: Path, *, quick: bool) -> Iterator[Figure]:
    say("appends under each ordering")
    with running_cluster(folder) as cluster:
        yield from run(rates.measure(cluster, folder, rates.QUICK if quick else rates.Pace()))
    clear()
    yield from only_switches(folder, quick=quick)
    clear()
    say("takeovers")
    yield from takeover.measure(folder, 1 if quick else takeover.ROUNDS)
    clear()
    say("a journal's takeovers, and the repository stopped")
    stopped_s = away.QUICK_S if quick else away.STOPPED_S
    with running_cluster(folder) as cluster:
        yield from run(takeover.without_repository(cluster, stopped_s))
        yield from run(journal.measure(cluster, journal.QUICK_ROUNDS if quick else journal.ROUNDS, stopped_s))


def only_switches(folder: Path, *, quick: bool) -> Iterator[Figure]:
    say("switches")
    with running_cluster(folder) as cluster:
        yield from run(switches.measure(cluster, switches.QUICK_COUNT if quick else switches.COUNT))


def say(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.orderings", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--switches", action="store_true", help="the switches alone")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    parts = only_switches if options.switches else everything
    need(options.folder, QUICK_GB if options.quick or options.switches else MOST_GB)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    print_table(list(parts(options.folder, quick=options.quick)))


if __name__ == "__main__":
    main()
