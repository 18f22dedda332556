"""`varlog up`: a whole cluster on this machine, each node and repository its own process, in the foreground."""

import asyncio
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from varlog.base.errors import InvalidArgument, Timeout, VarlogError
from varlog.cli.frame import SCHEME, Arguments, Commands, add_command, positive
from varlog.cli.output import styled

if TYPE_CHECKING:
    from varlog.cli.supervisor import Supervisor
    from varlog.client import ClusterStatus

DEFAULT_NODES = 3
DEFAULT_PORT = 7700
HOST = "127.0.0.1"
LOOK_EVERY_S = 0.05
READY_S = 60.0


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "up",
        up,
        summary,
        epilog="It prints `ready varlog://...` once appends work. Ctrl-C ends it; the same --data resumes it.",
        hints="server",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder for everything (default: a temporary one, deleted at the end)"
    )
    parser.add_argument(
        "--nodes", type=positive, metavar="N", help=f"storage nodes (default: those in DIR, or {DEFAULT_NODES})"
    )
    parser.add_argument("--repositories", type=positive, default=1, metavar="M", help="metadata repositories (only 1)")
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="P",
        help=f"of the repository; 0 takes a free one (default: {DEFAULT_PORT})",
    )
    parser.add_argument("--restart", action="store_true", help="start a process that ends again")


def up(arguments: Arguments) -> None:
    from varlog.runtime.lock import FolderLock, make_data_folder
    from varlog.runtime.loop import run

    if arguments.repositories != 1:
        raise InvalidArgument("the embedded metadata store serves one repository: leave --repositories at 1")
    if not 0 <= arguments.port < 1 << 16:
        raise InvalidArgument(f"{arguments.port} is not a port")
    folder = Path(arguments.data).resolve() if arguments.data else Path(tempfile.mkdtemp(prefix="varlog-"))
    make_data_folder(folder)
    lock = FolderLock(folder)
    try:
        run(_run(arguments, folder))
    finally:
        lock.release()
        if not arguments.data:
            shutil.rmtree(folder, ignore_errors=True)


def existing_nodes(folder: Path) -> list[int]:
    """Numbers of the node folders that are there."""
    found = (re.fullmatch(r"node-([1-9][0-9]*)", path.name) for path in folder.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in found if match)


async def _run(arguments: Arguments, folder: Path) -> None:
    from varlog.cli.serve import unless
    from varlog.cli.supervisor import Supervisor

    supervisor = Supervisor(folder, restart=arguments.restart, tell=_tell)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        up_and_ready = await unless(stop, _bring_up(supervisor, folder, arguments))
        if up_and_ready and await unless(stop, supervisor.all_ended.wait()):
            raise VarlogError("no process of the cluster is left")
    finally:
        await supervisor.stop()


async def _bring_up(supervisor: "Supervisor", folder: Path, arguments: Arguments) -> None:
    """Start everything and say so once appends work."""
    data = str(folder / "repository-1")
    repository = supervisor.add("repository", 1, ["--data", data], f"{HOST}:{arguments.port}")
    await supervisor.start(repository)
    there = existing_nodes(folder)
    wanted = range(1, 1 + (arguments.nodes or (0 if there else DEFAULT_NODES)))
    numbers = sorted({*there, *wanted})
    nodes = [
        supervisor.add(
            "node",
            number,
            ["--repository", repository.address, "--data", str(folder / f"node-{number}"), "--id", str(number)],
            f"{HOST}:0",
        )
        for number in numbers
    ]
    await asyncio.gather(*(supervisor.start(node) for node in nodes))
    for child in (repository, *nodes):
        print(f"{child}  {child.address}  pid {child.pid}")
    url = SCHEME + repository.address
    await _appends_work(url, numbers)
    print(f"ready {url}", flush=True)


async def _appends_work(url: str, numbers: Sequence[int]) -> None:
    """Wait until every node is connected and every replica of every log has reported."""
    from varlog.client import connect

    missing = "the repository"
    async with connect(url) as cluster:
        for _ in range(int(READY_S / LOOK_EVERY_S)):
            missing = _missing(await cluster.status(), numbers)
            if not missing:
                return
            await asyncio.sleep(LOOK_EVERY_S)
    raise Timeout(f"the cluster is not ready after {READY_S:.0f} s: still waiting for {missing}")


def _missing(status: "ClusterStatus", numbers: Sequence[int]) -> str:
    """What keeps appends from working; empty when nothing does."""
    connected = [node.id for node in status.nodes if node.connected]
    if silent := [str(number) for number in numbers if number not in connected]:
        return f"node {', '.join(silent)}"
    for log in status.logs:
        for stream in log.streams:
            if not log.log.sealed and not all(replica.reported for replica in stream.replicas):
                return f"stream {stream.stream} of log {log.log.name}"
    return ""


def _tell(text: str) -> None:
    print(f"{styled('varlog:', 'yellow', sys.stderr)} {text}", file=sys.stderr, flush=True)
