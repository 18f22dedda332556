"""Several are asked at once, each again and again at a pace of its own, until what they have said is enough.

Who is silent holds nobody up: an answer of another may be the one that decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from varlog.base.errors import VarlogError
from varlog.ports import Clock
from varlog.runtime.scope import Scope

FIRST_PAUSE_S = 0.005
"""Who is asked again may have heard more by then."""
LONGEST_PAUSE_S = 0.1
"""Between later questions: what has not come by then may stay away for long."""

Ask = Callable[[], Awaitable[bool]]
"""Ask once, and take the answer. True: it is enough. What it raises is no answer: it is asked again."""


async def poll(clock: Clock, asks: Sequence[Ask], name: str) -> None:
    """Return as soon as one says that it is enough; goes on for ever if none does."""
    enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def repeat(ask: Ask) -> None:
        pause = FIRST_PAUSE_S
        while not enough.done():
            try:
                if await ask() and not enough.done():
                    enough.set_result(None)
                    return
            except VarlogError:
                pass
            await clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def defect(error: BaseException) -> None:
        if not enough.done():
            enough.set_exception(error)

    scope = Scope(defect)
    for ask in asks:
        scope.spawn(repeat(ask), name=name)
    try:
        await enough
    finally:
        await scope.close()
