"""The real clock: monotonic time of this machine and the timers of the running event loop."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from varlog.ports.clock import Timer


class RealClock:
    """`Clock` of a real process."""

    __slots__ = ()

    now = staticmethod(time.monotonic)

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback, *arguments)
