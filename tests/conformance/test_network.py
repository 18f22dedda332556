"""What every network must do; run against each implementation."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

import pytest
from tests.sim.world import Small

from varlog.base.errors import Unavailable, VarlogError
from varlog.ports import Channel, Listener, World
from varlog.runtime.loop import loop_factory
from varlog.runtime.timeout import within
from varlog.sim.host import Process
from varlog.transport.world import real_world
from varlog.wire.frame import Frame, Kind, encode_frame

PATIENCE_S = 60.0
"""Longer than anything takes, however busy the machine is."""

Body = Callable[["Hall"], Coroutine[Any, Any, None]]
"""A test: gets a hall that listens."""


class Implementation(Protocol):
    def run(self, body: Body) -> None: ...


class Simulated:
    """Both ends in one process, on a network in good weather."""

    def run(self, body: Body) -> None:
        small = Small()
        host = small.host("here")

        async def inside(process: Process) -> None:
            await in_hall(process.world, "here:1", body)

        async def main() -> None:
            task = host.start(inside).main
            assert task is not None
            await task

        small.run(main())


class Real:
    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
        self._make_loop = make_loop

    def run(self, body: Body) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(in_hall(real_world(), "127.0.0.1:0", body))


def _implementations() -> Iterator[Any]:
    yield pytest.param(Real(asyncio.new_event_loop), id="tcp-asyncio")
    if loop_factory() is not asyncio.new_event_loop:
        yield pytest.param(Real(loop_factory()), id="tcp-uvloop")
    yield pytest.param(Simulated(), id="simulated")


implementations = pytest.mark.parametrize("network", list(_implementations()))


class Ear:
    """Keeps what it hears."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.frames: list[Frame] = []
        self.ended: list[VarlogError] = []

    def frame_received(self, frame: Frame) -> None:
        self.frames.append(frame)

    def closed(self, error: VarlogError) -> None:
        self.ended.append(error)

    @property
    def numbers(self) -> list[int]:
        return [frame.request_id for frame in self.frames]


class Hall:
    """A listener and the ears of all connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self.listener: Listener
        self.accepted: list[Ear] = []
        self._called: list[Ear] = []

    @property
    def address(self) -> str:
        return self.listener.address

    def hear(self, channel: Channel) -> Ear:
        self.accepted.append(Ear(channel))
        return self.accepted[-1]

    async def connect(self) -> tuple[Ear, Ear]:
        """A new connection: the caller's ear and the listener's."""

        def hear(channel: Channel) -> Ear:
            self._called.append(Ear(channel))
            return self._called[-1]

        before = len(self.accepted)
        channel = await self.world.network.connect(self.address, hear, timeout=PATIENCE_S)
        caller = self._called[-1]
        assert caller.channel is channel
        await self.until(lambda: len(self.accepted) > before)
        return caller, self.accepted[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what must come; fail when it does not."""

        async def wait() -> None:
            while not condition():
                await self.clock.sleep(0.001)

        await within(self.clock, PATIENCE_S, wait())

    async def close(self) -> None:
        await self.listener.close()
        for ear in self.accepted + self._called:
            ear.channel.close()
        await self.until(lambda: all(len(ear.ended) == 1 for ear in self.accepted + self._called))


async def in_hall(world: World, address: str, body: Body) -> None:
    hall = Hall(world)
    hall.listener = await world.network.listen(address, hall.hear)
    try:
        await body(hall)
    finally:
        await hall.close()


async def fill(hall: Hall, caller: Ear) -> int:
    """Send until the channel takes no more; how many frames that were."""
    sent = 0
    while caller.channel.writable:
        say(caller.channel, [sent], bytes(100_000))
        sent += 1
        await hall.clock.sleep(0.0005)
        assert sent < 10_000, "a sender nobody reads must be held back"
    return sent


def say(channel: Channel, numbers: Sequence[int], body: bytes = b"") -> None:
    for number in numbers:
        channel.send(encode_frame(Kind.NOTIFY, 1, number, b"header", [body]))


@implementations
def test_frames_arrive_whole_in_order_both_ways(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        sizes = [0, 1, 20_000, 3, 400_000, 2_000_000, 5]
        for number, size in enumerate(sizes):
            say(caller.channel, [number], bytes([number]) * size)
            say(called.channel, [number + 100])
        await hall.until(lambda: len(called.frames) == len(sizes) == len(caller.frames))
        assert caller.numbers == [number + 100 for number in range(len(sizes))]
        for number, (frame, size) in enumerate(zip(called.frames, sizes, strict=True)):
            assert frame == Frame(Kind.NOTIFY, 1, 0, number, 0, b"header", bytes([number]) * size)

    network.run(body)


@implementations
def test_many_small_frames_of_one_turn_all_arrive(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        say(caller.channel, range(5000))
        await hall.until(lambda: len(called.frames) == 5000)
        assert called.numbers == list(range(5000))

    network.run(body)


@implementations
def test_what_was_sent_before_closing_arrives_and_both_ends_are_told_once(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        say(caller.channel, range(100), bytes(1000))
        caller.channel.close()
        caller.channel.close()
        say(caller.channel, [100])
        await hall.until(lambda: bool(caller.ended and called.ended))
        assert called.numbers == list(range(100))
        called.channel.close()
        await hall.clock.sleep(0.05)
        assert (len(caller.ended), len(called.ended)) == (1, 1)

    network.run(body)


@implementations
def test_nobody_there_is_unavailable(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        await hall.listener.close()
        await hall.clock.sleep(0.05)
        with pytest.raises(Unavailable) as refused:
            await hall.world.network.connect(hall.address, hall.hear, timeout=2)
        assert hall.address in refused.value.message
        assert hall.accepted == []

    network.run(body)


@implementations
def test_an_address_is_bound_once_at_a_time(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        with pytest.raises(Unavailable) as refused:
            await hall.world.network.listen(hall.address, hall.hear)
        assert hall.address in refused.value.message
        await hall.listener.close()
        await hall.clock.sleep(0.05)
        address = hall.address
        hall.listener = await hall.world.network.listen(address, hall.hear)
        assert hall.address == address

    network.run(body)


@implementations
def test_channels_outlive_their_listener(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        await hall.listener.close()
        say(caller.channel, [1])
        await hall.until(lambda: called.numbers == [1])
        caller.channel.close()
        await hall.until(lambda: bool(called.ended))

    network.run(body)


@implementations
def test_what_is_not_read_holds_the_sender_back_and_is_not_lost(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        assert caller.channel.writable
        called.channel.pause_reading()
        sent = await fill(hall, caller)
        drained = asyncio.ensure_future(caller.channel.drained())
        await hall.clock.sleep(0.05)
        assert not drained.done()
        called.channel.resume_reading()
        await within(hall.clock, PATIENCE_S, drained)
        assert caller.channel.writable
        await hall.until(lambda: len(called.frames) == sent)
        assert called.numbers == list(range(sent))

    network.run(body)


@implementations
@pytest.mark.parametrize("by", ["caller", "called"])
def test_who_waits_for_room_is_woken_when_the_channel_closes(network: Implementation, by: str) -> None:
    async def body(hall: Hall) -> None:
        caller, called = await hall.connect()
        called.channel.pause_reading()
        await fill(hall, caller)
        drained = asyncio.ensure_future(caller.channel.drained())
        await hall.clock.sleep(0.01)
        (caller if by == "caller" else called).channel.close()
        await within(hall.clock, PATIENCE_S, drained)

    network.run(body)


@implementations
def test_each_connection_is_its_own(network: Implementation) -> None:
    async def body(hall: Hall) -> None:
        pairs = [await hall.connect() for _ in range(5)]
        for number, (caller, _) in enumerate(pairs):
            say(caller.channel, [number])
        await hall.until(lambda: all(called.frames for _, called in pairs))
        assert [called.numbers for _, called in pairs] == [[number] for number in range(5)]
        pairs[2][0].channel.close()
        await hall.until(lambda: bool(pairs[2][1].ended))
        say(pairs[3][1].channel, [33])
        await hall.until(lambda: pairs[3][0].numbers == [33])
        assert [bool(called.ended) for _, called in pairs] == [False, False, True, False, False]

    network.run(body)
