"""A real server on loopback, and small helpers, for the tests of the real network."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from varlog.ports import World
from varlog.runtime.loop import loop_factory
from varlog.transport.peer import Request, Server, serve
from varlog.transport.tcp import parse_address
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio")]
if loop_factory() is not asyncio.new_event_loop:
    LOOPS.append(pytest.param(loop_factory(), id="uvloop"))
on_each_loop = pytest.mark.parametrize("make_loop", LOOPS)
MakeLoop = Callable[[], asyncio.AbstractEventLoop]
PATIENCE_S = 60.0
"""Longer than anything takes, however busy the machine is."""


def run(make_loop: MakeLoop, body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(body, 2 * PATIENCE_S))


def answer(request: Request) -> None:
    request.reply(pb.TailReply(tail=5), [request.body])


@asynccontextmanager
async def served(world: World | None = None) -> AsyncIterator[Server]:
    server = await serve(world or real_world(), "127.0.0.1:0", {Method.TAIL: answer})
    try:
        yield server
    finally:
        await server.close()


async def open_raw(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = parse_address(server.address)
    return await asyncio.open_connection(host, port)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


class any_end:  # noqa: N801 - reads as a statement
    """An aborted connection may end in a reset or in silence."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, ConnectionError)
