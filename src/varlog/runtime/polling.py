"""Several are asked at once, each again and again at a pace of its own, until what they have said is enough.

Who is silent holds nobody up: an answer of another may be the one that decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from varlog.base.errors import VarlogError
from varlog.ports import Clock
from varlog.runtime.scope import Scope

FIRST_PAUSE_S = 0.005
"""Who is asked again may have heard more by then."""
LONGEST_PAUSE_S = 0.1
"""Between later questions: what has not come by then may stay away for long."""


class Heard(Enum):
    """What follows from an answer."""

    AGAIN = auto()
    """The next one of the same may say more."""
    ALL = auto()
    """The same has no more to say; others may."""
    ENOUGH = auto()
    """Nobody need be asked any more."""


Ask = Callable[[], Awaitable[Heard]]
"""Ask once, and take the answer. What it raises is no answer: it is asked again."""


async def poll(clock: Clock, asks: Sequence[Ask], name: str, longest_pause_s: float = LONGEST_PAUSE_S) -> None:
    """Return as soon as it is enough, or nobody has more to say; goes on for ever as long as somebody may."""
    enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(asks)

    async def repeat(ask: Ask) -> None:
        nonlocal left
        pause = FIRST_PAUSE_S
        heard = Heard.AGAIN
        while heard is Heard.AGAIN:
            try:
                heard = await ask()
            except VarlogError:
                pass
            if heard is Heard.AGAIN:
                await clock.sleep(pause)
                pause = min(2 * pause, longest_pause_s)
        left -= 1
        if (heard is Heard.ENOUGH or not left) and not enough.done():
            enough.set_result(None)

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
