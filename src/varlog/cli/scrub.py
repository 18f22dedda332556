"""`varlog node scrub`: have nodes read all their files now, and tell what has rotted."""

import asyncio
from typing import TYPE_CHECKING, Any

from varlog.cli.frame import Arguments, Commands, add_command, positive, with_cluster
from varlog.cli.output import Column, Printer, count, size

if TYPE_CHECKING:
    from varlog.client import Cluster, ClusterStatus, NodeDescription

LOOK_EVERY_S = 0.2


def register(family: Commands) -> None:
    scrub = add_command(
        family,
        "scrub",
        scrub_nodes,
        "read all files of nodes now, and say what does not match its checksum",
        epilog="Nodes do so by themselves, too (--scrub-every); what is damaged is made anew from other copies. "
        "Exit status 0: nothing is damaged. 1: something is, and waits for that.",
    )
    scrub.add_argument("node", type=positive, metavar="N", nargs="?", help="one node (default: all that are connected)")
    scrub.add_argument("--no-wait", action="store_true", help="only begin it")


COLUMNS = [
    Column("node", right=True),
    Column("read_bytes", "read", show=size, right=True),
    count("found", "damaged so far"),
    count("repaired", "made anew"),
    Column("damaged", "damaged now"),
]


def scrub_nodes(arguments: Arguments) -> int:
    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        known = sorted((node for node in await cluster.nodes() if node.connected), key=lambda node: node.id)
        wanted = [arguments.node] if arguments.node else [node.id for node in known]
        begun = {node: await cluster.scrub_node(node) for node in wanted}
        if not arguments.no_wait:
            begun = await _wait(cluster, begun)
        status = await cluster.status()
        return [_row(node, status) for node in begun.values()]

    rows = with_cluster(arguments, work)
    Printer(arguments.output).table(COLUMNS, rows, empty="no storage node is connected")
    return 1 if any(row["damaged"] for row in rows) else 0


async def _wait(cluster: "Cluster", nodes: dict[int, "NodeDescription"]) -> dict[int, "NodeDescription"]:
    """Until each has read everything, or is gone."""
    from varlog.cli.progress import Progress

    passes = {number: node.scrub.passes for number, node in nodes.items()}
    total = sum(node.scrub.total_bytes for node in nodes.values())
    with Progress("bytes", total, note="read") as progress:
        while True:
            present = {node.id: node for node in await cluster.nodes() if node.id in nodes}
            nodes = {number: present.get(number, node) for number, node in nodes.items()}
            done = sum(node.scrub.done_bytes for node in nodes.values())
            progress.advance(max(0, done - progress.done))
            if not any(_reads(node, passes[node.id]) for node in present.values()):
                return nodes
            await asyncio.sleep(LOOK_EVERY_S)


def _reads(node: "NodeDescription", passes: int) -> bool:
    return node.connected and node.scrub.passes <= passes


def _row(node: "NodeDescription", status: "ClusterStatus") -> dict[str, Any]:
    damaged = [
        f"{log.log.name}/{stream.stream}"
        for log in status.logs
        for stream in log.streams
        for replica in stream.replicas
        if replica.node == node.id and (replica.damage or replica.state == "failed")
    ]
    return {
        "node": node.id,
        "read_bytes": node.scrub.done_bytes,
        "found": node.scrub.found,
        "repaired": node.scrub.repaired,
        "damaged": damaged,
    }
