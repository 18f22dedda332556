"""Chance as an enemy: strikes at the rates the weather says, until chaos ends and all is healed.

Each kind of fault runs by itself: wait, strike, and where the fault has an end (a crashed host comes
back, a partition heals), see to that too. What a program does of its own will, such as ending
because its disk is full at its start, is mended like a crash: it is started again after a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Protocol

from varlog.repository.server import ELECTION
from varlog.sim.host import Host
from varlog.sim.loop import SimulatedLoop
from varlog.sim.metadata import MetadataState
from varlog.sim.network import Fabric, Tripwire
from varlog.sim.weather import FaultWeather
from varlog.wire.frame import Kind
from varlog.wire.methods import Method

SUPERVISE_SECONDS = 0.5
"""How often a look is taken for programs that have ended by themselves."""


MOMENTS = {
    (Kind.REQUEST, Method.APPEND): 2,
    (Kind.REPLY, Method.APPEND): 4,
    (Kind.NOTIFY, Method.STORE): 6,
    (Kind.NOTIFY, Method.REPORT): 4,
    (Kind.NOTIFY, Method.ADVANCE): 4,
    (Kind.REQUEST, Method.TRIM): 1,
    (Kind.REPLY, Method.TRIM): 1,
    (Kind.REPLY, Method.TRIM_LOG): 1,
    (Kind.REQUEST, Method.REGISTER): 1,
    (Kind.REPLY, Method.REGISTER): 1,
    (Kind.PART, Method.READ): 1,
}
"""Messages around which something is half done, with how often they are chosen."""

SEAL_MOMENTS = {
    (Kind.REQUEST, Method.SEAL_LOG): 1,
    (Kind.REPLY, Method.SEAL_LOG): 1,
    (Kind.REQUEST, Method.SEAL): 2,
    (Kind.REQUEST, Method.FINISH): 2,
    (Kind.REPLY, Method.FINISH): 1,
}
"""The same of runs in which a log is sealed."""

END_MOMENTS = {
    (Kind.REQUEST, Method.SEAL): 2,
    (Kind.REPLY, Method.SEAL): 3,
    (Kind.REQUEST, Method.FINISH): 2,
    (Kind.REPLY, Method.FINISH): 3,
}
"""Those in which a segment or a stream ends, for whatever reason."""


SCRUB_MOMENTS = {
    (Kind.REQUEST, Method.COPY): 2,
    (Kind.REPLY, Method.COPY): 1,
    (Kind.REPLY, Method.DIGEST): 1,
    (Kind.REPLY, Method.FINGERPRINT): 1,
}
"""The same of runs in which rot is found and repaired."""

REBUILD_MOMENTS = {
    (Kind.REQUEST, Method.COPY): 2,
    (Kind.REPLY, Method.COPY): 2,
    (Kind.PART, Method.READ): 3,
    (Kind.REPLY, Method.DIGEST): 2,
    (Kind.REQUEST, Method.DROP): 1,
}
"""The same of runs in which lost replicas are rebuilt."""


GATHER_MOMENTS = {
    (Kind.NOTIFY, Method.FORWARD): 3,
    (Kind.REQUEST, Method.GATHER): 1,
}
"""The same of runs with several repositories."""


JOURNAL_MOMENTS = {
    (Kind.REQUEST, Method.STORE): 6,
    (Kind.REPLY, Method.STORE): 4,
    (Kind.REQUEST, Method.LEAD_LOG): 1,
    (Kind.REPLY, Method.LEAD_LOG): 1,
    (Kind.REQUEST, Method.SEAL): 1,
    (Kind.REPLY, Method.SEAL): 1,
}
"""The same of runs in which clients lead."""


class Target(Protocol):
    """The cluster, as faults see it."""

    loop: SimulatedLoop
    fabric: Fabric
    nodes: list[Host]
    repositories: list[Host]
    clients: list[Host]
    ready: asyncio.Event
    """The logs are there: a node that is out from now on keeps nobody from making them."""

    def start(self, host: Host) -> None:
        """Run on it what belongs there."""
        ...


class Nemesis:
    """All faults of one run."""

    def __init__(
        self,
        target: Target,
        weather: FaultWeather,
        random: Random,
        *,
        seals: bool = False,
        rebuilds: bool = False,
        journal: bool = False,
    ) -> None:
        """`seals`: a log is to be sealed. `rebuilds`: lost replicas are copied. `journal`: clients lead."""
        self._moments = MOMENTS | (SEAL_MOMENTS if seals else {}) | (REBUILD_MOMENTS if rebuilds else {})
        self._moments |= SCRUB_MOMENTS if weather.cold_rot else {}
        self._moments |= JOURNAL_MOMENTS if journal else {}
        if len(target.repositories) > 1:
            self._moments |= GATHER_MOMENTS
        self._target = target
        self._loop = target.loop
        self._weather = weather
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []
        self._down: dict[Host, None] = {}
        """Crashed by us and not yet started again."""
        self._away: dict[Host, None] = {}
        """For long."""
        self.rotten: Host | None = None
        """One of its files has a flipped bit."""
        self.rotting: Host | None = None
        """Bits flip in files of its replicas again and again; they are found and repaired."""
        self.struck: dict[str, int] = {}
        """How often each kind of fault struck."""

    async def rage(self, seconds: float) -> None:
        """Strike for so long."""
        weather, target = self._weather, self._target
        self._repeat(weather.node_crashes, lambda: self._crash(target.nodes))
        self._repeat(weather.repository_crashes, lambda: self._crash(target.repositories))
        self._repeat(weather.client_crashes, lambda: self._crash(target.clients))
        self._repeat(weather.snipes, lambda: self._snipe(self._moments))
        self._repeat(weather.end_snipes, lambda: self._snipe(END_MOMENTS))
        self._repeat(weather.pauses, self._pause)
        self._repeat(weather.partitions, self._partition)
        self._repeat(weather.breaks, self._break)
        self._repeat(weather.full_disks, self._fill)
        self._repeat(weather.failing_syncs, self._fail_sync)
        self._repeat(weather.failing_commits, self._fail_commit)
        self._repeat(weather.outages, self._take_store_away)
        self._repeat(weather.stops, self._stop_server)
        self._repeat(weather.absences, self._leave)
        self._repeat(weather.cold_rot, self._rot_cold)
        if weather.rot:
            self._tasks.append(self._loop.create_task(self._rot(seconds), name="rot"))
        self._tasks.append(self._loop.create_task(self._supervise(), name="supervisor"))
        await asyncio.sleep(seconds)

    def heal(self) -> None:
        """No more faults; everything is up and running again. The supervisor stays."""
        if self._tasks:
            supervisor = self._tasks.pop()
            self.stop()
            self._tasks = [supervisor]
        target = self._target
        target.fabric.tripwires.clear()
        target.fabric.calm_down()
        for host in (*target.repositories, *target.nodes, *target.clients):
            for platter in host.platters:
                platter.calm_down()
            if host.metadata is not None:
                host.metadata.full, host.metadata.failures_wanted = False, 0
                self._bring_store_back(host.metadata)
            host.resume()
            if not host.up:
                target.start(host)
        self._down.clear()

    def stop(self) -> None:
        """End every fault; one that went wrong itself is a defect of the simulator."""
        for task in self._tasks:
            if task.done():
                task.result()
            task.cancel()

    # ------------------------------------------------------------ time

    def _repeat(self, rate: float, strike: Callable[[], Awaitable[None]]) -> None:
        if rate > 0:
            self._tasks.append(self._loop.create_task(self._at_rate(rate, strike), name=f"fault {strike!r}"))

    async def _at_rate(self, rate: float, strike: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(rate))
            self._tasks.insert(0, self._loop.create_task(self._strike(strike), name="one fault"))

    async def _strike(self, strike: Callable[[], Awaitable[None]]) -> None:
        await strike()

    def _around(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.2, 2.0)

    def _count(self, kind: str) -> None:
        self.struck[kind] = self.struck.get(kind, 0) + 1

    async def _supervise(self) -> None:
        """Start again what ended by itself."""
        while True:
            await asyncio.sleep(self._around(SUPERVISE_SECONDS))
            target = self._target
            for host in (*target.repositories, *target.nodes, *target.clients):
                if not host.up and host not in self._down:
                    target.start(host)

    # ------------------------------------------------------------ kinds of faults

    async def _crash(self, hosts: list[Host]) -> None:
        """One of them; now and then a second at the same moment, as when a rack loses power."""
        up = [host for host in hosts if host.up]
        if not up:
            return
        count = 1 if self._random.random() < 0.8 else min(2, len(up))
        power_loss = self._random.random() < self._weather.power_loss
        victims = self._random.sample(up, count)
        for host in victims:
            self._kill(host, power_loss)
        for host in victims:
            await self._bring_back(host)

    def _kill(self, host: Host, power_loss: bool) -> None:
        self._count("power lost" if power_loss else "killed")
        self._down[host] = None
        host.crash(power_loss=power_loss)

    async def _bring_back(self, host: Host) -> None:
        await asyncio.sleep(self._around(self._weather.downtime))
        self._down.pop(host, None)
        if not host.up:
            self._target.start(host)

    async def _leave(self) -> None:
        """A node is away until it is given up, and comes back some time after that."""
        up = [host for host in self._target.nodes if host.up]
        if not up or any(host in self._away for host in self._target.nodes):
            return
        host = self._random.choice(up)
        self._away[host] = None
        self._count("long absence")
        self._down[host] = None
        host.crash(power_loss=self._random.random() < self._weather.power_loss)
        await asyncio.sleep(self._weather.absence_seconds * self._random.uniform(0.8, 2.0))
        self._away.pop(host, None)
        self._down.pop(host, None)
        if not host.up:
            self._target.start(host)

    async def _snipe(self, moments: Mapping[tuple[Kind, Method], int]) -> None:
        """Wait for a message; then one of those who have to do with it, or any server, is dead."""
        tripped: asyncio.Future[tuple[str, str]] = self._loop.create_future()

        def strike(source: str, target: str) -> None:
            if not tripped.done():
                tripped.set_result((source, target))

        moment = self._random.choices(list(moments), list(moments.values()))[0]
        self._target.fabric.tripwires.append(Tripwire(moment, self._random.choice((1, 1, 2, 5)), strike))
        names = await tripped
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.choice((0.0002, 0.002, 0.02)) * self._random.random())
        power_loss = self._random.random() < self._weather.power_loss
        victims = self._choose_victims(names)
        for host in victims:
            self._kill(host, power_loss)
        for host in victims:
            await self._bring_back(host)

    def _choose_victims(self, names: tuple[str, str]) -> list[Host]:
        """One of the two servers at the ends of a message, or both ends, or any server."""
        target = self._target
        servers = [host for host in (*target.nodes, *target.repositories) if host.up]
        chance = self._random.random()
        if chance < 0.3:
            return [host for host in (*servers, *target.clients) if host.up and host.name in names]
        near = [host for host in servers if host.name in names] if chance < 0.75 else servers
        return [self._random.choice(near)] if near else []

    async def _pause(self) -> None:
        target = self._target
        up = [host for host in (*target.nodes, *target.repositories, *target.clients) if host.up]
        if not up:
            return
        host = self._random.choice(up)
        self._count("paused")
        host.pause(clock_stops=self._random.random() < self._weather.clock_stops)
        await asyncio.sleep(self._around(self._weather.pause_seconds))
        host.resume()

    async def _partition(self) -> None:
        """Two sides, at random; with some luck one direction stays open. The next one replaces it."""
        target = self._target
        names = [host.name for host in (*target.nodes, *target.repositories, *target.clients)]
        self._random.shuffle(names)
        border = self._random.randrange(1, len(names))
        here, there = names[:border], names[border:]
        pairs = [(one, other) for one in here for other in there]
        if self._random.random() >= self._weather.one_way:
            pairs += [(other, one) for one, other in pairs]
        self._count("partitioned")
        target.fabric.trace.event(self._loop.now, "network", "is split", f"{', '.join(here)} | {', '.join(there)}")
        target.fabric.block(pairs)
        await asyncio.sleep(self._around(self._weather.partition_seconds))
        target.fabric.trace.event(self._loop.now, "network", "heals")
        target.fabric.heal()

    async def _break(self) -> None:
        connections = self._target.fabric.open_connections()
        if connections:
            self._count("connection broken")
            self._random.choice(connections).break_off("bad luck")

    async def _fill(self) -> None:
        """A volume of a node or, now and then, the repository's store."""
        if self._random.random() < 0.2:
            await self._fill_store()
            return
        platter = self._random.choice(self._random.choice(self._target.nodes).platters)
        self._count("disk filled")
        self._target.fabric.trace.event(self._loop.now, platter.name, "is full")
        platter.taken_by_others = platter.weather.capacity
        await asyncio.sleep(self._around(self._weather.full_seconds))
        platter.taken_by_others = 0
        self._target.fabric.trace.event(self._loop.now, platter.name, "has room again")

    async def _fill_store(self) -> None:
        state = self._random.choice(self._target.repositories).metadata
        assert state is not None
        self._count("store filled")
        self._target.fabric.trace.event(self._loop.now, "metadata", "is full")
        state.full = True
        await asyncio.sleep(self._around(self._weather.full_seconds))
        state.full = False
        self._target.fabric.trace.event(self._loop.now, "metadata", "has room again")

    async def _fail_commit(self) -> None:
        state = self._random.choice(self._target.repositories).metadata
        assert state is not None
        if not state.embedded and self._random.random() < 0.5:
            if state.depose(ELECTION):
                self._count("deposed")
                self._target.fabric.trace.event(self._loop.now, "metadata", "deposes the leader")
            return
        self._count("commit failed")
        state.failures_wanted += 1

    async def _take_store_away(self) -> None:
        """Its majority is lost, or it is started again, or it has too much to do."""
        state = self._target.repositories[0].metadata
        assert state is not None
        if not state.outage.over:
            return
        kind = self._random.choice(("refuses", "hangs", "is slow"))
        self._count(f"store {kind}")
        self._target.fabric.trace.event(self._loop.now, "metadata", kind)
        if kind == "is slow":
            state.outage.slow = True
        else:
            state.outage.begin(hangs=kind == "hangs")
        await asyncio.sleep(self._around(self._weather.outage_seconds))
        self._bring_store_back(state)

    def _bring_store_back(self, state: MetadataState) -> None:
        if not state.outage.over:
            state.end_outage(self._loop, self._target.fabric.context, leases_anew=self._random.random() < 0.5)
            self._target.fabric.trace.event(self._loop.now, "metadata", "is back")

    async def _stop_server(self) -> None:
        """As an operator does it: tell it to end, and start it again."""
        up = [host for host in (*self._target.nodes, *self._target.repositories) if host.up]
        if not up:
            return
        host = self._random.choice(up)
        self._count("stopped")
        self._down[host] = None
        await host.stop()
        await self._bring_back(host)

    async def _rot(self, seconds: float) -> None:
        await asyncio.sleep(self._random.random() * seconds)
        await self._target.ready.wait()
        host = self._random.choice(self._target.nodes)
        platter = self._random.choice(host.platters)
        if platter.rot():
            self._count("bit flipped")
            self.rotten = host
            self._target.fabric.trace.event(self._loop.now, platter.name, "rots")

    async def _rot_cold(self) -> None:
        """All on one node: every other copy of what it has is good."""
        await self._target.ready.wait()
        if self.rotting is None:
            self.rotting = self._random.choice(self._target.nodes)
        platter = self._random.choice(self.rotting.platters)
        where = platter.rot_cold()
        if where:
            self._count("bit flipped")
            self._target.fabric.trace.event(self._loop.now, platter.name, "rots", where)

    async def _fail_sync(self) -> None:
        platter = self._random.choice(self._random.choice(self._target.nodes).platters)
        self._count("sync failed")
        platter.sync_failures_wanted += 1
