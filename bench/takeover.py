"""How soon does a log go on when the node that numbers its entries is killed, and while the repository is stopped?

./run python -m bench.takeover

Four storage nodes and one repository as processes, three replicas, eight writers; `leader` and `sequencer` in turn. A
node that is gone is noticed after the repository's `lost_ms`: what is printed is the time from there to the first
append that is acknowledged in the next segment, of those that begin meanwhile, one every 5 ms; and to the first answer
to one of the eight, whose last append was on its way to the node that died. Then the repository is stopped for some
seconds under the same load.
"""

import asyncio
import os
import select
import signal
import statistics
import time
from pathlib import Path

import varlog
from bench.cluster import Process, RunningCluster, running_cluster
from varlog.repository import RepositoryConfig
from varlog.runtime.loop import run

ORDERINGS = ("leader", "sequencer")
ROUNDS = 5
WRITERS = 8
BEFORE_S, STOPPED_S = 1.0, 3.0


class Load:
    """Writers, and when their appends ended, at which positions."""

    def __init__(self, log: varlog.Log) -> None:
        self._log = log
        self.ended: list[tuple[float, int]] = []
        self.others = 0
        """Appends of no writer, all acknowledged."""
        self._stopping = False
        self._writers = [asyncio.create_task(self._write()) for _ in range(WRITERS)]

    async def _write(self) -> None:
        payload = os.urandom(100)
        while not self._stopping:
            ack = await self._log.append(payload, timeout=30)
            self.ended.append((time.perf_counter(), ack.glsn))

    async def first_of_next_segment(self) -> float:
        """When the first append ended in the segment that follows the first; another one begins every 5 ms."""
        begun: list[asyncio.Task[varlog.Ack]] = []
        ended: list[tuple[float, int]] = []

        def note(task: "asyncio.Task[varlog.Ack]") -> None:
            ended.append((time.perf_counter(), task.result().glsn))

        while True:
            begun.append(asyncio.create_task(self._log.append(b"meanwhile", timeout=30)))
            begun[-1].add_done_callback(note)
            following = (await self._log.info()).chain[1:]
            found = [at for at, glsn in ended if following and glsn >= following[0].base]
            if found:
                await asyncio.gather(*begun)
                self.others = len(begun)
                return min(found)
            await asyncio.sleep(0.005)

    async def first_answer(self, after: float) -> float:
        """When the first of the writers went on, of those that waited then."""
        while True:
            found = [at for at, _ in self.ended if at > after]
            if found:
                return min(found)
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._writers)
        entries = 0
        async for batch in self._log.subscribe(1, wait=False).batches():
            entries += len(batch)
        acknowledged = len(self.ended) + self.others
        assert entries == acknowledged, f"{acknowledged} were acknowledged, {entries} are there"


def process(cluster: RunningCluster, role: str, number: int | None = None) -> Process:
    return next(each for each in cluster.processes if each.role == role and number in (None, each.number))


def kill(pid: int) -> None:
    """On return it is gone: who is killed in the middle of a sync is there until that ends, and its connections are."""
    gone = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([gone], [], [])
    os.close(gone)


async def killed(cluster: RunningCluster, ordering: str) -> tuple[float, float]:
    """Seconds from the moment the loss is noticed to the first append that goes on, and to the first that waited."""
    async with varlog.connect(cluster.url) as connected:
        log = await connected.create_log("killed", ordering=ordering, replicas=3)
        load = Load(log)
        await asyncio.sleep(BEFORE_S)
        head = (await log.info()).chain[-1].streams[0].members[0]
        kill(process(cluster, "node", head).pid)
        noticed = time.perf_counter() + RepositoryConfig().lost_ms / 1000
        await asyncio.sleep(noticed - time.perf_counter() - 0.1)
        resumed = await load.first_of_next_segment() - noticed
        answered = await load.first_answer(noticed - 0.1) - noticed
        await load.stop()
        return resumed, answered


async def without_repository(cluster: RunningCluster, ordering: str) -> tuple[float, float]:
    """Appends per second with the repository, and while it is stopped."""
    async with varlog.connect(cluster.url) as connected:
        log = await connected.create_log("stopped", ordering=ordering, replicas=3)
        load = Load(log)
        await asyncio.sleep(BEFORE_S)
        begin, before = time.perf_counter(), len(load.ended)
        await asyncio.sleep(BEFORE_S)
        usual = (len(load.ended) - before) / (time.perf_counter() - begin)
        repository = process(cluster, "repository").pid
        os.kill(repository, signal.SIGSTOP)
        try:
            begin, before = time.perf_counter(), len(load.ended)
            await asyncio.sleep(STOPPED_S)
            stopped = (len(load.ended) - before) / (time.perf_counter() - begin)
        finally:
            os.kill(repository, signal.SIGCONT)
        await load.stop()
        return usual, stopped


def main() -> None:
    for ordering in ORDERINGS:
        took: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            with running_cluster(Path.cwd(), nodes=4) as cluster:
                took.append(run(killed(cluster, ordering)))
        resumed, answered = ([each * 1e3 for each in column] for column in zip(*took, strict=True))
        print(
            f"{ordering}: killed {ROUNDS} times; once that was noticed appends went on within "
            f"{statistics.median(resumed):.0f} ms (median), {max(resumed):.0f} ms (longest), "
            f"and who waited heard of it within {statistics.median(answered):.0f} ms, {max(answered):.0f} ms",
            flush=True,
        )
        with running_cluster(Path.cwd(), nodes=4) as cluster:
            usual, stopped = run(without_repository(cluster, ordering))
        print(f"{ordering}: {usual:,.0f} appends/s, {stopped:,.0f} while the repository is stopped", flush=True)


if __name__ == "__main__":
    main()
