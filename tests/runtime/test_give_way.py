"""Turns of the event loop between pieces of long work."""

import asyncio

from varlog.runtime.give_way import give_way


def test_what_is_ready_has_its_turn_first() -> None:
    async def story() -> None:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "ready")
        await give_way()
        order.append("behind it")
        assert order == ["ready", "behind it"]

    asyncio.run(story())
