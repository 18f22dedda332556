"""Time. Code that decides or drives never calls `time`, `loop.time` or `asyncio.sleep` itself."""

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """One process's view of time: it may drift against others', and stands still while the process does."""

    def now(self) -> float:
        """Seconds, never going back, of no meaning outside this process."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970, as far as this machine knows."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> Timer: ...
