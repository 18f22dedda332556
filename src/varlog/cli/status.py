"""`varlog status`: the whole cluster on one page, once or again and again."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from varlog.cli.frame import Arguments, Commands, add_command, seconds, with_cluster
from varlog.cli.output import Printer, render_table, styled, to_json

if TYPE_CHECKING:
    from varlog.client import Cluster, ClusterStatus

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
    troubles = [f"node {node['id']}: {trouble}" for node in nodes for trouble in node["troubles"]]
    troubles += [f"log {log['name']}: {trouble}" for log in logs for trouble in log["troubles"]]
    return {"cluster": status.cluster_id, "cuts": status.cuts, "nodes": nodes, "logs": logs, "troubles": troubles}


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

    connected = sum(node["state"] == "connected" for node in page["nodes"])
    nodes = f"{connected} of {len(page['nodes'])} nodes connected"
    cuts = f"{page['cuts']:,} cuts since the repository started"
    lines = [f"cluster {page['cluster']}: {nodes}, {len(page['logs'])} logs, {cuts}"]
    for columns, rows in ((NODE_COLUMNS, page["nodes"]), (LOG_COLUMNS, page["logs"])):
        if rows:
            shown = [column for column in columns if column.key != "troubles"]
            lines += ["", *render_table(shown, rows, printer.stream)]
    if page["troubles"]:
        lines += ["", *(styled(f"! {trouble}", "red", printer.stream) for trouble in page["troubles"])]
    return lines
