"""`varlog node`: start a storage node, list those of a cluster; what is done with one that runs is in `operate`."""

import sys
from typing import TYPE_CHECKING

from varlog.cli import operate, scrub
from varlog.cli.frame import Arguments, Commands, add_command, add_family, positive, split_addresses, with_cluster
from varlog.cli.output import Printer

if TYPE_CHECKING:
    from varlog.node import NodeConfig


def register(commands: Commands, summary: str) -> None:
    family = add_family(commands, "node", summary)
    start = add_command(
        family,
        "start",
        start_node,
        "run a storage node in the foreground",
        epilog="Settings may also come from the environment (VARLOG_NODE_REPOSITORIES, ...) or a file.",
        hints="server",
    )
    start.add_argument("--repository", action="append", metavar="ADDR[,ADDR]", help="where the repositories serve")
    start.add_argument(
        "--data", action="append", metavar="DIR", help="a folder for data, made if missing; repeat it for more volumes"
    )
    start.add_argument("--listen", metavar="HOST:PORT", help="where to serve; port 0 takes a free one")
    start.add_argument(
        "--advertise", metavar="HOST:PORT", help="by which address others reach it, if it is not where it serves"
    )
    start.add_argument("--id", type=positive, metavar="N", help="the id to have, else the repository gives one")
    start.add_argument("--zone", help="failure zone; replicas are spread over zones")
    start.add_argument("--file-bytes", type=positive, metavar="N", help="size of a segment file")
    start.add_argument(
        "--scrub-every",
        type=float,
        metavar="S",
        help="seconds between two looks for rot at everything; 0: only when asked to",
    )
    start.add_argument(
        "--scrub-rate", type=positive, metavar="BYTES", help="most bytes a second that it reads for that"
    )
    start.add_argument("--config", metavar="FILE", help="a TOML file with a table [node]")
    start.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    add_command(family, "ls", list_nodes, "list the storage nodes of the cluster")
    operate.register(family)
    scrub.register(family)


def start_node(arguments: Arguments) -> None:
    from varlog.cli import config
    from varlog.cli.serve import run_server
    from varlog.node import NodeConfig

    flags = {
        "repositories": split_addresses(arguments.repository) if arguments.repository else None,
        "data": tuple(arguments.data) if arguments.data else None,
        "listen": arguments.listen,
        "advertise": arguments.advertise,
        "node_id": arguments.id,
        "zone": arguments.zone,
        "file_bytes": arguments.file_bytes,
        "scrub_every_s": arguments.scrub_every,
        "scrub_bytes_per_s": arguments.scrub_rate,
    }
    settings, folders = config.load(NodeConfig, "node", flags, file=arguments.config)
    run_server(_serve(settings, folders, arguments.until_eof))


async def _serve(settings: "NodeConfig", folders: tuple[str, ...], until_eof: bool) -> None:
    from varlog.cli.serve import announce, run_until_stopped
    from varlog.node import StorageNode
    from varlog.runtime.disk import RealDisk
    from varlog.transport.world import real_world

    def tell(line: str) -> None:
        print(f"varlog: {line}", file=sys.stderr, flush=True)

    node = StorageNode(real_world(), [RealDisk(folder) for folder in folders], settings, tell)
    await run_until_stopped(node, lambda: announce("node", node.address), until_eof=until_eof)


def list_nodes(arguments: Arguments) -> None:
    from varlog.cli.describe import NODE_COLUMNS, node_row

    nodes = with_cluster(arguments, lambda cluster: cluster.nodes())
    rows = [node_row(node) for node in sorted(nodes, key=lambda node: node.id)]
    Printer(arguments.output).table(NODE_COLUMNS, rows, empty="no storage nodes yet; `varlog node start` runs one")
