"""Bounded memory for what waits and what is on its way: who comes when it is full waits, first come, first served."""

import asyncio
from collections import deque

from varlog.base.errors import VarlogError
from varlog.ports import Clock
from varlog.runtime.timeout import within


class Room:
    """So many bytes. One that is larger than all of it is let in alone."""

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock = clock
        self.limit = limit
        self.used = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """With what each of them wants."""

    def try_enter(self, cost: int) -> bool:
        """Let in at once, or not at all."""
        if self.waiting or (self.used and self.used + cost > self.limit):
            return False
        self.used += cost
        return True

    async def enter(self, cost: int, timeout: float) -> None:
        """Wait to be let in; raises `Timeout`."""
        if self.try_enter(cost):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((cost, turn))
        try:
            await within(self._clock, timeout, turn)
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(cost)  # let in at the very moment that it gave up
            elif (cost, turn) in self.waiting:
                self.waiting.remove((cost, turn))
                self._let_in()
            raise

    def leave(self, cost: int) -> None:
        """Give bytes back."""
        self.used -= cost
        if self.waiting:
            self._let_in()

    def close(self, error: VarlogError) -> None:
        """Let nobody in who still waits."""
        waiting, self.waiting = self.waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(error)

    def _let_in(self) -> None:
        while self.waiting:
            cost, turn = self.waiting[0]
            if self.used and self.used + cost > self.limit:
                return
            self.waiting.popleft()
            if not turn.done():
                self.used += cost
                turn.set_result(None)
