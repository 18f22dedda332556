"""Whether long work gives way to others: how many turns of the loop they have beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Those that somebody had who does nothing else."""

    count = 0


@asynccontextmanager
async def others() -> AsyncIterator[Turns]:
    turns = Turns()

    async def take() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(take())
    try:
        yield turns
    finally:
        beside.cancel()
