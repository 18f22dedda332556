"""`varlog up`: a whole cluster on this machine, each node and repository its own process, in the foreground."""

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from varlog.base.errors import InvalidArgument, VarlogError
from varlog.cli.etcd_flags import add_etcd_flags, etcd_settings, etcd_words
from varlog.cli.frame import Arguments, Commands, add_command, positive
from varlog.cli.output import tell

if TYPE_CHECKING:
    from varlog.cli.supervisor import Supervisor

DEFAULT_PORT = 7700


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "up",
        up,
        summary,
        epilog="It prints `ready varlog://...` once appends work. Ctrl-C ends it; the same --data resumes it.",
        hints="up",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder for everything (default: a temporary one, deleted at the end)"
    )
    parser.add_argument("--nodes", type=positive, metavar="N", help="storage nodes (default: those in DIR, or 3)")
    parser.add_argument(
        "--repositories", type=positive, default=1, metavar="M", help="metadata repositories; more than 1 need --etcd"
    )
    add_etcd_flags(parser, "keep what repositories know in this etcd instead of a folder")
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="P",
        help=f"of the first repository, others follow; 0 takes free ones (default: {DEFAULT_PORT})",
    )
    parser.add_argument("--restart", action="store_true", help="start a process that ends again")


def up(arguments: Arguments) -> None:
    from varlog.runtime.lock import FolderLock, make_data_folder
    from varlog.runtime.loop import run

    etcd_settings(arguments)
    if arguments.repositories != 1 and not arguments.etcd:
        raise InvalidArgument("the embedded metadata store serves one repository: for more of them give --etcd")
    if not 0 <= arguments.port <= (1 << 16) - arguments.repositories:
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


async def _run(arguments: Arguments, folder: Path) -> None:
    from varlog.cli.serve import unless
    from varlog.cli.supervisor import Supervisor

    supervisor = Supervisor(folder, restart=arguments.restart, tell=tell)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        up_and_ready = await unless(stop, _get_ready(supervisor, arguments))
        if up_and_ready and await unless(stop, supervisor.all_ended.wait()):
            raise VarlogError("no process of the cluster is left")
    finally:
        await supervisor.stop()


async def _get_ready(supervisor: "Supervisor", arguments: Arguments) -> None:
    """Start everything, and say so once appends work."""
    from varlog.cli.bring_up import appends_work, bring_up

    url = await bring_up(
        supervisor,
        nodes=arguments.nodes or 0,
        port=arguments.port,
        repositories=arguments.repositories,
        etcd=etcd_words(arguments),
    )
    for child in supervisor.children:
        print(f"{child}  {child.address}  pid {child.pid}", flush=True)
    if late := await appends_work(url, supervisor):
        tell(late)
    print(f"ready {url}", flush=True)
