"""A bound on bytes a second, and what it leaves to others."""

import asyncio

from tests.turns import others

from varlog.node.pace import Pace
from varlog.runtime.clock import RealClock


def test_who_is_slower_than_he_may_be_gives_way_all_the_same() -> None:
    """A scrub that reads from the page cache waits for nothing else, and would stop the node until it is through."""

    async def story() -> None:
        pace = Pace(RealClock(), 1 << 50)
        async with others() as turns:
            for _ in range(10):
                await pace.spend(1 << 16)
        assert turns.count >= 9

    asyncio.run(story())
