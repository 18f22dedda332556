"""A whole cluster in the simulated world: which program runs on which host, and how it is started.

    repository1              the metadata repository, with its simulated store
    node1, node2, ...        storage nodes, each with its volumes
    client1, client2, ...    programs that use the public client (`sim.workload`)

The programs are the production classes; only the worlds they are handed are simulated.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from varlog.base.errors import VarlogError
from varlog.node.config import NodeConfig
from varlog.node.server import StorageNode
from varlog.repository import Repository, RepositoryConfig
from varlog.sim.host import Host, Process
from varlog.sim.loop import SimulatedLoop
from varlog.sim.metadata import MetadataState
from varlog.sim.network import Fabric
from varlog.sim.outage import Outage
from varlog.sim.platter import Platter
from varlog.sim.shelf import Shelf
from varlog.sim.trace import Trace
from varlog.sim.weather import Weather

REPOSITORY_PORT = 7700
NODE_PORT = 7000

RETENTION_MS = 300
"""How often repositories look at what logs keep: a run lasts seconds, not days."""

EPOCH_US = 1_750_000_000_000_000
"""What wall clocks say when a run begins, give or take."""

Program = Callable[[Process], Coroutine[Any, Any, None]]


class SimulatedCluster:
    """Hosts and the programs that belong on them."""

    def __init__(self, loop: SimulatedLoop, weather: Weather, trace: Trace) -> None:
        self.loop = loop
        self.weather = weather
        self.trace = trace
        seed = weather.seed
        self.shelf = Shelf()
        self.fabric = Fabric(loop, weather.network, Random(f"{seed}/network"), trace)
        count = weather.shape.repositories
        self.repositories = [self.make_host(f"repository{number}") for number in range(1, count + 1)]
        self.metadata = MetadataState(
            Random(f"{seed}/metadata"),
            weather.commit,
            weather.commits_in_order,
            embedded=not weather.shape.shared_store,
            outage=Outage(Random(f"{seed}/outages")),
        )
        for host in self.repositories:
            host.metadata = self.metadata
        self.nodes = [self.make_host(f"node{number}") for number in range(1, weather.shape.nodes + 1)]
        for host in self.nodes:
            for number in range(weather.shape.volumes):
                name = f"{host.name}.disk{number}"
                host.platters.append(Platter(name, Random(f"{seed}/{name}"), weather.disk(name)))
        self.clients: list[Host] = []
        self.ready = asyncio.Event()
        """All logs are made."""
        self._programs: dict[Host, Program] = dict.fromkeys(self.repositories, self._run_repository)
        self._programs |= dict.fromkeys(self.nodes, self._run_node)

    @property
    def url(self) -> str:
        return f"varlog://{','.join(f'{host.name}:{REPOSITORY_PORT}' for host in self.repositories)}"

    def skew_seconds(self, seconds: float) -> float:
        """By how much the clocks of clients and repositories differ at most after so long."""
        names = [host.name for host in self.repositories]
        names += ["admin", *(f"client{number}" for number in range(1, self.weather.shape.clients + 1))]
        walls = []
        for climate in map(self.weather.host, names):
            drift = (climate.clock_rate - 1) * seconds
            walls += [climate.wall_offset_us / 1e6, climate.wall_offset_us / 1e6 + drift]
        return max(walls) - min(walls)

    def make_host(self, name: str) -> Host:
        """A machine with the clock its weather says, and nothing on it."""
        climate = self.weather.host(name)
        return Host(
            name,
            self.loop,
            self.fabric,
            self.weather.seed,
            clock_rate=climate.clock_rate,
            wall_offset_us=EPOCH_US + climate.wall_offset_us,
            shelf=self.shelf,
        )

    def add_client(self, name: str, program: Program) -> Host:
        """A host for a program that uses the cluster. Not started yet."""
        host = self.make_host(name)
        self.clients.append(host)
        self._programs[host] = program
        return host

    # ------------------------------------------------------------ programs

    def start(self, host: Host) -> None:
        """Run on it what belongs there, from the beginning."""
        host.start(lambda process: self._supervised(process, self._programs[host]))

    def start_servers(self) -> None:
        for host in (*self.repositories, *self.nodes):
            self.start(host)

    async def _supervised(self, process: Process, program: Program) -> None:
        """A program that ends with a clear error ends its process; any other error is a defect."""
        try:
            await program(process)
        except VarlogError as error:
            self.trace.event(self.loop.now, process.host.name, "exits", repr(error))
        self.loop.call_soon(process.host.end, process, context=self.fabric.context)

    async def _run_repository(self, process: Process) -> None:
        assert process.metadata is not None
        listen = f"{process.host.name}:{REPOSITORY_PORT}"
        shape = self.weather.shape
        config = RepositoryConfig(
            listen=listen,
            lost_ms=shape.lost_ms,
            rebuild_ms=shape.rebuild_ms,
            direct_nodes=shape.direct_nodes,
            retention_ms=RETENTION_MS,
        )
        repository = Repository(process.world, process.metadata, config)
        await repository.start()
        await self._serve(process, repository.wait_failed())
        await repository.close()

    async def _run_node(self, process: Process) -> None:
        addresses = tuple(f"{host.name}:{REPOSITORY_PORT}" for host in self.repositories)
        config = NodeConfig(
            repositories=addresses,
            listen=f"{process.host.name}:{NODE_PORT}",
            file_bytes=self.weather.shape.file_bytes,
            copy_bytes_per_s=self.weather.shape.copy_bytes_per_s,
            scrub_every_s=self.weather.shape.scrub_every_s,
            scrub_bytes_per_s=self.weather.shape.scrub_bytes_per_s,
        )
        node = StorageNode(process.world, process.disks, config)
        await node.start()
        await self._serve(process, node.wait_failed())
        await node.close()

    async def _serve(self, process: Process, failure: Coroutine[Any, Any, VarlogError]) -> None:
        """Until the program is told to stop; raises what it cannot go on with."""
        waiting = process.spawn(failure, "wait for failure")
        waiting.add_done_callback(lambda _: process.told_to_stop())
        await process.stopping
        if waiting.done():
            raise waiting.result()
        waiting.cancel()
