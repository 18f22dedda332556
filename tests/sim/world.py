"""Small simulated worlds for the tests of the simulator's own parts."""

from collections.abc import Coroutine
from random import Random
from typing import Any

from varlog.sim.host import Host, Process
from varlog.sim.loop import make_loop
from varlog.sim.metadata import MetadataState
from varlog.sim.network import Fabric
from varlog.sim.platter import Platter
from varlog.sim.trace import Trace
from varlog.sim.weather import DiskWeather, NetworkWeather


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
