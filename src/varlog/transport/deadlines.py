"""One timer for all deadlines of a connection.

Nearly every call is answered long before its deadline, so what must be cheap is having one: a
comparison, as long as the timer is set for an earlier time anyway. When it rings, the owner looks
through what is open and says what comes next.
"""

from collections.abc import Callable
from math import inf

from varlog.ports.clock import Clock, Timer
from varlog.transport.limits import DEADLINE_SECONDS, EARLY_SECONDS


class Deadlines:
    """Rings at or before the earliest deadline that was announced."""

    __slots__ = ("_clock", "_ring", "_timer", "at")

    def __init__(self, clock: Clock, ring: Callable[[float], float]) -> None:
        """`ring(now)` ends all that is due at `now` and returns the earliest deadline left, or infinity."""
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
        self.at = inf
        """When the timer rings; announce only deadlines before it."""

    def announce(self, deadline: float, now: float) -> None:
        """Ring no later than `deadline`."""
        if deadline < self.at:
            if self._timer is not None:
                self._timer.cancel()
            self.at = deadline
            self._timer = self._clock.call_later(max(0.0, deadline - now), self._rings)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.at = -inf

    def _rings(self) -> None:
        if self.at == -inf:
            return
        self._timer = None
        self.at = inf
        now = self._clock.now()
        following = self._ring(now + EARLY_SECONDS)
        if following < inf:
            self.announce(max(following, now + DEADLINE_SECONDS), now)
