"""Connections that are shared by address."""

import asyncio

import pytest
from tests.sim.world import Small

from varlog.base.errors import Timeout, Unavailable
from varlog.runtime.timeout import within
from varlog.sim.host import Process
from varlog.transport.peer import serve
from varlog.transport.pool import PeerPool


def test_an_attempt_that_fails_when_nobody_waits_any_more_is_no_defect() -> None:
    small = Small()
    host, other = small.host("a"), small.host("b")
    seen: list[str] = []

    async def impatient(process: Process) -> None:
        pool = PeerPool(process.world)
        with pytest.raises(Timeout):
            await within(process.clock, 0.1, pool.get("b:1"))
        await process.clock.sleep(5.0)
        with pytest.raises(Unavailable):
            await pool.get("b:1")
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
    host, other = small.host("a"), small.host("b")
    made: list[object] = []

    async def ask(process: Process) -> None:
        pool = PeerPool(process.world)
        peers = await asyncio.gather(*(pool.get("b:1") for _ in range(5)))
        assert len(set(map(id, peers))) == 1
        peers[0].close()
        assert pool.connected("b:1") is None
        assert await pool.get("b:1") is not peers[0]
        pool.close()
        with pytest.raises(Unavailable):
            await pool.get("b:1")

    async def answer(process: Process) -> None:
        await serve(process.world, "b:1", {}, made.append)

    async def main() -> None:
        other.start(answer)
        await asyncio.sleep(0.1)
        task = host.start(ask).main
        assert task is not None
        await task

    small.run(main())
    assert len(made) == 2
