"""Small simulated worlds for the tests of the simulator's own parts."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from varlog.sim.climate import draw
from varlog.sim.cluster import SimulatedCluster
from varlog.sim.host import Host, Process
from varlog.sim.loop import make_loop
from varlog.sim.metadata import MetadataState
from varlog.sim.network import Fabric
from varlog.sim.platter import Platter
from varlog.sim.trace import Trace
from varlog.sim.weather import DiskWeather, FaultWeather, Latency, NetworkWeather, Shape


class Small:
    """A loop, a fabric, and hosts on demand."""

    def __init__(self, seed: int = 1, weather: NetworkWeather | None = None) -> None:
        self.seed = seed
        self.loop = make_loop(max_steps=2_000_000)
        self.trace = Trace(on=True)
        self.fabric = Fabric(self.loop, weather or NetworkWeather(), Random(seed), self.trace)

    def host(self, name: str, *, disk: DiskWeather | None = None, metadata: bool = False, rate: float = 1.0) -> Host:
        host = Host(name, self.loop, self.fabric, str(self.seed), clock_rate=rate)
        host.platters.append(Platter(f"{name}.disk", Random(f"{self.seed}/{name}"), disk or DiskWeather()))
        if metadata:
            host.metadata = MetadataState(Random(f"{self.seed}/{name}/metadata"))
        return host

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run(main)
        finally:
            self.loop.close()


async def idle(process: Process) -> None:
    """A program that does nothing."""


class Cluster:
    """Real nodes and a repository in fair weather, and one client."""

    def __init__(self, *, seed: int = 1, **shape: int) -> None:
        weather = replace(
            draw(seed),
            network=NetworkWeather(break_on_heal=0.0),
            faults=FaultWeather(),
            shape=Shape(**({"nodes": 1} | shape)),  # type: ignore[arg-type]
            commit=Latency(0.001),
            commits_in_order=True,
            worst_clock=0.0,
            disk_sync=(0.001, 0.001),
            disk_stalls=False,
        )
        self.loop = make_loop(max_steps=2_000_000)
        self.servers = SimulatedCluster(self.loop, weather, Trace())
        self.fabric = self.servers.fabric
        self.client = self.servers.make_host("client")

    def run(self, work: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
        """Start the servers, let them join, and run `work` as the client."""

        async def main() -> None:
            self.servers.start_servers()
            await asyncio.sleep(2.0)
            process = self.client.start(work)
            assert process.main is not None
            await process.main

        try:
            self.loop.run(main())
        finally:
            self.loop.close()
