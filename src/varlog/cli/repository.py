"""`varlog repository`: start one, list those of a cluster."""

import asyncio
from typing import TYPE_CHECKING, Any

from varlog.cli.etcd_flags import add_etcd_flags, etcd_settings
from varlog.cli.frame import Arguments, Commands, add_command, add_family, cluster_url, split_addresses
from varlog.cli.output import Column, Printer, count, moment, tell

if TYPE_CHECKING:
    from varlog.ports import ElectiveStore


def register(commands: Commands, summary: str) -> None:
    family = add_family(commands, "repository", summary)
    start = add_command(
        family,
        "start",
        start_repository,
        "run a metadata repository in the foreground",
        epilog="Settings may also come from the environment (VARLOG_REPOSITORY_LISTEN, ...) or a file.",
        hints="server",
    )
    start.add_argument("--data", metavar="DIR", help="folder for its data, made if missing")
    add_etcd_flags(
        start, "keep everything in this etcd instead of a folder; repositories that share it elect one to lead"
    )
    start.add_argument("--listen", metavar="HOST:PORT", help="where to serve; port 0 takes a free one")
    start.add_argument(
        "--advertise", metavar="HOST:PORT", help="by which address nodes reach it, if it is not where it serves"
    )
    start.add_argument("--config", metavar="FILE", help="a TOML file with a table [repository]")
    start.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    add_command(family, "ls", list_repositories, "list the repositories that --cluster names")


def start_repository(arguments: Arguments) -> None:
    from varlog.base.errors import InvalidArgument
    from varlog.cli import config
    from varlog.cli.serve import run_server
    from varlog.repository import RepositoryConfig
    from varlog.transport.tcp import check_advertised

    etcd_settings(arguments)
    flags = {
        "listen": arguments.listen,
        "advertise": arguments.advertise,
        "data": (arguments.data,) if arguments.data else None,
    }
    settings, folders = config.load(
        RepositoryConfig, "repository", flags, file=arguments.config, needs_data=not arguments.etcd
    )
    if arguments.etcd:
        check_advertised(settings.listen, settings.advertise)  # of several each is found by what it says
    if len(folders) != (0 if arguments.etcd else 1):
        raise InvalidArgument("a repository keeps its data in one folder, or in an etcd: give --data or --etcd")
    run_server(_serve(settings, folders, arguments))


async def _serve(settings: Any, folders: tuple[str, ...], arguments: Arguments) -> None:
    from varlog.cli.serve import announce, run_until_stopped
    from varlog.repository import Repository
    from varlog.transport.world import real_world

    store = await (_open_etcd(arguments) if arguments.etcd else _open_folder(folders[0]))
    repository = Repository(real_world(), store, settings)
    await run_until_stopped(
        repository, lambda: announce("repository", repository.address), until_eof=arguments.until_eof
    )


async def _open_folder(folder: str) -> "ElectiveStore":
    from varlog.metadata.sqlite import SqliteStore

    return await SqliteStore.open(folder)


async def _open_etcd(arguments: Arguments) -> "ElectiveStore":
    from varlog.base.errors import Unavailable, VarlogError
    from varlog.metadata.etcd import EtcdConfig, EtcdStore

    endpoints = (endpoint.removeprefix("http://").rstrip("/") for endpoint in split_addresses([arguments.etcd]))
    try:
        return await EtcdStore.open(EtcdConfig(tuple(endpoints), **etcd_settings(arguments)), tell=tell)
    except Unavailable as away:  # of what else a server finds unavailable, a process that has it is the reason
        raise VarlogError(away.message) from away


def list_repositories(arguments: Arguments) -> int:
    from varlog.runtime.loop import run

    rows = run(_ask_all(cluster_url(arguments), arguments.timeout))
    columns = [
        Column("address"),
        Column("state", style=lambda state: "red" if state == "unreachable" else "green"),
        Column("role"),
        Column("started", "since", show=moment),
        Column("cluster"),
        count("nodes"),
        count("logs"),
        count("cuts", "cuts since start"),
        Column("trouble", style=lambda _: "red"),
    ]
    Printer(arguments.output).table(columns, rows)
    return 0 if any(row["state"] == "serving" for row in rows) else 1


async def _ask_all(url: str, timeout: float) -> list[dict[str, Any]]:
    from varlog.client.address import SCHEME, parse_url

    return await asyncio.gather(*(_ask(address, SCHEME + address, timeout) for address in parse_url(url)))


async def _follows(address: str, timeout: float) -> bool:
    """A client would wait until it leads."""
    from varlog.base.errors import NotLeader
    from varlog.transport.peer import connect
    from varlog.transport.world import real_world
    from varlog.wire.methods import Method
    from varlog.wire.proto import varlog_pb2 as pb

    peer = await connect(real_world(), address, {}, timeout=timeout)
    try:
        await peer.call(Method.STATUS, pb.StatusRequest(), timeout=timeout)
    except NotLeader:
        return True
    finally:
        peer.close()
    return False


async def _ask(address: str, url: str, timeout: float) -> dict[str, Any]:
    from varlog.base.errors import VarlogError
    from varlog.client import connect

    try:
        if await _follows(address, timeout):
            return {"address": address, "state": "following", "role": "follower"}
        async with connect(url, timeout=timeout) as cluster:
            status = await cluster.status()
    except VarlogError as error:
        return {"address": address, "state": "unreachable", "trouble": error.message}
    return {
        "address": address,
        "state": "serving",
        "role": status.role,
        "started": status.started,
        "cluster": status.cluster_id,
        "nodes": len(status.nodes),
        "logs": len(status.logs),
        "cuts": status.cuts,
    }
