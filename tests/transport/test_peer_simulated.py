"""Peers on the simulated network, in weather that loses, doubles and reorders single frames.

Whatever the weather: every call ends by its deadline, in its own answer or in an error that says so; a
stream gives a prefix of what was sent, in order; and the same seed is the same run.
"""

import asyncio
from random import Random

import pytest
from tests.sim.world import Small

from varlog.base.errors import ConnectionLost, Timeout, Unavailable
from varlog.sim.host import Process
from varlog.sim.weather import NetworkWeather
from varlog.transport import limits
from varlog.transport.peer import Peer, Request, connect, serve
from varlog.wire.frame import WINDOW_UNIT
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PARTS = 30
EXPECTED = (Timeout, ConnectionLost, Unavailable)


def weather_of(random: Random) -> NetworkWeather:
    return NetworkWeather(
        in_order=random.random() < 0.3,
        loss=random.choice([0.0, 0.02, 0.2]),
        duplicate=random.choice([0.0, 0.05, 0.3]),
        reorder=random.choice([0.0, 0.05, 0.3]),
    )


class Run:
    """One server, one client, one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.small = Small(seed, weather_of(self.random))
        self.hosts = self.small.host("server"), self.small.host("client")
        self.defects: list[BaseException] = []
        self.outcomes: list[str] = []

    async def serve(self, process: Process) -> None:
        random = process.world.random

        async def echo(request: Request) -> None:
            await process.clock.sleep(random.random() * 0.2)
            request.reply(pb.TailReply(tail=request.message.log))

        async def parts(request: Request) -> None:
            for index in range(PARTS):
                await request.part(pb.ReadPart(slot=index), [bytes(WINDOW_UNIT // 5)], end=index == PARTS - 1)

        handlers = {Method.TAIL: echo, Method.READ: parts}
        await serve(process.world, "server:1", handlers, on_defect=self.defects.append)
        await asyncio.Event().wait()

    async def client(self, process: Process) -> None:
        peer = await self._connect(process)
        for number in range(20):
            if peer.closed_error is not None:
                peer = await self._connect(process)
            if number % 4 == 3:
                await self._stream(process, peer)
            else:
                await self._call(process, peer, number)

    async def _connect(self, process: Process) -> Peer:
        while True:
            try:
                return await connect(process.world, "server:1", timeout=1.0, on_defect=self.defects.append)
            except Unavailable:
                await process.clock.sleep(0.01)

    async def _call(self, process: Process, peer: Peer, number: int) -> None:
        began = process.clock.now()
        try:
            reply = await peer.call(Method.TAIL, pb.TailRequest(log=number), timeout=1.0)
            assert reply.message.tail == number
            self.outcomes.append("answer")
        except EXPECTED as error:
            self.outcomes.append(type(error).__name__)
        assert process.clock.now() - began < 1.0 + 2 * limits.DEADLINE_SECONDS

    async def _stream(self, process: Process, peer: Peer) -> None:
        taken: list[int] = []
        began = process.clock.now()
        try:
            async with peer.stream(Method.READ, pb.ReadRequest(), window_bytes=WINDOW_UNIT, timeout=1.0) as stream:
                async for part in stream:
                    taken.append(part.message.slot)  # noqa: PERF401 - a prefix is right too
            assert len(taken) == PARTS
            self.outcomes.append("stream")
        except EXPECTED as error:
            self.outcomes.append(f"{type(error).__name__} after {len(taken)}")
        assert taken == list(range(len(taken)))
        assert process.clock.now() - began < 60, "a stream that lost something must end"

    async def main(self) -> None:
        server, client = self.hosts
        server.start(self.serve)
        await asyncio.sleep(0.1)
        task = client.start(self.client).main
        assert task is not None
        await task

    def run(self) -> None:
        self.small.run(self.main())


@pytest.mark.parametrize("seed", range(40))
def test_every_call_and_stream_ends_truly(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert len(run.outcomes) == 20
    assert run.defects == []


def test_calm_weather_loses_nothing() -> None:
    run = Run(1)
    run.small.fabric.weather = NetworkWeather()
    run.run()
    assert set(run.outcomes) == {"answer", "stream"}


def test_the_same_seed_is_the_same_run() -> None:
    def fingerprint(seed: int) -> tuple[int, list[str]]:
        run = Run(seed)
        run.run()
        return run.small.fabric.fingerprint, run.outcomes

    assert fingerprint(7) == fingerprint(7)
    assert fingerprint(7) != fingerprint(8)


def test_the_weather_is_felt() -> None:
    """Otherwise the tests above would prove nothing."""
    outcomes: set[str] = set()
    for seed in range(40):
        run = Run(seed)
        run.run()
        outcomes.update(run.outcomes)
    assert {"answer", "stream", "Timeout"} <= outcomes
    assert any(outcome.startswith("ConnectionLost after") for outcome in outcomes)
