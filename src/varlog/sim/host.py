"""A host is a machine: name, clock, disks, metadata. A process is one life of the program that runs on it.

                    start            crash                     start
    host     -------+----------------+-------------------------+------------->
    process         | alive, paused, | dead: nothing it does   | a new one,
                    | resumed ...    | has any effect          | on the same disks

Everything that comes to a process from outside (frames, timers, disk completions) passes `arrive_at`:
it waits while the process is paused and is lost when it is dead. Everything a process does to the
outside goes through ports that ask whether it is alive. A crash is a `kill -9`, and may at the same
time be a loss of power: then the disks lose what was not synced.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any

from varlog.ports import World
from varlog.sim.clock import SimulatedClock
from varlog.sim.disk import SimulatedDisk
from varlog.sim.loop import OWNER, Handle, SimulatedLoop, abandon
from varlog.sim.metadata import MetadataState, SimulatedMetadata
from varlog.sim.network import Fabric, SimulatedNetwork
from varlog.sim.platter import Platter
from varlog.sim.shelf import Shelf, SimulatedArchives

STOP_SECONDS = 5.0
"""What a program gets to end in good order."""

Main = Callable[["Process"], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Host:
    """What outlives a crash."""

    name: str
    loop: SimulatedLoop
    fabric: Fabric
    seed: str
    clock_rate: float = 1.0
    wall_offset_us: int = 0
    platters: list[Platter] = field(default_factory=list)
    metadata: MetadataState | None = None
    shelf: Shelf = field(default_factory=Shelf)
    lives: int = 0
    process: "Process | None" = None

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self, main: Main) -> "Process":
        """Begin a new life with `main`, which should return only when the program ends."""
        if self.up:
            raise RuntimeError(f"{self.name} runs already")
        self.lives += 1
        self.process = Process(self, f"{self.name}#{self.lives}")
        self.fabric.trace.event(self.loop.now, self.name, "starts", f"life {self.lives}")
        self.process.run(main)
        return self.process

    def crash(self, *, power_loss: bool = True, keep: float | None = None) -> None:
        """End the process this very moment; with `power_loss`, disks lose what was not synced (or all but `keep`)."""
        process = self.process
        if process is None or not process.alive:
            return
        self.fabric.trace.event(self.loop.now, self.name, "crashes", "power lost" if power_loss else "killed")
        process.die()
        self.fabric.process_died(process, power_loss=power_loss)
        for platter in self.platters:
            platter.release()
            if power_loss:
                platter.lose_power(keep)
        if process.metadata is not None:
            process.metadata.crash()

    async def stop(self) -> None:
        """Tell the program to end, and give it some time for it; then it is killed."""
        process = self.process
        if process is None or not process.alive:
            return
        self.fabric.trace.event(self.loop.now, self.name, "is told to stop")
        process.arrive_at(self.loop.now, process.told_to_stop)
        try:
            async with asyncio.timeout(STOP_SECONDS):  # `wait_for` loses a cancellation that comes as it dies
                await asyncio.shield(process.dead)
        except TimeoutError:
            self.crash(power_loss=False)

    def end(self, process: "Process") -> None:
        """The program returned: its process ends, in good order and without harm to anything."""
        if process.alive:
            self.crash(power_loss=False)

    def pause(self, *, clock_stops: bool) -> None:
        if self.process is not None and self.process.alive:
            self.fabric.trace.event(self.loop.now, self.name, "pauses", "clock stops" if clock_stops else "clock runs")
            self.process.pause(clock_stops=clock_stops)

    def resume(self) -> None:
        if self.process is not None and self.process.alive and self.process.paused:
            self.fabric.trace.event(self.loop.now, self.name, "resumes")
            self.process.resume()


class Process:
    """One life: tasks, clock and ports that die with it. The owner (`sim.loop`) of all it runs."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name
        self.alive = True
        self.paused = False
        self._loop = host.loop
        self._deferred: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.context = _owned(self)
        self.clock = SimulatedClock(host.loop, self, rate=host.clock_rate, wall_offset_us=host.wall_offset_us)
        archives = SimulatedArchives(host.shelf, self.clock, Random(f"{host.seed}/{name}/archives"))
        chance = Random(f"{host.seed}/{name}")
        self.world = World(self.clock, SimulatedNetwork(host.fabric, self), chance, archives)
        self.disks = [SimulatedDisk(platter, host.loop, self) for platter in host.platters]
        self.metadata = SimulatedMetadata(host.metadata, host.loop, self) if host.metadata is not None else None
        self.main: asyncio.Task[None] | None = None
        self.dead: asyncio.Future[None] = host.loop.create_future()
        self.stopping: asyncio.Future[None] = host.loop.create_future()
        """Done when the program is to end in good order."""

    def run(self, main: Main) -> None:
        self.main = self.spawn(main(self), f"{self.name} main")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """A task that is part of this process, whoever calls."""
        return self._loop.create_task(work, name=name, context=self.context.copy())

    def told_to_stop(self) -> None:
        if not self.stopping.done():
            self.stopping.set_result(None)

    # ------------------------------------------------------------ what the ports ask

    def arrive_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle:
        """Call inside this process at virtual time `when`, or as soon after as it is not paused."""
        return self._loop.schedule(when, self._arrive, callback, arguments, context=self.context)

    def _arrive(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.paused:
            self._deferred.append((callback, arguments))
        else:
            callback(*arguments)

    # ------------------------------------------------------------ fate

    def pause(self, *, clock_stops: bool) -> None:
        self.paused = True
        if clock_stops:
            self.clock.stop()

    def resume(self) -> None:
        self.paused = False
        self.clock.go_on()
        deferred, self._deferred = self._deferred, []
        for callback, arguments in deferred:
            self.arrive_at(self._loop.now, callback, *arguments)

    def die(self) -> None:
        self.alive = False
        self.dead.set_result(None)
        self._deferred.clear()
        for task in self._loop.tasks_of(self):
            abandon(task)
            task.cancel()


def _owned(process: Process) -> Context:
    context = copy_context()
    context.run(OWNER.set, process)
    return context
