"""A simulated process's view of time: runs a little fast or slow, and may stand still with the process.

    local seconds  =  rate * (virtual seconds the process has lived, less those its clock stood still)

A timer is kept by its local deadline. When virtual time reaches what that deadline seemed to be, the
clock may not be there yet (it stood still in between): then the timer waits for the rest.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from varlog.sim.loop import Handle, SimulatedLoop

EPSILON = 1e-9
"""Local seconds by which a timer may be early: what floating point makes of a deadline."""


class Gate(Protocol):
    """The process a clock belongs to. What arrives waits here while it is paused, and is lost when it is dead."""

    alive: bool

    def arrive_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle: ...


class SimulatedTimer:
    """One call to come. Owned by its clock."""

    __slots__ = ("arguments", "callback", "deadline", "handle")

    def __init__(self, deadline: float, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.deadline = deadline
        self.callback: Callable[..., Any] | None = callback
        self.arguments = arguments
        self.handle: Handle | None = None

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()
        if self.handle is not None:
            self.handle.cancel()


class SimulatedClock:
    """The `Clock` port of one process."""

    def __init__(self, loop: SimulatedLoop, gate: Gate, *, rate: float = 1.0, wall_offset_us: int = 0) -> None:
        self._loop = loop
        self._gate = gate
        self.rate = rate
        self.wall_offset_us = wall_offset_us
        self._stood_still = 0.0
        self._stopped_at: float | None = None

    def now(self) -> float:
        virtual = self._loop.now if self._stopped_at is None else self._stopped_at
        return self.rate * (virtual - self._stood_still)

    def wall_us(self) -> int:
        return self.wall_offset_us + int(self._loop.now * self.rate * 1e6)

    async def sleep(self, seconds: float) -> None:
        if not self._gate.alive:
            raise asyncio.CancelledError
        future = self._loop.create_future()
        timer = self.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> SimulatedTimer:
        timer = SimulatedTimer(self.now() + max(seconds, 0.0), callback, arguments)
        if self._gate.alive:
            self._arm(timer, max(seconds, 0.0))
        return timer

    def _arm(self, timer: SimulatedTimer, local_seconds: float) -> None:
        timer.handle = self._gate.arrive_at(self._loop.now + local_seconds / self.rate, self._fire, timer)

    def _fire(self, timer: SimulatedTimer) -> None:
        callback = timer.callback
        if callback is None:
            return
        missing = timer.deadline - self.now()
        if missing > EPSILON:
            self._arm(timer, missing)
            return
        timer.callback = None
        callback(*timer.arguments)

    # ------------------------------------------------------------ for the process's pauses

    def stop(self) -> None:
        if self._stopped_at is None:
            self._stopped_at = self._loop.now

    def go_on(self) -> None:
        if self._stopped_at is not None:
            self._stood_still += self._loop.now - self._stopped_at
            self._stopped_at = None


def _wake(future: "asyncio.Future[None]") -> None:
    with suppress(asyncio.InvalidStateError):
        future.set_result(None)
