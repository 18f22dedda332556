"""Do appends go on while the repository stands still, for longer than any lease? The same load before and meanwhile."""

import asyncio
import time
from itertools import pairwise

import varlog
from bench.cluster import RunningCluster
from bench.figures import Figure
from bench.load import Appending, Load, check
from bench.losses import paused
from varlog.repository import RepositoryConfig

WARM_S, USUAL_S = 0.5, 2.0
STOPPED_S = RepositoryConfig().lease_ms / 1e3 + 3.0
QUICK_S = RepositoryConfig().lease_ms / 1e3 + 0.5
LEAST = 0.5
"""Of the usual rate: to go on is not to trickle."""


async def without_repository(
    cluster: RunningCluster, name: str, log: varlog.Log, through: Appending, stopped_s: float
) -> Figure:
    """Appends go to `through` and are found in `log`. What counts is the rate once the nodes' leases are over."""
    load = Load([through])
    await asyncio.sleep(WARM_S)
    before, begin = load.count, time.perf_counter()
    await asyncio.sleep(USUAL_S)
    usual = (load.count - before) / (time.perf_counter() - begin)
    async with paused(cluster.process("repository").pid):
        stopped_at = time.perf_counter()
        await asyncio.sleep(RepositoryConfig().lease_ms / 1e3)
        before, begin = load.count, time.perf_counter()
        await asyncio.sleep(stopped_s - (begin - stopped_at))
        stopped = (load.count - before) / (time.perf_counter() - begin)
        await load.stop()
    longest = max(b - a for a, b in pairwise(load.ended()) if b > stopped_at)
    await check(log, load)
    seen = (
        f"{stopped:,.0f}/s beside {usual:,.0f}/s with it, {longest * 1e3:.0f} ms at most between two acknowledgements"
    )
    print(f"{name}, the repository stopped for {stopped_s:g} s, all leases over: {seen}", flush=True)
    return Figure(f"{name}, the repository stopped", "appends go on", seen, stopped >= LEAST * usual)
