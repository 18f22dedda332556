"""A bound on bytes a second, and what it leaves to others."""

import asyncio

from varlog.node.pace import Pace
from varlog.runtime.clock import RealClock


def test_who_is_slower_than_he_may_be_gives_way_all_the_same() -> None:
    """A scrub that reads from the page cache waits for nothing else, and would stop the node until it is through."""

    async def story() -> None:
        pace, turns = Pace(RealClock(), 1 << 50), 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        for _ in range(10):
            await pace.spend(1 << 16)
        beside.cancel()
        assert turns >= 9

    asyncio.run(story())
