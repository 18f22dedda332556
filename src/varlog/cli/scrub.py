"""`varlog node scrub`: have nodes read all their files now, and tell what has rotted."""

import asyncio
from typing import TYPE_CHECKING, Any

from varlog.base.errors import VarlogError
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
        "Exit status 0: nothing is damaged. 1: something is, and waits for that, or not everything was read.",
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
    async def work(cluster: "Cluster") -> tuple[list[dict[str, Any]], list[int]]:
        known = sorted((node for node in await cluster.nodes() if node.connected), key=lambda node: node.id)
        wanted = [arguments.node] if arguments.node else [node.id for node in known]
        begun = {node: await cluster.scrub_node(node) for node in wanted}
        nodes = begun if arguments.no_wait else await wait_until_read(cluster, begun)
        status = await cluster.status()
        left = [] if arguments.no_wait else [each for each in begun if not _has_read(nodes[each], begun[each])]
        return [_row(node, status) for node in nodes.values()], left

    rows, left = with_cluster(arguments, work)
    Printer(arguments.output).table(COLUMNS, rows, empty="no storage node is connected")
    if left:
        raise VarlogError(
            f"node {', '.join(map(str, left))} was stopped before everything was read: scrub it again once it is back"
        )
    return 1 if any(row["damaged"] for row in rows) else 0


async def wait_until_read(cluster: "Cluster", begun: dict[int, "NodeDescription"]) -> dict[int, "NodeDescription"]:
    """Until each has read everything, is gone, or was started again, which ended its pass; as they are then."""
    from varlog.cli.progress import Progress

    nodes = begun
    total = sum(node.scrub.total_bytes for node in nodes.values())
    with Progress("bytes", total, note="read") as progress:
        while True:
            present = {node.id: node for node in await cluster.nodes() if node.id in nodes}
            nodes = {number: present.get(number, node) for number, node in nodes.items()}
            done = sum(node.scrub.done_bytes for node in nodes.values())
            progress.advance(max(0, done - progress.done))
            if not any(_reads(node, begun[node.id]) for node in present.values()):
                return nodes
            await asyncio.sleep(LOOK_EVERY_S)


def _reads(node: "NodeDescription", begun: "NodeDescription") -> bool:
    return node.connected and node.boot == begun.boot and not _has_read(node, begun)


def _has_read(node: "NodeDescription", begun: "NodeDescription") -> bool:
    """Passes are counted from the start of a node."""
    return node.boot == begun.boot and node.scrub.passes > begun.scrub.passes


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
