"""What does a message cost? The transport against bare sockets, between two processes on loopback.

    python -m bench.transport [--rounds N]

Both echo the body back. Rounds of both alternate and the best of each counts: on a busy machine the
best round is the one that was disturbed least. CPU is user and system time of each process.
"""

import argparse
import asyncio
import multiprocessing
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from varlog.runtime.loop import run
from varlog.transport.peer import Peer, Request, connect, serve
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SMALL, LARGE = 100, 1 << 20
ALONE, TOGETHER, IN_FLIGHT, LARGE_COUNT = 2000, 12_800, 64, 60
ASK = pb.AppendRequest(log=1, segment=1, stream=1)
ANSWER = pb.AppendReply(glsn=1, slot=1, count=1)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass
class Best:
    """The best of all rounds, by name of the figure."""

    figures: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        self.figures[name] = min(value, self.figures.get(name, value))


# ---------------------------------------------------------------- bare sockets


def raw_server(pipe: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname()[1])
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(LARGE))
    while count := connection.recv_into(buffer):
        connection.sendall(buffer[:count])


def raw_round(connection: socket.socket, best: Best) -> None:
    def echo(data: bytes) -> None:
        connection.sendall(data)
        missing = len(data)
        while missing:
            missing -= len(connection.recv(missing))

    small, large = bytes(SMALL + 30), bytes(LARGE)
    took = []
    for _ in range(ALONE):
        began = time.perf_counter()
        echo(small)
        took.append(time.perf_counter() - began)
    best.note("round trip µs", sorted(took)[ALONE // 2] * 1e6)
    began = time.perf_counter()
    for _ in range(TOGETHER // IN_FLIGHT):
        echo(small * IN_FLIGHT)
    best.note("µs a message, 64 in flight", (time.perf_counter() - began) / TOGETHER * 1e6)
    began = time.perf_counter()
    for _ in range(LARGE_COUNT):
        echo(large)
    best.note("µs a MiB there and back", (time.perf_counter() - began) / LARGE_COUNT * 1e6)


# ---------------------------------------------------------------- ours


def our_server(pipe: Connection) -> None:
    def echo(request: Request) -> None:
        request.reply(ANSWER, [request.body])

    def cpu(request: Request) -> None:
        request.reply(pb.ProducerReply(next_sequence=int(cpu_seconds() * 1e6)))

    async def main() -> None:
        server = await serve(real_world(), "127.0.0.1:0", {Method.APPEND: echo, Method.PRODUCER: cpu})
        pipe.send(server.address)
        await asyncio.Event().wait()

    run(main())


async def server_cpu_us(peer: Peer) -> int:
    reply = await peer.call(Method.PRODUCER, pb.ProducerRequest(), timeout=10)
    return int(reply.message.next_sequence)


async def our_round(peer: Peer, best: Best) -> None:
    small, large = [bytes(SMALL)], [bytes(LARGE)]

    async def calls(count: int, body: list[bytes]) -> None:
        for _ in range(count):
            await peer.call(Method.APPEND, ASK, body, timeout=10)

    took = []
    for _ in range(ALONE):
        began = time.perf_counter()
        await calls(1, small)
        took.append(time.perf_counter() - began)
    best.note("round trip µs", sorted(took)[ALONE // 2] * 1e6)
    for name, count, workers, body in (
        ("message, 64 in flight", TOGETHER, IN_FLIGHT, small),
        ("MiB there and back", LARGE_COUNT, 1, large),
        ("MiB there and back, 8 at once", LARGE_COUNT * 2, 8, large),
    ):
        here, there, began = cpu_seconds(), await server_cpu_us(peer), time.perf_counter()
        await asyncio.gather(*(calls(count // workers, body) for _ in range(workers)))
        best.note(f"µs a {name}", (time.perf_counter() - began) / count * 1e6)
        best.note(f"caller's CPU µs a {name}", (cpu_seconds() - here) / count * 1e6)
        best.note(f"server's CPU µs a {name}", (await server_cpu_us(peer) - there) / count)


# ---------------------------------------------------------------- both


@contextmanager
def process(target: Any) -> Iterator[Any]:
    """A server in a process of its own; gives where it listens."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    server = context.Process(target=target, args=(its,), daemon=True)
    server.start()
    try:
        yield mine.recv()
    finally:
        server.terminate()
        server.join()


async def measure(address: str, port: int, rounds: int) -> tuple[Best, Best]:
    ours, raw = Best(), Best()
    peer = await connect(real_world(), address, timeout=10)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(rounds):
            raw_round(connection, raw)
            await our_round(peer, ours)
    peer.close()
    return ours, raw


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transport", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with process(our_server) as address, process(raw_server) as port:
        ours, raw = run(measure(address, port, rounds))
    print("| | transport | bare sockets |\n|---|---|---|")
    for name, value in ours.figures.items():
        floor = f"{raw.figures[name]:.1f}" if name in raw.figures else ""
        print(f"| {name} | {value:.1f} | {floor} |")


if __name__ == "__main__":
    main()
