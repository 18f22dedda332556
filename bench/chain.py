"""Large entries and many copies: does a chain do what it is for? Beside the broadcast of the same batches.

./run python -m bench.chain                 half a minute
./run python -m bench.chain --quick         once, for a moment

Five storage nodes and one repository as processes, five replicas, batches of 100 entries of 10 KiB, eight at once. A
chain acknowledges what all five have; a broadcast what three have, as is usual, or all five, which is the like of a
chain. `leader` is led by a node, a journal by this process. Rounds of all take turns. Beside the rates stands what of
the processor the leader spends on an entry, and each of the other members: what leaves the leader once costs it less,
also where there is no network between them that could be the limit.
"""

import argparse
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import varlog
from bench import appends
from bench.cluster import RunningCluster, running_cluster
from bench.figures import spread
from bench.load import Appending
from bench.rates import QUICK, Pace
from varlog.runtime.loop import run

REPLICAS = 5
ENTRIES, ENTRY_BYTES = 100, 10 << 10
PACE = Pace(rounds=5, seconds=0.5)
"""Short: five copies of what it writes stay on the disk until it ends, a gigabyte a second."""
FORMS = {"broadcast, 3 of 5": ("broadcast", 3), "broadcast, 5 of 5": ("broadcast", 5), "chain": ("chain", 5)}


@dataclass(frozen=True)
class Measured:
    """One form in one round, and the processor's seconds for an entry."""

    rate: appends.Rate
    leader_s: float
    member_s: float
    """Of each member that does not lead."""


@asynccontextmanager
async def all_forms(cluster: varlog.Cluster) -> AsyncIterator[dict[str, tuple[varlog.Log, Appending]]]:
    """Each log, and what to append through."""
    forms: dict[str, tuple[varlog.Log, Appending]] = {}
    for number, (name, (replication, ack)) in enumerate(FORMS.items()):
        log = await cluster.create_log(
            f"served-{number}", ordering="leader", replicas=REPLICAS, ack=ack, replication=replication
        )
        forms[f"leader, {name}"] = log, log
    async with AsyncExitStack() as stack:
        for number, (name, (replication, ack)) in enumerate(FORMS.items()):
            journal = await stack.enter_async_context(
                cluster.journal(f"journal-{number}", replicas=REPLICAS, ack=ack, replication=replication)
            )
            forms[f"journal, {name}"] = journal, await stack.enter_async_context(journal.lead())
        yield forms


async def one(cluster: RunningCluster, log: varlog.Log, through: Appending, seconds: float) -> Measured:
    members = [cluster.process("node", number) for number in (await log.info()).chain[-1].streams[0].members]
    head = members.pop(0) if through is log else None

    def spent() -> tuple[float, float]:
        own = appends.own_cpu_s() if head is None else head.cpu_s()
        return own, statistics.mean(each.cpu_s() for each in members)

    tail, before = await log.tail(), spent()
    rate = await appends.batches(cluster, through, ENTRIES, ENTRY_BYTES, seconds)
    after, entries = spent(), await log.tail() - tail
    leader_s, member_s = ((b - a) / entries for a, b in zip(before, after, strict=True))
    return Measured(rate, leader_s, member_s)


async def measure(cluster: RunningCluster, pace: Pace) -> None:
    found: dict[str, list[Measured]] = {}
    async with varlog.connect(cluster.url) as connected, all_forms(connected) as forms:
        for _ in range(pace.rounds):
            for name, (log, through) in forms.items():
                found.setdefault(name, []).append(await one(cluster, log, through, pace.seconds))
    print("| 100 × 10 KiB, five copies | entries/s | MB/s | p50, ms | p99, ms | CPU per entry, µs: leader | a member |")
    print("|---|---|---|---|---|---|---|")
    for name, rounds in found.items():
        rates = [each.rate for each in rounds]
        cells = [
            name,
            spread([each.per_second for each in rates], ",.0f"),
            f"{statistics.median(each.bytes_per_second for each in rates) / 1e6:.0f}",
            spread([each.median_s * 1e3 for each in rates], ".1f"),
            f"{statistics.median(each.p99_s for each in rates) * 1e3:.0f}",
            f"{statistics.median(each.leader_s for each in rounds) * 1e6:.1f}",
            f"{statistics.median(each.member_s for each in rounds) * 1e6:.1f}",
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.chain", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    with running_cluster(options.folder, nodes=REPLICAS) as cluster:
        run(measure(cluster, QUICK if options.quick else PACE))


if __name__ == "__main__":
    main()
