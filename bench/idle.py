"""What does an idle cluster cost? CPU of each process while nobody asks anything."""

import time

from bench.cluster import RunningCluster


def idle(cluster: RunningCluster, seconds: float = 10.0) -> dict[str, float]:
    """Share of one core, per process."""
    before = {process: process.cpu_s() for process in cluster.processes}
    start = time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - start
    return {f"{process.role} {process.number}": (process.cpu_s() - spent) / took for process, spent in before.items()}
