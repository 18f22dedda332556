"""The simulated network: order, loss, partitions, crashes, pauses, back-pressure."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.sim.world import Small, idle

from varlog.base.errors import Unavailable, VarlogError
from varlog.ports.network import Channel
from varlog.sim.host import Host, Process
from varlog.sim.weather import Latency, NetworkWeather
from varlog.wire.frame import Frame, Kind, encode_frame


class Ear:
    """Keeps what it hears."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[int] = []
        self.bodies: list[bytes] = []
        self.ended: list[VarlogError] = []

    def frame_received(self, frame: Frame) -> None:
        self.heard.append(frame.request_id)
        self.bodies.append(bytes(frame.body))

    def closed(self, error: VarlogError) -> None:
        self.ended.append(error)


def say(channel: Channel, numbers: Sequence[int], body: bytes = b"") -> None:
    for number in numbers:
        channel.send(encode_frame(Kind.NOTIFY, 1, number, b"header", [body]))


class Pair:
    """Two hosts with one connection from the first to the second."""

    def __init__(self, weather: NetworkWeather | None = None, seed: int = 1) -> None:
        self.small = Small(seed, weather)
        self.hosts = (self.small.host("a"), self.small.host("b"))
        self.ears: list[Ear] = []

    def hear(self, channel: Channel) -> Ear:
        ear = Ear(channel)
        self.ears.append(ear)
        return ear

    async def connect(self) -> tuple[Ear, Ear]:
        """The caller's ear and the listener's."""
        caller, listener = self.hosts

        async def serve(process: Process) -> None:
            await process.world.network.listen("b:1", self.hear)

        async def call(process: Process) -> None:
            await process.world.network.connect("b:1", self.hear, timeout=5.0)

        listener.start(serve)
        caller.start(call)
        await asyncio.sleep(1.0)
        listening, calling = self.ears
        return calling, listening


def test_clean_tcp_keeps_order_and_loses_nothing() -> None:
    pair = Pair(NetworkWeather(delay=Latency(0.01, 1.0)))

    async def main() -> None:
        calling, listening = await pair.connect()
        for first in range(0, 100, 5):
            say(calling.channel, range(first, first + 5), b"body")
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert listening.heard == list(range(100))
        assert listening.bodies == [b"body"] * 100
        say(listening.channel, [7])
        await asyncio.sleep(1)
        assert calling.heard == [7]

    pair.small.run(main())


def test_bad_weather_loses_doubles_and_reorders_single_frames() -> None:
    pair = Pair(NetworkWeather(in_order=False, loss=0.1, duplicate=0.1, reorder=0.2))

    async def main() -> None:
        calling, listening = await pair.connect()
        for number in range(500):
            say(calling.channel, [number])
            await asyncio.sleep(0.0001)
        await asyncio.sleep(1)
        heard = listening.heard
        assert 400 < len(set(heard)) < 500, "some are lost"
        assert len(heard) > len(set(heard)), "some come twice"
        assert heard != sorted(heard), "some are overtaken"
        assert not calling.ended
        assert not listening.ended

    pair.small.run(main())


def test_closing_delivers_what_was_sent_and_tells_both_ends_once() -> None:
    pair = Pair()

    async def main() -> None:
        calling, listening = await pair.connect()
        say(calling.channel, [1, 2])
        calling.channel.close()
        calling.channel.close()
        say(calling.channel, [3])
        await asyncio.sleep(1)
        assert listening.heard == [1, 2]
        assert len(calling.ended) == len(listening.ended) == 1

    pair.small.run(main())


def test_nobody_listening_is_unavailable_at_once() -> None:
    small = Small()
    host = small.host("a")
    outcome: list[float] = []

    async def call(process: Process) -> None:
        with pytest.raises(Unavailable):
            await process.world.network.connect("b:1", Ear, timeout=5.0)
        outcome.append(small.loop.now)

    async def main() -> None:
        host.start(call)
        await asyncio.sleep(10)

    small.run(main())
    assert outcome[0] < 1.0


def test_an_address_is_bound_once_and_free_again_after_a_crash() -> None:
    small = Small()
    host, other = small.host("a"), small.host("b")
    bound: list[str] = []

    async def serve(process: Process) -> None:
        listener = await process.world.network.listen("a:0", Ear)
        bound.append(listener.address)
        with pytest.raises(Unavailable):
            await process.world.network.listen(listener.address, Ear)

    async def again(process: Process) -> None:
        await process.world.network.listen(bound[0], Ear)

    async def main() -> None:
        host.start(serve)
        await asyncio.sleep(1)
        host.crash()
        other.start(again)
        await asyncio.sleep(1)

    small.run(main())
    assert bound[0] != "a:0"


@pytest.mark.parametrize(("late", "soonest"), [(0.0, 0.0), (1.0, 0.05)])
def test_peers_of_a_crashed_process_learn_it_sooner_or_later(late: float, soonest: float) -> None:
    pair = Pair(NetworkWeather(late_notice=late, late_notice_seconds=20.0), seed=5)
    learned: list[float] = []

    async def main() -> None:
        calling, listening = await pair.connect()
        say(listening.channel, [1])
        pair.hosts[1].crash(power_loss=True)
        died = pair.small.loop.now
        say(listening.channel, [2])
        while not calling.ended:
            await asyncio.sleep(0.001)
        learned.append(pair.small.loop.now - died)
        assert calling.heard == [1], "what was sent before death arrives, what came after does not"
        assert not listening.ended, "the dead hear nothing"

    pair.small.run(main())
    assert soonest <= learned[0] <= (20.1 if late else 0.01)


def test_a_partition_holds_frames_of_tcp_and_lets_them_go_on_healing() -> None:
    pair = Pair(NetworkWeather(break_on_heal=0.0))

    async def main() -> None:
        calling, listening = await pair.connect()
        pair.small.fabric.block([("a", "b")])
        say(calling.channel, [1, 2])
        say(listening.channel, [3])
        await asyncio.sleep(5)
        assert listening.heard == []
        assert calling.heard == [3], "the other direction is open"
        pair.small.fabric.heal()
        await asyncio.sleep(1)
        assert listening.heard == [1, 2]

    pair.small.run(main())


def test_a_hanging_connection_may_break_on_healing() -> None:
    pair = Pair(NetworkWeather(break_on_heal=1.0))

    async def main() -> None:
        calling, listening = await pair.connect()
        pair.small.fabric.block([("a", "b")])
        say(calling.channel, [1])
        await asyncio.sleep(5)
        pair.small.fabric.heal()
        await asyncio.sleep(1)
        assert listening.heard == []
        assert len(calling.ended) == len(listening.ended) == 1
        assert pair.small.fabric.open_connections() == []

    pair.small.run(main())


def test_connecting_through_a_partition_takes_until_the_timeout() -> None:
    small = Small()
    caller, listener = small.host("a"), small.host("b")
    failed: list[float] = []

    async def serve(process: Process) -> None:
        await process.world.network.listen("b:1", Ear)

    async def call(process: Process) -> None:
        with pytest.raises(Unavailable):
            await process.world.network.connect("b:1", Ear, timeout=2.0)
        failed.append(small.loop.now)

    async def main() -> None:
        listener.start(serve)
        await asyncio.sleep(1)
        small.fabric.block([("b", "a")])
        caller.start(call)
        await asyncio.sleep(5)

    small.run(main())
    assert failed == [pytest.approx(3.0)]


def test_a_paused_process_hears_everything_afterwards() -> None:
    pair = Pair()

    async def main() -> None:
        calling, listening = await pair.connect()
        pair.hosts[1].pause(clock_stops=False)
        say(calling.channel, [1, 2, 3])
        await asyncio.sleep(5)
        assert listening.heard == []
        pair.hosts[1].resume()
        await asyncio.sleep(1)
        assert listening.heard == [1, 2, 3]

    pair.small.run(main())


def test_a_slow_reader_makes_the_channel_unwritable() -> None:
    pair = Pair(NetworkWeather(window_bytes=1000))
    drained: list[float] = []

    async def write(process: Process, channel: Channel) -> None:
        say(channel, range(10), bytes(200))
        assert not channel.writable
        await channel.drained()
        assert channel.writable
        drained.append(pair.small.loop.now)

    async def main() -> None:
        calling, listening = await pair.connect()
        listening.channel.pause_reading()
        process = pair.hosts[0].process
        assert process is not None
        process.spawn(write(process, calling.channel), "write")
        await asyncio.sleep(5)
        assert drained == []
        listening.channel.resume_reading()
        await asyncio.sleep(1)
        assert listening.heard == list(range(10))
        assert drained == [pytest.approx(6.0, abs=0.1)]

    pair.small.run(main())


def test_breaking_a_connection_wakes_who_waits_for_room() -> None:
    pair = Pair(NetworkWeather(window_bytes=1000))
    drained: list[bool] = []

    async def write(channel: Channel) -> None:
        say(channel, range(10), bytes(200))
        await channel.drained()
        drained.append(True)

    async def main() -> None:
        calling, listening = await pair.connect()
        listening.channel.pause_reading()
        process = pair.hosts[0].process
        assert process is not None
        process.spawn(write(calling.channel), "write")
        await asyncio.sleep(1)
        pair.small.fabric.open_connections()[0].break_off("a test says so")
        await asyncio.sleep(1)
        assert len(calling.ended) == len(listening.ended) == 1

    pair.small.run(main())
    assert drained == [True]


def test_a_received_body_cannot_change_under_its_reader() -> None:
    pair = Pair()

    async def main() -> None:
        calling, listening = await pair.connect()
        mutable = bytearray(b"before")
        calling.channel.send(encode_frame(Kind.NOTIFY, 1, 1, b"", [mutable]))
        mutable[:] = b"after!"
        await asyncio.sleep(1)
        assert listening.bodies == [b"before"]

    pair.small.run(main())


def _restart(host: Host) -> None:
    host.crash()
    host.start(idle)


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    def fingerprint(seed: int) -> tuple[int, list[int]]:
        pair = Pair(NetworkWeather(in_order=False, loss=0.1, duplicate=0.1, reorder=0.3), seed)
        heard: list[int] = []

        async def main() -> None:
            calling, listening = await pair.connect()
            for number in range(100):
                say(calling.channel, [number])
                await asyncio.sleep(0.001)
            _restart(pair.hosts[0])
            await asyncio.sleep(1)
            heard.extend(listening.heard)

        pair.small.run(main())
        return pair.small.fabric.fingerprint, heard

    assert fingerprint(1) == fingerprint(1)
    assert fingerprint(1)[1] != fingerprint(2)[1]


def test_the_trace_tells_the_story() -> None:
    pair = Pair()

    async def main() -> None:
        calling, _ = await pair.connect()
        say(calling.channel, [42])
        await asyncio.sleep(1)
        pair.hosts[1].crash()
        await asyncio.sleep(1)

    pair.small.run(main())
    text = "\n".join(pair.small.trace.lines())
    assert "NOTIFY open 42" in text
    assert "crashes" in text
    assert "b#1 died" in text
