"""Looking up a log when whoever asked has given up."""

import asyncio
from typing import cast

import pytest
from tests.servers import run

from varlog.base.errors import Unavailable
from varlog.client.repository import Repositories
from varlog.client.routes import Routes
from varlog.runtime.scope import Scope
from varlog.transport.world import real_world
from varlog.wire.proto import varlog_pb2 as pb


class NobodyThere:
    """Repositories that do not answer until told to refuse."""

    def __init__(self) -> None:
        self.refuse = asyncio.Event()

    async def call(self, *arguments: object, timeout: float) -> pb.LogInfo:
        await self.refuse.wait()
        raise Unavailable("nobody is there")


def test_an_error_that_nobody_waits_for_is_none() -> None:
    async def story() -> None:
        defects: list[BaseException] = []
        scope, nobody = Scope(defects.append), NobodyThere()
        routes = Routes("orders", cast(Repositories, nobody), real_world(), scope)
        asking = asyncio.ensure_future(routes.refresh(5.0))
        await asyncio.sleep(0.01)
        asking.cancel()
        nobody.refuse.set()
        await asyncio.sleep(0.01)
        assert defects == []
        with pytest.raises(Unavailable):
            await routes.refresh(5.0)
        await scope.close()

    run(story())
