"""Bringing up a local cluster: which processes, in which order, and when it is ready."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from varlog.base.errors import Timeout
from varlog.cli.frame import SCHEME
from varlog.cli.supervisor import Child, Supervisor

if TYPE_CHECKING:
    from varlog.client import ClusterStatus

DEFAULT_NODES = 3
HOST = "127.0.0.1"
LOOK_EVERY_S = 0.05
READY_S = 60.0
"""How long nodes may take to join, and replicas to report."""


def existing_nodes(folder: Path) -> list[int]:
    """Numbers of the node folders that are there."""
    found = (re.fullmatch(r"node-([1-9][0-9]*)", path.name) for path in folder.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in found if match)


async def bring_up(
    supervisor: Supervisor, *, nodes: int, port: int, repositories: int = 1, etcd: Sequence[str] = ()
) -> str:
    """Start the repositories, then all nodes at once; the cluster's address.

    Nodes that have a folder are started whatever `nodes` says; 0 means these, or three. `etcd` has the flags that say
    where it is.
    """
    supervisor.write_list()
    there = existing_nodes(supervisor.folder)
    wanted = range(1, 1 + (nodes or (0 if there else DEFAULT_NODES)))
    keep = list(etcd) or ["--data", str(supervisor.folder / "repository-1")]
    leading = [
        supervisor.add("repository", number, keep, f"{HOST}:{port and port + number - 1}")
        for number in range(1, repositories + 1)
    ]
    await asyncio.gather(*map(supervisor.start, leading))
    addresses = ",".join(repository.address for repository in leading)
    children = [_add_node(supervisor, number, addresses) for number in sorted({*there, *wanted})]
    await asyncio.gather(*map(supervisor.start, children))
    return SCHEME + addresses


def _add_node(supervisor: Supervisor, number: int, repository: str) -> Child:
    data = str(supervisor.folder / f"node-{number}")
    arguments = ["--repository", repository, "--data", data, "--id", str(number)]
    return supervisor.add("node", number, arguments, f"{HOST}:0")


async def appends_work(url: str, supervisor: Supervisor) -> str:
    """Wait until every node has joined and every replica of every log has reported.

    Returns what is still missing when only replicas are: their logs wait, others work.
    """
    from varlog.client import connect

    nodes = [child for child in supervisor.children if child.role == "node"]
    silent: list[str] = []
    late = ""
    async with connect(url, timeout=READY_S) as cluster:
        for _ in range(int(READY_S / LOOK_EVERY_S)):
            status = await cluster.status()
            silent, late = _silent(status, nodes), _late(status)
            if not silent and not late:
                return ""
            await asyncio.sleep(LOOK_EVERY_S)
    if silent:
        raise Timeout(f"the cluster is not ready after {READY_S:.0f} s: node {', '.join(silent)} has not joined")
    return late


def _silent(status: "ClusterStatus", nodes: Sequence[Child]) -> list[str]:
    """Those that have not joined; one that ended and is no part of the cluster was removed from it."""
    connected = {node.id: node.connected for node in status.nodes}
    return [str(node.number) for node in nodes if not connected.get(node.number, not node.alive)]


def _late(status: "ClusterStatus") -> str:
    for log in status.logs:
        for stream in log.streams:
            missing = [str(replica.node) for replica in stream.replicas if not replica.reported]
            if missing and not log.log.sealed:
                return f"log {log.log.name}: stream {stream.stream} waits for its replica on node {', '.join(missing)}"
    return ""
