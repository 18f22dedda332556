"""`varlog status`: the whole cluster on one page, what is wrong first; once or again and again."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from varlog.cli.frame import Arguments, Commands, add_command, seconds, with_cluster
from varlog.cli.output import Printer, moment, render_table, styled, to_json

if TYPE_CHECKING:
    from varlog.client import Cluster, ClusterStatus

WELL = "all is well"
FULL = "full"
"""A word that troubles of volumes without room have."""
CLEAR = "\x1b[H\x1b[J"


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "status", show_status, summary)
    parser.add_argument("--watch", action="store_true", help="again and again, until interrupted")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds between two looks (default: 1)"
    )


def show_status(arguments: Arguments) -> int:
    async def work(cluster: "Cluster") -> int:
        while True:
            page = _page(await cluster.status())
            _print(page, Printer(arguments.output), again=arguments.watch)
            if not arguments.watch:
                return 1 if page["troubles"] else 0
            await asyncio.sleep(arguments.interval)

    return with_cluster(arguments, work)


def _page(status: "ClusterStatus") -> dict[str, Any]:
    from varlog.cli.describe import log_row, node_row

    nodes = [node_row(node) for node in sorted(status.nodes, key=lambda node: node.id)]
    logs = [log_row(log) for log in status.logs]
    return {
        "cluster": status.cluster_id,
        "cuts": status.cuts,
        "nodes": nodes,
        "logs": logs,
        "troubles": _troubles(nodes, logs),
        "notices": _notices(status, nodes),
    }


def _troubles(nodes: list[dict[str, Any]], logs: list[dict[str, Any]]) -> list[str]:
    """What is wrong, the worst first: lost nodes, failed replicas, what logs suffer from, full volumes."""
    of_nodes = [(node, trouble) for node in nodes for trouble in node["troubles"]]
    lost = [f"node {node['id']}: {_lost(node, trouble)}" for node, trouble in of_nodes if not node["connected"]]
    others = [f"node {node['id']}: {trouble}" for node, trouble in of_nodes if node["connected"]]
    full = [line for line in others if FULL in line]
    failed = [line for line in others if FULL not in line]
    return lost + failed + [f"log {log['name']}: {trouble}" for log in logs for trouble in log["troubles"]] + full


def _lost(node: dict[str, Any], trouble: str) -> str:
    return f"{trouble}; last seen {moment(node['last_seen'])}" if node["last_seen"] else trouble


def _notices(status: "ClusterStatus", nodes: list[dict[str, Any]]) -> list[str]:
    """What is as somebody wanted it, or as well as it can be, and yet good to know."""
    from varlog.cli.describe import too_few_zones

    lines = []
    for node in nodes:
        if node["draining"]:
            left = f"{node['open_streams']:,} open streams to move, {node['ended_streams']:,} ended ones on it"
            lines.append(f"node {node['id']}: drains; {left}")
        if node["scrub"]["repaired"]:
            repaired = f"{node['scrub']['repaired']:,} damaged replicas were made anew from their peers"
            lines.append(f"node {node['id']}: since its start {repaired}; look at its disks")
    for log in status.logs:
        lines += [f"log {log.log.name}: {line}" for line in too_few_zones(log, status, avoidable=True)]
    return lines


def _print(page: dict[str, Any], printer: Printer, *, again: bool) -> None:
    if printer.json:
        printer.stream.write(to_json(page, lines=again) + "\n")
    else:
        if again and sys.stdout.isatty():
            printer.stream.write(CLEAR)
        printer.stream.write("\n".join(_lines(page, printer)) + "\n")
    printer.stream.flush()


def _lines(page: dict[str, Any], printer: Printer) -> list[str]:
    from varlog.cli.describe import LOG_COLUMNS, NODE_COLUMNS

    connected = sum(node["connected"] for node in page["nodes"])
    nodes = f"{connected} of {len(page['nodes'])} nodes connected"
    cuts = f"{page['cuts']:,} cuts since the repository started"
    lines = [styled(f"! {trouble}", "red", printer.stream) for trouble in page["troubles"]]
    lines = lines or [styled(WELL, "green", printer.stream)]
    lines += [styled(f"- {notice}", "yellow", printer.stream) for notice in page["notices"]]
    lines += ["", f"cluster {page['cluster']}: {nodes}, {len(page['logs'])} logs, {cuts}"]
    for columns, rows in ((NODE_COLUMNS, page["nodes"]), (LOG_COLUMNS, page["logs"])):
        if rows:
            shown = [column for column in columns if column.key != "troubles"]
            lines += ["", *render_table(shown, rows, printer.stream)]
    return lines
