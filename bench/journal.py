"""How soon is the leader of a journal replaced, and does it need the repository to append?

./run python -m bench.journal                 thirty rounds
./run python -m bench.journal --quick         three

Three storage nodes and one repository as processes, three replicas, two of them acknowledge. Leaders and candidates
are clients of this process, on connections of their own; one that dies closes nothing and says nothing any more.
"""

import argparse
import asyncio
import time
from pathlib import Path

import varlog
from bench import away
from bench.cluster import RunningCluster, running_cluster
from bench.figures import Figure, milliseconds
from bench.takeover import WANTED_S
from varlog.runtime.loop import run

ROUNDS, QUICK_ROUNDS = 30, 3
TTL_S = 0.5


async def die(leader: varlog.JournalLeader) -> None:
    """As a process that is stopped: no more word, no more answers."""
    leadership = leader._leadership
    await leadership._scope.close()
    if leadership._segment is not None:
        await leadership._segment.close()


async def first_ack(journal: varlog.Journal) -> tuple[varlog.JournalLeader, float]:
    """A candidate, and when its first event is acknowledged."""
    leader = await journal.lead(ttl=TTL_S).__aenter__()
    await leader.append(b"first")
    return leader, time.perf_counter()


async def replacements(cluster: varlog.Cluster, other: varlog.Cluster, rounds: int) -> Figure:
    """From the end of a lease, or from when a leader leaves, to the first acknowledgement of the next."""
    journals = [await each.journal("replaced").__aenter__() for each in (cluster, other)]
    after_lease, after_leaving = [], []
    for number in range(rounds):
        ours, theirs = journals[number % 2], journals[1 - number % 2]
        leader = await ours.lead(ttl=TTL_S).__aenter__()
        elected = time.perf_counter()
        waiting = asyncio.create_task(first_ack(theirs))
        await die(leader)
        following, at = await waiting
        after_lease.append(at - elected - TTL_S)
        waiting = asyncio.create_task(first_ack(ours))
        await asyncio.sleep(0.05)
        left = time.perf_counter()
        await following.__aexit__(None, None, None)
        last, at = await waiting
        after_leaving.append(at - left)
        await last.__aexit__(None, None, None)
    for what, found in (("its lease is over", after_lease), ("it leaves", after_leaving)):
        print(f"first acknowledgement of the next leader after {what}: {milliseconds(found)}", flush=True)
    return Figure(
        "a journal's dead leader: replaced",
        f"within {WANTED_S * 1e3:.0f} ms of the end of its lease",
        milliseconds(after_lease),
        max(after_lease) <= WANTED_S,
    )


async def measure(running: RunningCluster, rounds: int, stopped_s: float) -> list[Figure]:
    async with varlog.connect(running.url) as cluster, varlog.connect(running.url) as other:
        replaced = await replacements(cluster, other, rounds)
        async with cluster.journal("alone") as journal, journal.lead(ttl=TTL_S) as leader:
            return [replaced, await away.without_repository(running, "a journal", journal, leader, stopped_s)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.journal", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    rounds, stopped_s = (QUICK_ROUNDS, away.QUICK_S) if options.quick else (ROUNDS, away.STOPPED_S)
    with running_cluster(options.folder) as running:
        run(measure(running, rounds, stopped_s))


if __name__ == "__main__":
    main()
