"""A bound on bytes a second, shared by all who spend from it."""

from varlog.ports import Clock
from varlog.runtime.give_way import give_way

BURST_S = 0.1
"""So much may be spent ahead: small pieces do not wait one by one."""


class Pace:
    """Whoever spends waits until what was spent before him has had its time."""

    def __init__(self, clock: Clock, bytes_per_s: int) -> None:
        self._clock = clock
        self._rate = bytes_per_s
        self._free_at = clock.now()

    async def spend(self, size: int) -> None:
        now = self._clock.now()
        self._free_at = max(self._free_at, now) + size / self._rate
        wait = self._free_at - now - BURST_S
        if wait > 0:
            await self._clock.sleep(wait)
        else:
            await give_way()  # whoever is slower than he may be would hold up the event loop
