"""Deadlines on a `Clock`, so that they run on virtual time in the simulator too.

    async with deadline(clock, 2.0):
        await something()          # cancelled after two seconds; the block then raises `Timeout`

A cancellation that came from elsewhere stays a cancellation, also when both happen at once.
"""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from varlog.base.errors import Timeout
from varlog.ports.clock import Clock, Timer

Result = TypeVar("Result")


class deadline:  # noqa: N801 - reads as a statement
    """Cancels the block it guards when the time is up, and turns that cancellation into `Timeout`."""

    __slots__ = ("_cancelling", "_clock", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expired = False
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    @property
    def expired(self) -> bool:
        return self._expired

    async def __aenter__(self) -> "deadline":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline guards code of a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = self._clock.call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        if self._task is not None:
            self._expired = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and task is not None:
            ours = task.uncancel() <= self._cancelling
            if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise Timeout(f"not done in {self._seconds:g} s") from error


async def within(clock: Clock, seconds: float, awaitable: Awaitable[Result]) -> Result:
    """The result of `awaitable`, or `Timeout` after `seconds`; it is then cancelled."""
    async with deadline(clock, seconds):
        return await awaitable
