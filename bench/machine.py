"""What the machine itself can do, measured in the same run: the limits our figures stand beside.

- `echo`: a round trip of 100 bytes between two processes on loopback, raw blocking sockets.
- `sync`: writing N bytes over blocks that were written before, then fdatasync; one process, without a
  pause or, as an append that is alone meets the disk, after a pause.
- `sync_three`: the same by three processes at once, as three replicas on one machine do it.
- `append_three`: three processes that write one block after the other, synced each, into files that were reserved and
  never written, as those of a log are until it recycles some. The pages and blocks for it are made meanwhile.
- `bare`: the messages and syncs of an append with no log in them, under `cut`, `leader`, and that on plain sockets.
- `call`: a call of a small Python method, over and over; most of what an append costs is some hundreds of those.
"""

import multiprocessing
import os
import socket
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench import bare
from bench.scratch import scratch

ROUNDS = 20_000
"""Most syncs of one process."""
REST_S = 0.002
"""About the time between two syncs of a node when appends come one after the other."""
FILE_BYTES = 64 << 20
"""What is written over."""
RESERVED_BYTES = 512 << 20
"""More than is written in the time."""


@dataclass(frozen=True)
class Machine:
    """All limits of one run. Times in seconds, rates in bytes a second."""

    call_s: float
    echo_s: float
    sync_1k_s: float
    sync_1k_rested_s: float
    sync_1k_three_s: float
    write_three_1m: float
    append_three_1m: float
    bare_cut_s: float
    bare_leader_s: float
    bare_sockets_s: float

    @property
    def rates_1m(self) -> tuple[float, float]:
        """What three processes sync, 1 MiB each time: over blocks that were written before, and into reserved ones."""
        return self.write_three_1m, self.append_three_1m

    @property
    def append_alone_s(self) -> float:
        """The floor the prototype of this design was measured against: one sync, and one with three at once."""
        return self.sync_1k_s + self.sync_1k_three_s

    @property
    def append_path_s(self) -> float:
        """The same with the five messages that an append waits for under `cut`, one after the other."""
        return self.append_alone_s + 2.5 * self.echo_s


def measure(folder: Path, seconds: float = 0.5) -> Machine:
    """Takes some seconds."""
    place = scratch(folder)
    one, _ = sync(place, 1, 1024, seconds)
    rested, _ = sync(place, 1, 1024, seconds, pause=REST_S)
    three, _ = sync(place, 3, 1024, seconds)
    _, over_1m = sync(place, 3, 1 << 20, seconds)
    _, fresh_1m = sync(place, 3, 1 << 20, seconds, fresh=True)
    bares = bare.measure(place, seconds)
    return Machine(call(), echo(2000), one, rested, three, over_1m, fresh_1m, *bares)


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> None:
        self.count += number


def call(rounds: int = 200, calls: int = 1000) -> float:
    """Seconds that a call of a method takes, with the loop around it."""
    counter = _Counter()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for number in range(calls):
            counter.add(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times) / calls


def echo(rounds: int = 5000) -> float:
    """Median round trip in seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = multiprocessing.get_context("spawn").Process(target=_echo_server, args=(server.getsockname(),))
        process.start()
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        with connection:
            for _ in range(rounds):
                start = time.perf_counter()
                connection.sendall(bytes(100))
                _receive(connection, 100)
                times.append(time.perf_counter() - start)
        process.join()
    return statistics.median(times)


def _echo_server(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(65536):
            connection.sendall(data)


def _receive(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(size))


def sync(
    folder: Path, processes: int, size: int, seconds: float, pause: float = 0.0, *, fresh: bool = False
) -> tuple[float, float]:
    """Median seconds of one write and sync, and bytes a second of all processes together."""
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for number in range(processes):
        ours, theirs = context.Pipe()
        path = folder / f"{'reserved' if fresh else 'written'}-{number}"
        worker = context.Process(target=_sync_worker, args=(path, size, seconds, pause, fresh, theirs))
        worker.start()
        pipes.append(ours)
        workers.append(worker)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    results: list[list[float]] = [pipe.recv() for pipe in pipes]
    for worker in workers:
        worker.join()
    times = [each for result in results for each in result]
    return statistics.median(times), sum(size * len(result) / sum(result) for result in results)


def _sync_worker(path: Path, size: int, seconds: float, pause: float, fresh: bool, pipe: Connection) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    block = os.urandom(size)
    file_bytes = RESERVED_BYTES if fresh else FILE_BYTES
    if fresh:
        os.posix_fallocate(descriptor, 0, file_bytes)
    filler = bytes(1 << 20)
    for offset in range(0, 0 if fresh else file_bytes, len(filler)):
        os.pwrite(descriptor, filler, offset)
    os.fsync(descriptor)
    pipe.send("ready")
    pipe.recv()
    times: list[float] = []
    offset, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end and len(times) < ROUNDS:
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        os.pwrite(descriptor, block, offset)
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - start)
        offset = (offset + size) % (file_bytes - size)
    os.close(descriptor)
    pipe.send(times)


if __name__ == "__main__":
    print(measure(Path.cwd()))
