"""How soon is the leader of a journal replaced, and does it need the repository to append?

./run python -m bench.journal

Three storage nodes and one repository as processes, three replicas, two of them acknowledge. Leaders and candidates
are clients of this process, on connections of their own; one that dies closes nothing and says nothing any more.
"""

import asyncio
import os
import signal
import statistics
import time
from pathlib import Path

import varlog
from bench.cluster import RunningCluster, running_cluster
from bench.scratch import scratch
from varlog.runtime.loop import run

ROUNDS = 30
TTL_S = 0.5
AWAY_S = 2.0
WRITERS = 8


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


async def replacements(cluster: varlog.Cluster, other: varlog.Cluster) -> None:
    """From the end of a lease, or from when a leader leaves, to the first acknowledgement of the next."""
    journals = [await each.journal("replaced").__aenter__() for each in (cluster, other)]
    after_lease, after_leaving = [], []
    for number in range(ROUNDS):
        ours, theirs = journals[number % 2], journals[1 - number % 2]
        leader = await ours.lead(ttl=TTL_S).__aenter__()
        elected = time.perf_counter()
        waiting = asyncio.create_task(first_ack(theirs))
        await die(leader)
        following, at = await waiting
        after_lease.append((at - elected - TTL_S) * 1e3)
        waiting = asyncio.create_task(first_ack(ours))
        await asyncio.sleep(0.05)
        left = time.perf_counter()
        await following.__aexit__(None, None, None)
        last, at = await waiting
        after_leaving.append((at - left) * 1e3)
        await last.__aexit__(None, None, None)
    for what, found in (("its lease is over", after_lease), ("it leaves", after_leaving)):
        print(
            f"first acknowledgement of the next leader after {what}: p50 {statistics.median(found):.0f} ms, "
            f"longest {max(found):.0f} ms of {len(found)}"
        )


async def without_repository(running: RunningCluster, cluster: varlog.Cluster) -> None:
    """Appends while the repository is stopped, beside as long a time before."""
    (repository,) = (process for process in running.processes if process.role == "repository")
    payload = os.urandom(100)
    async with cluster.journal("alone") as journal, journal.lead(ttl=2 * AWAY_S) as leader:
        counts = []
        for stopped in (False, True):
            if stopped:
                os.kill(repository.pid, signal.SIGSTOP)
            try:
                until = time.perf_counter() + AWAY_S
                counts.append(sum(await asyncio.gather(*(write(leader, payload, until) for _ in range(WRITERS)))))
            finally:
                os.kill(repository.pid, signal.SIGCONT)
        print(f"appends/s with the repository {counts[0] / AWAY_S:,.0f}, without it {counts[1] / AWAY_S:,.0f}")


async def write(leader: varlog.JournalLeader, payload: bytes, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        await leader.append(payload)
        count += 1
    return count


async def main(folder: Path) -> None:
    with running_cluster(folder, nodes=3) as running:
        async with varlog.connect(running.url) as cluster, varlog.connect(running.url) as other:
            await replacements(cluster, other)
            await without_repository(running, cluster)


if __name__ == "__main__":
    run(main(scratch()))
