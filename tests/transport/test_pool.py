"""Connections that are shared by address."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sim.world import Small

from varlog.base.errors import Timeout, Unavailable
from varlog.runtime.timeout import within
from varlog.sim.host import Process
from varlog.transport.peer import Handler, Request, serve
from varlog.transport.pool import PeerPool, Place
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

Program = Callable[[Process], Coroutine[Any, Any, None]]


def _hello(cluster_id: str, node_id: int = 0) -> Handler:
    def answer(request: Request) -> None:
        request.reply(pb.HelloReply(cluster_id=cluster_id, node_id=node_id))

    return answer


def _meet(small: Small, ask: Program, answer: Program) -> None:
    """One host answers at its addresses; then the other asks, until it has all it wants."""
    host, other = small.host("a"), small.host("b")

    async def main() -> None:
        other.start(answer)
        await asyncio.sleep(0.1)
        task = host.start(ask).main
        assert task is not None
        await task

    small.run(main())


def test_an_attempt_that_fails_when_nobody_waits_any_more_is_no_defect() -> None:
    small = Small()
    host, other = small.host("a"), small.host("b")
    seen: list[str] = []

    async def impatient(process: Process) -> None:
        pool = PeerPool(process.world)
        with pytest.raises(Timeout):
            await within(process.clock, 0.1, pool.get(Place("b:1")))
        await process.clock.sleep(5.0)
        with pytest.raises(Unavailable):
            await pool.get(Place("b:1"))
        seen.append("both")

    async def deaf(process: Process) -> None:
        await process.world.network.listen("b:1", lambda _: pytest.fail("nobody gets through"))

    async def main() -> None:
        other.start(deaf)
        await asyncio.sleep(0.1)
        small.fabric.block([("a", "b")])
        host.start(impatient)
        await asyncio.sleep(20.0)

    small.run(main())
    assert seen == ["both"]


def test_all_who_ask_share_one_connection() -> None:
    small = Small()
    made: list[object] = []

    async def ask(process: Process) -> None:
        pool = PeerPool(process.world)
        peers = await asyncio.gather(*(pool.get(Place("b:1")) for _ in range(5)))
        assert len(set(map(id, peers))) == 1
        peers[0].close()
        assert pool.connected(Place("b:1")) is None
        assert await pool.get(Place("b:1")) is not peers[0]
        pool.close()
        with pytest.raises(Unavailable):
            await pool.get(Place("b:1"))

    async def answer(process: Process) -> None:
        await serve(process.world, "b:1", {Method.HELLO: _hello("c1")}, made.append)

    _meet(small, ask, answer)
    assert len(made) == 2


def test_who_waits_for_a_connection_when_the_pool_closes_is_told() -> None:
    small = Small()

    async def ask(process: Process) -> None:
        pool = PeerPool(process.world)
        waiting = asyncio.ensure_future(pool.get(Place("b:1")))
        await process.clock.sleep(0.1)
        pool.close()
        with pytest.raises(Unavailable, match="closed"):
            await waiting

    async def answer(process: Process) -> None:
        await serve(process.world, "b:1", {Method.HELLO: lambda _: None})

    _meet(small, ask, answer)


def test_nobody_gets_a_connection_to_another_than_is_meant() -> None:
    small = Small()

    async def ask(process: Process) -> None:
        pool = PeerPool(process.world)
        first = await pool.get(Place("b:1"))
        assert pool.cluster_id == "c1"
        assert await pool.get(Place("b:2", 2)) is not first
        with pytest.raises(Unavailable, match="at b:2 is node 2, not node 3"):
            await pool.get(Place("b:2", 3))
        with pytest.raises(Unavailable, match="at b:2 is node 2, not a repository"):
            await pool.get(Place("b:2"))
        with pytest.raises(Unavailable, match="at b:3 is node 2 of cluster c2, not of c1"):
            await pool.get(Place("b:3", 2))
        with pytest.raises(Unavailable, match="at b:4 is a node that has not joined a cluster yet"):
            await pool.get(Place("b:4", 2))
        with pytest.raises(Unavailable, match="b:5 did not say who it is"):
            await pool.get(Place("b:5", 2))
        assert pool.connected(Place("b:2", 2)) is not None
        assert pool.connected(Place("b:3", 2)) is None
        pool.close()

    async def answer(process: Process) -> None:
        for port, handler in enumerate(
            (_hello("c1"), _hello("c1", 2), _hello("c2", 2), _hello("", 0), lambda _: None), start=1
        ):
            await serve(process.world, f"b:{port}", {Method.HELLO: handler})

    _meet(small, ask, answer)
