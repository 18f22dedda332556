"""A node that dies or stands still under a log, from when on that counts, and when appends go on elsewhere."""

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import varlog
from bench.cluster import Process
from bench.load import PATIENCE_S, Placed
from varlog.repository import RepositoryConfig

ASK_S = 0.005
LOSSES = {signal.SIGKILL: "killed", signal.SIGSTOP: "stopped"}


def kill(pid: int) -> None:
    """On return it is gone: who is killed in the middle of a sync is there until that ends, and its connections are."""
    gone = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([gone], [], [])
    os.close(gone)


def stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@asynccontextmanager
async def paused(pid: int) -> AsyncIterator[None]:
    """It stands still, with all its threads, until the end of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while not stands_still(pid):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def is_connected(cluster: varlog.Cluster, number: int) -> bool:
    """To the repository's knowledge."""
    return any(node.connected for node in await cluster.nodes() if node.id == number)


@asynccontextmanager
async def lost(process: Process, how: signal.Signals, cluster: varlog.Cluster) -> AsyncIterator[float]:
    """A node is lost inside the block, which is told from when on that counts.

    For one that died that is `lost_ms` after its connections broke. One that stands still leaves them as they are, and
    counts as not connected when it has been silent for `silent_ms`: the repository says so itself. That it looks for
    who is silent every 100 ms only is part of what is measured.
    """
    lost_s = RepositoryConfig().lost_ms / 1e3
    if how == signal.SIGKILL:
        kill(process.pid)
        yield time.perf_counter() + lost_s
        return
    async with paused(process.pid):
        while await is_connected(cluster, process.number):  # noqa: ASYNC110 - nobody tells of it unasked
            await asyncio.sleep(ASK_S)
        yield time.perf_counter() + lost_s


async def first_elsewhere(log: varlog.Log, stream: int, every_s: float) -> tuple[float, Placed]:
    """When the first append was acknowledged by another stream, of those that begin from now on; and all of them."""
    moved: list[float] = []

    async def one(payload: bytes) -> tuple[int, bytes]:
        ack = await log.append(payload)
        if ack.stream != stream:
            moved.append(time.perf_counter())
        return ack.glsn, payload

    begun: list[asyncio.Task[tuple[int, bytes]]] = []
    until = time.perf_counter() + PATIENCE_S
    while not moved and time.perf_counter() < until:
        begun.append(asyncio.create_task(one(b"meanwhile %d" % len(begun))))
        await asyncio.sleep(every_s)
    placed = list(await asyncio.gather(*begun))
    if not moved:
        raise RuntimeError(f"log {log.name} did not go on in another stream than {stream}")
    return min(moved), placed
