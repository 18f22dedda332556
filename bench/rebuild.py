"""How fast is a lost replica rebuilt? Beside a plain copy of the same bytes, in the same run.

./run python -m bench.rebuild [--megabytes 512] [--folder DIR] [--rounds 3]

A sealed log with two replicas on a cluster of three nodes loses one of them. Measured from the moment the record
says that a copy has begun to the moment the copy is a member: read, sent, stored, synced, read back on both
sides and compared. The plain copy reads the files of the node that is left, writes them elsewhere on the same disk,
and syncs each file once. How it does that is fixed here and depends on no setting of the copy: what is tuned there
must not move the yardstick. Caches are warm for both.
"""

import argparse
import asyncio
import os
import signal
import time
from pathlib import Path

import varlog
from bench.cluster import Process, running_cluster
from bench.scratch import scratch
from varlog.runtime.loop import run

REBUILD_MS = 500
PIECE_BYTES = 4 << 20
"""Of the plain copy."""
LOOK_S = 0.02
ENTRY_BYTES, ENTRIES = 1024, 1000
"""Of the batches that fill the log."""
AT_ONCE = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.rebuild", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512, help="size of the replica (default: 512)")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default: 3)")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    os.environ["VARLOG_REPOSITORY_REBUILD_MS"] = str(REBUILD_MS)
    os.environ["VARLOG_NODE_COPY_BYTES_PER_S"] = str(1 << 40)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{options.megabytes} MiB, batches of {ENTRIES} × {ENTRY_BYTES} B; {load}")
    for number in range(1, options.rounds + 1):
        with running_cluster(options.folder) as cluster:
            spent = {process: process.cpu_s() for process in cluster.processes}
            rebuilt, plain = run(_measure(cluster.url, cluster.processes, options.folder, options.megabytes << 20))
            cpu = [f"{each.role} {each.number} {each.cpu_s() - spent[each]:.1f} s" for each in cluster.processes]
        print(f"round {number}: rebuild {rebuilt:.0f} MB/s, plain copy {plain:.0f} MB/s: {rebuilt / plain:.0%}")
        print(f"  CPU, filling included: {', '.join(cpu)}")


async def _measure(url: str, processes: list[Process], folder: Path, size: int) -> tuple[float, float]:
    """Megabytes a second of the rebuild and of the plain copy."""
    async with varlog.connect(url) as cluster:
        log = await cluster.create_log("rebuilt", replicas=2)
        await _fill(log, size)
        await log.seal()
        first, second = (await log.info()).chain[0].streams[0].members
        source = _files_of(next(each for each in processes if (each.role, each.number) == ("node", second)))
        stored = sum(path.stat().st_size for path in source)
        plain = stored / _plain_copy(source, scratch(folder))
        gone = next(each.pid for each in processes if (each.role, each.number) == ("node", first))
        os.kill(gone, signal.SIGSTOP)  # a dead one would be started again
        try:
            seconds = await _wait(cluster, first)
        finally:
            os.kill(gone, signal.SIGCONT)
    return stored / seconds / 1e6, plain / 1e6


async def _fill(log: varlog.Log, size: int) -> None:
    batch = [os.urandom(ENTRY_BYTES) for _ in range(ENTRIES)]
    left = size // (ENTRY_BYTES * ENTRIES)

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await log.append_batch(batch)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def _files_of(node: Process) -> list[Path]:
    """The data files it has open or may open: those below its data folder."""
    arguments = Path(f"/proc/{node.pid}/cmdline").read_bytes().split(b"\0")
    data = Path(arguments[arguments.index(b"--data") + 1].decode())
    return [path for path in sorted(data.glob("replicas/*/*.data")) if not path.name.startswith("free-")]


def _plain_copy(files: list[Path], folder: Path) -> float:
    """Seconds to read, write and sync all of it."""
    start = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as read, (folder / path.name).open("wb", buffering=0) as written:
            while piece := read.read(PIECE_BYTES):
                written.write(piece)
            os.fdatasync(written.fileno())
    return time.perf_counter() - start


async def _wait(cluster: varlog.Cluster, lost: int) -> float:
    """Seconds from the beginning of the copy until it is a member."""
    began = 0.0
    while True:
        stream = (await cluster.status()).logs[0].streams[0]
        members = [replica.node for replica in stream.replicas]
        if "being copied" in stream.trouble and not began:
            began = time.perf_counter()
        if lost not in members:
            if not began:
                raise RuntimeError("it was rebuilt before anybody saw it begin: take more megabytes")
            return time.perf_counter() - began
        await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    main()
