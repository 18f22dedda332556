"""The simulated network: connections between processes, made of two one-way links, and hostile weather.

    end A  --- link ---->  end B       an end is the `Channel` that one process holds
    end A  <--- link ----  end B

A frame is joined to bytes when it is sent and decoded from bytes when it arrives, so no object is
ever shared. In clean TCP weather a link keeps order and loses nothing while the connection lives; in a
partition what was sent is held, and on healing it arrives late or the connection breaks. In the
other weather each frame is lost, doubled or overtaken by itself.

`Fabric` is the whole network and the place where faults strike; `SimulatedNetwork` is the port of
one process. Nothing is delivered from within a send: everything arrives through the loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from crc32c import crc32c

from varlog.base.errors import Unavailable
from varlog.ports.network import Channel, ChannelHandler
from varlog.sim.connection import Connection, End, Link
from varlog.sim.loop import SimulatedLoop
from varlog.sim.trace import SILENT, Trace
from varlog.sim.weather import NetworkWeather

if TYPE_CHECKING:
    from varlog.sim.host import Process

MakeHandler = Callable[[Channel], ChannelHandler]

FIRST_PORT = 40_000
"""Given to who asks for port 0."""


@dataclass(slots=True)
class Tripwire:
    """Strikes when the `count`-th frame of a kind and method is sent, with the names of its two hosts."""

    frame: tuple[int, int]
    count: int
    strike: Callable[[str, str], None]


class SimulatedListener:
    """An address that answers."""

    def __init__(self, fabric: "Fabric", process: "Process", address: str, handler: MakeHandler) -> None:
        self.address = address
        self.process = process
        self.handler = handler
        self._fabric = fabric

    async def close(self) -> None:
        if self.process.alive:
            self._fabric.stop_listening(self)


class Fabric:
    """Everything between the processes. Hosts are known to it by name."""

    def __init__(self, loop: SimulatedLoop, weather: NetworkWeather, random: Random, trace: Trace = SILENT) -> None:
        self.loop = loop
        self.weather = weather
        self.random = random
        self.trace = trace
        self.context: Context = copy_context()
        """Of nobody: what happens on the wire is no process's doing."""
        self.fingerprint = 0
        """Checksum over all that was sent: two runs are the same run if it is equal."""
        self.frames = 0
        self._listeners: dict[str, SimulatedListener] = {}
        self._connections: dict[Connection, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._distances: dict[tuple[str, str], float] = {}
        self._next_port = FIRST_PORT
        self.tripwires: list[Tripwire] = []
        """Faults that wait for a certain frame."""
        self.stragglers: list[Link] = []
        """What the dead sent last. It comes when it does most harm: soon after their next life has called."""

    # ------------------------------------------------------------ what ends and ports ask

    def delay(self, source: str, target: str) -> float:
        """Seconds for the next thing on its way from host to host."""
        distance = self._distances.get((source, target))
        if distance is None:
            distance = self._distances[source, target] = self.random.uniform(1.0, self.weather.distance)
        return self.weather.delay.draw(self.random) * distance

    def blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def sent(self, source: str, target: str, data: bytes) -> None:
        self.frames += 1
        self.fingerprint = crc32c(data, crc32c(self.loop.now.hex().encode(), self.fingerprint))
        if self.tripwires:
            self._trip(source, target, (data[4], data[5]))

    def _trip(self, source: str, target: str, kind_and_method: tuple[int, int]) -> None:
        left = []
        for tripwire in self.tripwires:
            if tripwire.frame != kind_and_method:
                left.append(tripwire)
                continue
            tripwire.count -= 1
            if tripwire.count:
                left.append(tripwire)
            else:
                self.loop.schedule(self.loop.now, tripwire.strike, source, target, context=self.context)
        self.tripwires = left

    def ended(self, connection: Connection) -> None:
        """Both ends know that it is over."""
        self._connections.pop(connection, None)

    # ------------------------------------------------------------ connecting

    def listen(self, process: "Process", address: str, handler: MakeHandler) -> SimulatedListener:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise Unavailable(f"{address!r} is not host:port")
        if port == "0":
            address = f"{host}:{self._next_port}"
            self._next_port += 1
        if address in self._listeners:
            raise Unavailable(f"{address} is in use")
        listener = SimulatedListener(self, process, address, handler)
        self._listeners[address] = listener
        return listener

    def stop_listening(self, listener: SimulatedListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def reach(self, caller: "Process", address: str, handler: MakeHandler, answer: "asyncio.Future[Channel]") -> None:
        """Begin a connection: a packet goes there, and one comes back unless it is lost."""
        listener = self._listeners.get(address)
        source = caller.host.name
        target = listener.process.host.name if listener is not None else address
        if self.blocked(source, target) or self.random.random() < self.weather.loss:
            return
        arrival = self.loop.now + self.delay(source, target)
        self.loop.schedule(arrival, self._knock, caller, address, target, handler, answer, context=self.context)

    def _knock(
        self, caller: "Process", address: str, target: str, handler: MakeHandler, answer: "asyncio.Future[Channel]"
    ) -> None:
        if self.blocked(target, caller.host.name) or not caller.alive:
            return
        back = self.loop.now + self.delay(target, caller.host.name)
        listener = self._listeners.get(address)
        if listener is None:
            if self.random.random() >= self.weather.late_notice:  # a machine without power does not even refuse
                caller.arrive_at(back, _refuse, answer, address)
            return
        connection = Connection(self, caller, listener.process, address, established=back)
        self._connections[connection] = None
        soon = self.random.random() * (0.01 + 20 * self.weather.delay.median)
        self.stragglers = [link for link in self.stragglers if not link.hurry(caller.host.name, target, soon)]
        listener.process.arrive_at(self.loop.now, connection.passive.accept, listener.handler)
        caller.arrive_at(back, _connected, connection.active, handler, answer)

    # ------------------------------------------------------------ faults

    def block(self, pairs: Sequence[tuple[str, str]]) -> None:
        """From now on nothing gets from the first to the second host of any pair."""
        self._blocked.update(pairs)

    def heal(self) -> None:
        """All ways are open again; connections that hung go on or break."""
        self._blocked.clear()
        for connection in list(self._connections):
            connection.heal(breaks=self.random.random() < self.weather.break_on_heal)

    def open_connections(self) -> list[Connection]:
        return list(self._connections)

    def calm_down(self) -> None:
        """The weather clears for good. A connection that lost frames breaks: on TCP it could not have lived."""
        self.heal()
        if not self.weather.in_order:
            for connection in list(self._connections):
                connection.break_off("the weather clears")
        delay = self.weather.delay.without_stalls()
        self.weather = NetworkWeather(delay=delay, window_bytes=self.weather.window_bytes)

    def process_died(self, process: "Process", *, power_loss: bool) -> None:
        """Its addresses are free; its peers learn it soon or, from a machine without power, late."""
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        late = power_loss and self.random.random() < self.weather.late_notice
        for connection in list(self._connections):
            for end in (connection.active, connection.passive):
                if end.process is process:
                    notice = self.random.random() * self.weather.late_notice_seconds if late else 0.0
                    connection.half_dead(end, notice)


def _refuse(answer: "asyncio.Future[Channel]", address: str) -> None:
    if not answer.done():
        answer.set_exception(Unavailable(f"nobody answers at {address}"))


def _connected(end: End, handler: MakeHandler, answer: "asyncio.Future[Channel]") -> None:
    end.accept(handler)
    if answer.done():
        end.close()
    else:
        answer.set_result(end)


class SimulatedNetwork:
    """The `Network` port of one process."""

    def __init__(self, fabric: Fabric, process: "Process") -> None:
        self._fabric = fabric
        self._process = process

    async def connect(self, address: str, handler: MakeHandler, *, timeout: float) -> Channel:
        if not self._process.alive:
            raise asyncio.CancelledError
        answer: asyncio.Future[Channel] = self._fabric.loop.create_future()
        self._fabric.reach(self._process, address, handler, answer)
        timer = self._process.clock.call_later(timeout, _refuse, answer, f"{address} in {timeout:g} s")
        try:
            return await answer
        except Unavailable as error:
            trace = self._fabric.trace
            trace.event(self._fabric.loop.now, self._process.host.name, "cannot connect", error.message)
            raise
        finally:
            timer.cancel()

    async def listen(self, address: str, handler: MakeHandler) -> SimulatedListener:
        if not self._process.alive:
            raise asyncio.CancelledError
        return self._fabric.listen(self._process, address, handler)
