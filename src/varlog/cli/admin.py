"""Asking the repository what only operators ask: nodes, all logs, the status of everything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from varlog.client.address import parse_url
from varlog.client.repository import Repositories
from varlog.ports import World
from varlog.transport.pool import PeerPool
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

CONNECT_S = 3.0
CALL_S = 10.0


class Admin:
    """Questions to the repositories of one cluster."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories

    async def nodes(self) -> list[pb.NodeInfo]:
        reply = await self._repositories.call(Method.LIST_NODES, pb.ListNodesRequest(), timeout=CALL_S)
        return list(cast(pb.ListNodesReply, reply).nodes)

    async def logs(self) -> list[pb.LogInfo]:
        reply = await self._repositories.call(Method.LIST_LOGS, pb.ListLogsRequest(), timeout=CALL_S)
        return list(cast(pb.ListLogsReply, reply).logs)

    async def log(self, name: str) -> pb.LogInfo:
        reply = await self._repositories.call(Method.GET_LOG, pb.GetLogRequest(name=name), timeout=CALL_S)
        return cast(pb.LogInfo, reply)

    async def status(self) -> pb.StatusReply:
        reply = await self._repositories.call(Method.STATUS, pb.StatusRequest(), timeout=CALL_S)
        return cast(pb.StatusReply, reply)


@asynccontextmanager
async def connect_admin(url: str, world: World | None = None) -> AsyncIterator[Admin]:
    """Connected to one of the repositories, or `Unavailable` at once."""
    world = world or real_world()
    pool = PeerPool(world)
    try:
        repositories = Repositories(world, pool, parse_url(url))
        await repositories.connect(CONNECT_S)
        yield Admin(repositories)
    finally:
        pool.close()
