"""`varlog repository`: start one, list those of a cluster."""

import asyncio
from typing import Any

from varlog.cli.frame import Arguments, Commands, add_command, add_family, cluster_url
from varlog.cli.output import Column, Printer, count, moment


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
    start.add_argument("--listen", metavar="HOST:PORT", help="where to serve; port 0 takes a free one")
    start.add_argument("--config", metavar="FILE", help="a TOML file with a table [repository]")
    start.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    add_command(family, "ls", list_repositories, "list the repositories that --cluster names")


def start_repository(arguments: Arguments) -> None:
    from varlog.base.errors import InvalidArgument
    from varlog.cli import config
    from varlog.cli.serve import SWITCH_INTERVAL_S
    from varlog.repository import RepositoryConfig
    from varlog.runtime.loop import run

    flags = {"listen": arguments.listen, "data": (arguments.data,) if arguments.data else None}
    settings, folders = config.load(RepositoryConfig, "repository", flags, file=arguments.config)
    if len(folders) != 1:
        raise InvalidArgument("a repository keeps its data in one folder")
    run(_serve(settings, folders[0], arguments.until_eof), switch_interval=SWITCH_INTERVAL_S)


async def _serve(settings: Any, folder: str, until_eof: bool) -> None:
    from varlog.cli.serve import announce, run_until_stopped
    from varlog.metadata.sqlite import SqliteStore
    from varlog.repository import Repository
    from varlog.transport.world import real_world

    store = await SqliteStore.open(folder)
    repository = Repository(real_world(), store, settings)
    await run_until_stopped(repository, lambda: announce("repository", repository.address), until_eof=until_eof)


def list_repositories(arguments: Arguments) -> int:
    from varlog.runtime.loop import run

    rows = run(_ask_all(cluster_url(arguments), arguments.timeout))
    columns = [
        Column("address"),
        Column("state", style=lambda state: "green" if state == "serving" else "red"),
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


async def _ask(address: str, url: str, timeout: float) -> dict[str, Any]:
    from varlog.base.errors import VarlogError
    from varlog.client import connect

    try:
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
