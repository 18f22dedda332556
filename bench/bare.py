r"""The floor of an append: its messages and its syncs, and nothing else.

    cut      client --> primary --+--> backup --.
                                  +--> backup --+--> repository --> primary --> client
                                  `-- synced ---'    (each synced before it says so, the repository too)
    leader   client --+--> member --.
                      +--> member --+--> client, when two have synced
                      `--> member --'

The same processes on the same event loop, with a message of 256 bytes for each of ours and a protocol that only counts
bytes. What an append takes beyond this is what a log is: batches, checksums, positions, retries, deadlines.

Under `leader` also with no event loop: blocking sockets, which is what is left to the machine.
"""

import asyncio
import multiprocessing
import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from bench.scratch import scratch
from varlog.runtime.loop import run

MESSAGE_BYTES = 256
FILE_BYTES = 16 << 20
MEMBERS = 3
ACKED_BY = 2
"""Members that a leader waits for."""

APPEND, STORE, REPORT, COMMIT, LEAD, ACK = (bytes([kind]) * MESSAGE_BYTES for kind in range(6))


class Line(asyncio.Protocol):
    """A connection that hands on each message."""

    def __init__(self, received: Callable[["Line", bytes], None]) -> None:
        self._received = received
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % MESSAGE_BYTES
        self._rest = data[whole:]
        for at in range(0, whole, MESSAGE_BYTES):
            self._received(self, data[at : at + MESSAGE_BYTES])

    def send(self, message: bytes) -> None:
        self._transport.write(message)


async def connect(port: int, received: Callable[[Line, bytes], None]) -> Line:
    _, line = await asyncio.get_running_loop().create_connection(lambda: Line(received), "127.0.0.1", port)
    return line


class File:
    """Written from its beginning to its end, and again."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(self._file, bytes(FILE_BYTES), 0)
        os.fsync(self._file)
        self._offset = 0

    def sync(self, data: bytes) -> None:
        os.pwritev(self._file, (data,), self._offset, os.RWF_DSYNC)
        self._offset = (self._offset + len(data)) % (FILE_BYTES - len(data))


class Server:
    """A member, the first of which is the primary, or the repository."""

    def __init__(self, path: Path) -> None:
        self._sync = File(path).sync
        self._reports = 0
        self._client: Line | None = None
        self._primary: Line | None = None
        self.backups: list[Line] = []
        self.repository: Line | None = None

    def received(self, line: Line, message: bytes) -> None:
        if message in (APPEND, STORE):
            if message == APPEND:
                self._client = line
                for backup in self.backups:
                    backup.send(STORE)
            self._sync(message)
            if self.repository is not None:
                self.repository.send(COMMIT if message == APPEND else REPORT)
        elif message in (REPORT, COMMIT) and self.repository is None:
            self._count(line, message)
        elif message == COMMIT and self._client is not None:
            self._client.send(ACK)
        elif message == LEAD:
            self._sync(message)
            line.send(ACK)

    def _count(self, line: Line, message: bytes) -> None:
        """The repository: when all have reported, the primary is told, whose own report says COMMIT."""
        self._reports += 1
        if message == COMMIT:
            self._primary = line
        if self._reports == MEMBERS and self._primary is not None:
            self._reports = 0
            self._sync(message)
            self._primary.send(COMMIT)


def serve(path: Path, pipe: Connection) -> None:
    """One process: tells its port, is told those of all, works until the pipe is closed."""
    run(_serve(path, pipe))


async def _serve(path: Path, pipe: Connection) -> None:
    server = Server(path)
    listener = await asyncio.get_running_loop().create_server(lambda: Line(server.received), "127.0.0.1", 0)
    pipe.send(listener.sockets[0].getsockname()[1])
    own, ports = await asyncio.to_thread(pipe.recv)
    if own < MEMBERS:
        server.repository = await connect(ports[MEMBERS], server.received)
    if own == 0:
        server.backups = [await connect(port, server.received) for port in ports[1:MEMBERS]]
    pipe.send("ready")
    await asyncio.to_thread(pipe.poll, None)
    listener.close()


async def _appends(ports: list[int], seconds: float, message: bytes, answers: int) -> float:
    """Median seconds of one after the other: the message to all ports, until so many have answered."""
    missing = 0  # of this append, and perhaps one of the last
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(_: Line, __: bytes) -> None:
        nonlocal missing
        missing -= 1
        if missing <= len(ports) - answers and not done.done():
            done.set_result(None)

    lines = [await connect(port, answered) for port in ports]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        done = asyncio.get_running_loop().create_future()
        missing += len(ports)
        for line in lines:
            line.send(message)
        await done
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(folder: Path, seconds: float = 1.0) -> tuple[float, float, float]:
    """Median seconds of an append alone: under `cut`, under `leader`, and that on blocking sockets."""
    with _processes(serve, MEMBERS + 1, folder) as pipes:
        ports = [pipe.recv() for pipe in pipes]
        for number, pipe in enumerate(pipes):
            pipe.send((number, ports))
        for pipe in pipes:
            pipe.recv()
        cut = run(_appends(ports[:1], seconds, APPEND, 1))
        leader = run(_appends(ports[:MEMBERS], seconds, LEAD, ACKED_BY))
    with _processes(answer, MEMBERS, folder) as pipes:
        blocking = _lead([pipe.recv() for pipe in pipes], seconds)
    return cut, leader, blocking


@contextmanager
def _processes(work: Callable[[Path, Connection], None], count: int, folder: Path) -> Iterator[list[Connection]]:
    """So many, each with a file of its own, and a pipe to it."""
    context = multiprocessing.get_context("spawn")
    place = scratch(folder)
    pipes, processes = [], []
    for number in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(place / f"file-{number}", theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    yield pipes
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join()


# ---------------------------------------------------------------- blocking sockets


def answer(path: Path, pipe: Connection) -> None:
    """A member with no event loop, until its leader hangs up."""
    file = File(path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        leader, _ = listener.accept()
    leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with leader:
        while message := leader.recv(MESSAGE_BYTES, socket.MSG_WAITALL):
            file.sync(message)
            leader.sendall(ACK)


def _lead(ports: list[int], seconds: float) -> float:
    """Median seconds until enough members have answered. The last one is waited for as well, and not counted."""
    members = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    answers = select.poll()
    for member in members:
        member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers.register(member, select.POLLIN)
    by_number = {member.fileno(): member for member in members}
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        for member in members:
            member.sendall(LEAD)
        answered = 0
        while answered < len(members):
            for number, _ in answers.poll():
                by_number[number].recv(MESSAGE_BYTES, socket.MSG_WAITALL)
                answered += 1
                if answered == ACKED_BY:
                    times.append(time.perf_counter() - start)
    for member in members:
        member.close()
    return statistics.median(times)


if __name__ == "__main__":
    cut_s, leader_s, blocking_s = measure(Path.cwd())
    print(f"an append alone with no log in it: cut {cut_s * 1e6:.0f} µs, leader {leader_s * 1e6:.0f} µs, ", end="")
    print(f"on blocking sockets {blocking_s * 1e6:.0f} µs")
