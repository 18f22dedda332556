"""One simulated connection: two ends, two links. See `sim.network` for the whole."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from varlog.base import limits
from varlog.base.errors import ConnectionLost, TooLarge, VarlogError
from varlog.ports.network import Channel, ChannelHandler
from varlog.wire.frame import FRAME, FRAME_HEADER_BYTES, Buffer, Frame

if TYPE_CHECKING:
    from varlog.sim.host import Process
    from varlog.sim.network import Fabric


def decode_frame(data: bytes) -> Frame:
    """A whole encoded frame; sizes are judged as on a real connection."""
    length, kind, method, flags, request_id, timeout_ms, header_bytes = FRAME.unpack_from(data)
    if length > limits.FRAME_BYTES or header_bytes > limits.HEADER_BYTES:
        raise TooLarge(f"a frame of {length} bytes with {header_bytes} of header", limits.FRAME_BYTES)
    if length + 4 != len(data):
        raise ConnectionLost(f"a frame says {length} bytes and has {len(data) - 4}")
    header_end = FRAME_HEADER_BYTES + header_bytes
    header = data[FRAME_HEADER_BYTES:header_end]
    return Frame(kind, method, flags, request_id, timeout_ms, header, memoryview(data)[header_end:])


class Connection:
    """Made when the far side is reached; `established` is when the caller learns of it."""

    def __init__(
        self, fabric: "Fabric", caller: "Process", listener: "Process", address: str, *, established: float
    ) -> None:
        self.fabric = fabric
        self.active = End(self, caller, address)
        self.passive = End(self, listener, caller.host.name)
        self.active.other, self.passive.other = self.passive, self.active
        self.active.link = Link(self, self.active, self.passive, fabric.loop.now)
        self.passive.link = Link(self, self.passive, self.active, established)

    def break_off(self, why: str) -> None:
        """What is under way is lost; each end learns in its own time."""
        for end in (self.active, self.passive):
            end.link.cut()
            self._notify(end, self.fabric.delay(end.other.host_name, end.host_name), why)

    def half_dead(self, dead: "End", notice: float) -> None:
        """The process of one end is gone. The other learns behind what is under way, and `notice` later."""
        dead.over = True
        end = dead.other
        end.link.swallow()
        weather, random = self.fabric.weather, self.fabric.random
        if random.random() < weather.stragglers:
            dead.link.straggle(self.fabric.loop.now + random.random() * weather.straggle_seconds)
            self.fabric.stragglers.append(dead.link)
        behind = max(dead.link.last_arrival, self.fabric.loop.now) - self.fabric.loop.now
        delay = self.fabric.delay(dead.host_name, end.host_name)
        self._notify(end, max(behind, delay) + notice, f"{dead.process.name} died")
        self.check_over()

    def heal(self, *, breaks: bool) -> None:
        if not self.active.link.held and not self.passive.link.held:
            return
        if breaks:
            self.break_off("it hung in a partition")
        else:
            self.active.link.release()
            self.passive.link.release()

    def _notify(self, end: "End", delay: float, why: str) -> None:
        end.process.arrive_at(self.fabric.loop.now + delay, end.lost, why)

    def check_over(self) -> None:
        if self.active.over and self.passive.over:
            self.fabric.ended(self)


class Link:
    """One direction. `None` among what is sent is the end of the connection."""

    def __init__(self, connection: Connection, source: "End", target: "End", not_before: float) -> None:
        self._fabric = connection.fabric
        self._source = source
        self._target = target
        self._established = not_before
        self.last_arrival = not_before
        self._straggles_until = 0.0
        self._late: list[list[bytes | None]] = []
        self._free_at = 0.0
        self.held: list[bytes | None] = []
        self.under_way = 0
        """Bytes sent and not yet taken by the other end."""
        self._cut = False
        self._swallows = False
        self._parcel: list[bytes | None] = []
        self._parcel_sent_at = -1.0
        self._waiters: list[asyncio.Future[None]] = []

    def send(self, data: bytes | None) -> None:
        fabric = self._fabric
        source, target = self._source.host_name, self._target.host_name
        if self._cut:
            return
        if data is not None:
            self.under_way += len(data)
            fabric.sent(source, target, data)
            fabric.trace.frame(fabric.loop.now, source, "->", target, data)
        if self._swallows:
            return
        if fabric.blocked(source, target):
            self._hold(data)
        elif fabric.weather.in_order or data is None:
            self._send_in_order(data)
        else:
            self._send_in_bad_weather(data)

    def _hold(self, data: bytes | None) -> None:
        """On TCP the sender keeps what is not acknowledged. Else it vanishes."""
        if self._fabric.weather.in_order or data is None:
            self.held.append(data)
        else:
            self._lose(data, "partition")

    def _lose(self, data: bytes, why: str) -> None:
        fabric = self._fabric
        fabric.trace.frame(fabric.loop.now, self._source.host_name, f"-x {why}", self._target.host_name, data)
        self.took(len(data))

    def _send_in_order(self, data: bytes | None) -> None:
        """What is sent at one moment travels in one parcel."""
        now = self._fabric.loop.now
        if self._parcel_sent_at == now:
            self._parcel.append(data)
            return
        self._parcel, self._parcel_sent_at = [data], now
        self.last_arrival = max(self.last_arrival, self._arrival(len(data) if data else 0))
        self._target.process.arrive_at(self.last_arrival, self._arrive, self._parcel)

    def _send_in_bad_weather(self, data: bytes) -> None:
        weather, random = self._fabric.weather, self._fabric.random
        if random.random() < weather.loss:
            self._lose(data, "lost")
            return
        arrival = max(self._established, self._arrival(len(data)))
        if random.random() < weather.reorder:
            arrival += random.random() * 10 * weather.delay.median
        else:
            self.last_arrival = arrival = max(self.last_arrival, arrival)
        self._target.process.arrive_at(arrival, self._arrive, [data])
        if random.random() < weather.duplicate:
            self.under_way += len(data)
            again = arrival + random.random() * 20 * weather.delay.median
            self._target.process.arrive_at(again, self._arrive, [data])

    def _arrival(self, size: int) -> float:
        fabric = self._fabric
        self._free_at = max(self._free_at, fabric.loop.now) + size / fabric.weather.bytes_per_second
        return self._free_at + fabric.delay(self._source.host_name, self._target.host_name)

    def straggle(self, until: float) -> None:
        """What is under way stays so for a while."""
        self._straggles_until = self.last_arrival = max(self.last_arrival, until)
        self._target.process.arrive_at(self._straggles_until, self._catch_up)

    def hurry(self, source: str, target: str, delay: float) -> bool:
        """Between these two: what straggles arrives soon. Whether it does."""
        if (source, target) != (self._source.host_name, self._target.host_name):
            return False
        self._target.process.arrive_at(self._fabric.loop.now + delay, self._catch_up)
        return True

    def _catch_up(self) -> None:
        self._straggles_until = 0.0
        late, self._late = self._late, []
        for parcel in late:
            self._arrive(parcel)

    def _arrive(self, parcel: list[bytes | None]) -> None:
        if self._straggles_until:
            self._late.append(parcel)
            return
        if parcel is self._parcel:
            self._parcel_sent_at = -1.0
        if not self._cut and not self._swallows:
            self._target.take(parcel)

    def release(self) -> None:
        """What was held arrives now, in order."""
        held, self.held = self.held, []
        for data in held:
            self._send_in_order(data)

    def cut(self) -> None:
        """Nothing more arrives; nobody waits for room any more."""
        self._cut = True
        self.held.clear()
        self.took(self.under_way)

    def swallow(self) -> None:
        """The other machine is gone and nobody here knows: what is sent piles up."""
        self._swallows = True

    # ------------------------------------------------------------ back-pressure

    @property
    def writable(self) -> bool:
        return self.under_way < self._fabric.weather.window_bytes

    def took(self, size: int) -> None:
        self.under_way -= size
        if self._waiters and self.writable:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                self._source.process.arrive_at(self._fabric.loop.now, _wake, waiter)

    async def drained(self) -> None:
        if not self.writable and not self._cut and not self._source.over:
            waiter: asyncio.Future[None] = self._fabric.loop.create_future()
            self._waiters.append(waiter)
            await waiter


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class End:
    """What one process holds of a connection: its `Channel`."""

    link: Link
    """Towards the other end."""
    other: "End"

    def __init__(self, connection: Connection, process: "Process", remote: str) -> None:
        self.remote = remote
        self.process = process
        self.host_name = process.host.name
        self.over = False
        self._connection = connection
        self._handler: ChannelHandler | None = None
        self._error: VarlogError | None = None
        self._inbox: deque[bytes | None] = deque()
        self._reading = True

    def accept(self, handler: Callable[[Channel], ChannelHandler]) -> None:
        """This end's process knows of the connection from here on."""
        self._handler = handler(self)
        if self._error is not None:
            self._handler.closed(self._error)
        self._drain_inbox()

    # ------------------------------------------------------------ the port

    def send(self, buffers: Sequence[Buffer]) -> None:
        if not self.over and self.process.alive:
            self.link.send(b"".join(buffers))

    @property
    def writable(self) -> bool:
        return self.over or self.link.writable

    async def drained(self) -> None:
        if not self.process.alive:
            raise asyncio.CancelledError
        await self.link.drained()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.process.arrive_at(self._connection.fabric.loop.now, self._drain_inbox)

    def close(self) -> None:
        if not self.over and self.process.alive:
            self.link.send(None)
            self._finish(ConnectionLost("closed here"), soon=True)

    # ------------------------------------------------------------ what arrives

    def take(self, parcel: list[bytes | None]) -> None:
        if self._inbox or not self._reading or self._handler is None:
            self._inbox += parcel
            return
        for index, data in enumerate(parcel):
            self._receive(data)
            if not self._reading:
                self._inbox += parcel[index + 1 :]
                return

    def _drain_inbox(self) -> None:
        while self._inbox and self._reading:
            self._receive(self._inbox.popleft())

    def _receive(self, data: bytes | None) -> None:
        if data is None:
            self.lost("closed by the other end")
            return
        self.other.link.took(len(data))
        if self.over or self._handler is None:
            return
        fabric = self._connection.fabric
        fabric.trace.frame(fabric.loop.now, self.host_name, "<-", self.other.host_name, data)
        try:
            frame = decode_frame(data)
        except VarlogError as error:
            self._finish(error, soon=False)
            return
        self._handler.frame_received(frame)

    def lost(self, why: str) -> None:
        """The connection ended without this end's doing."""
        if not self.over:
            self._finish(ConnectionLost(f"connection to {self.remote} lost: {why}"), soon=False)

    def _finish(self, error: VarlogError, *, soon: bool) -> None:
        self.over = True
        self._error = error
        self._inbox.clear()
        fabric = self._connection.fabric
        fabric.trace.event(fabric.loop.now, self.host_name, "-|", f"{self.other.host_name:<12} {error}")
        self.link.took(self.link.under_way)
        self._connection.check_over()
        if self._handler is None:
            return
        if soon:
            self.process.arrive_at(fabric.loop.now, self._handler.closed, error)
        else:
            self._handler.closed(error)
