"""Several repositories as real processes on a real etcd: one leads; any of them may be killed."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.processes import PATIENCE_S, Process, eventually
from tools.etcd import Ensemble, running

import varlog

REPOSITORIES = 3
NODES = 3
LOOK_S = 0.5
"""One that has not answered for so long may be asleep: others are asked, and it again."""


def start(name: str, folder: Path, *arguments: str) -> tuple[Process, str]:
    """A program of ours that says where it serves."""
    process = Process(name, folder, [sys.executable, "-m", "varlog.cli.main", *arguments])
    process.start()
    line = eventually(lambda: process.output.read_text().partition("\n")[0] or None, f"{name} serves")
    return process, line.split()[-1]


@contextmanager
def started(folder: Path, etcd: Ensemble) -> Iterator[tuple[dict[str, Process], list[Process]]]:
    """Repositories by their address, and nodes."""
    repositories: dict[str, Process] = {}
    nodes: list[Process] = []
    endpoints = ",".join(etcd.endpoints)
    try:
        for number in range(REPOSITORIES):
            process, address = start(
                f"repository{number}", folder, "repository", "start", "--etcd", endpoints, "--listen", "127.0.0.1:0"
            )
            repositories[address] = process
        for number in range(NODES):
            flags = ("--data", str(folder / f"data{number}"), "--listen", "127.0.0.1:0")
            process, _ = start(f"node{number}", folder, "node", "start", *flags, "--repository", ",".join(repositories))
            nodes.append(process)
        yield repositories, nodes
    finally:
        for process in (*nodes, *repositories.values()):
            if process.alive:
                process.kill()


async def leader_of(addresses: list[str]) -> str:
    """The one that answers for itself."""
    while True:
        for address in addresses:
            try:
                async with varlog.connect(f"varlog://{address}", timeout=LOOK_S) as cluster:
                    await cluster.status()
                    return address
            except varlog.VarlogError:
                continue
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_order_goes_on_when_the_leader_is_gone(how: str, tmp_path: Path) -> None:
    """Killed, or stopped for longer than its lease and woken again: nothing acked is lost, nothing is there twice."""

    async def story(repositories: dict[str, Process]) -> None:
        addresses = list(repositories)
        async with varlog.connect(f"varlog://{','.join(addresses)}", timeout=PATIENCE_S) as cluster:
            log = await make_log(cluster)
            sent: dict[int, bytes] = {}
            stop = asyncio.Event()

            async def writer(number: int) -> None:
                count = 0
                while not stop.is_set():
                    payload = f"{number}.{count}".encode()
                    sent[(await log.append(payload)).glsn] = payload
                    count += 1

            writers = [asyncio.create_task(writer(number)) for number in range(4)]
            await asyncio.sleep(0.5)
            leader = await leader_of(addresses)
            victim = repositories[leader]
            victim.kill() if how == "kill" else victim.pause()
            at_loss = len(sent)
            others = [address for address in addresses if address != leader]
            assert await leader_of(others) in others
            while len(sent) < at_loss + 100:
                await asyncio.sleep(0.05)
            if how == "pause":
                victim.resume()
                await asyncio.sleep(1.0)
            stop.set()
            await asyncio.gather(*writers)
            tail = await log.tail()
            found = {entry.glsn: bytes(entry.payload) async for entry in log.subscribe(stop=tail + 1)}
            assert found == sent

    with running(tmp_path / "etcd") as etcd, started(tmp_path, etcd) as (repositories, _):
        asyncio.run(asyncio.wait_for(story(repositories), 4 * PATIENCE_S))


async def make_log(cluster: varlog.Cluster) -> varlog.Log:
    while True:
        try:
            return await cluster.create_log("orders", replicas=3, streams=2)
        except varlog.Unavailable:  # the nodes are not all there yet
            await asyncio.sleep(0.1)
