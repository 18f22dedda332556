"""Whether a disk is so quick that the event loop may wait for it rather than hand the work to a thread.

A thread costs two more hand-overs, each a wait for a core and for the interpreter: more than a quick disk takes. A slow
one must not hold up everything else. So it is tried, and given up for a while when the mean of the last tries was
long; for twice as long each time that the next tries are no better.
"""

SLOW_SECONDS = 0.004
"""A mean beyond this is slow."""

FIRST_REST_SECONDS = 0.25
LONGEST_REST_SECONDS = 16.0
"""How long nothing is tried after that."""

_SHARE = 1 / 8
"""Of the last try in the mean."""


class Quickness:
    """Of one disk, as one event loop sees it. Times are those of `time.monotonic`."""

    __slots__ = ("_mean", "_rest", "slow_until")

    def __init__(self) -> None:
        self.slow_until = 0.0
        """Before this nothing is to be tried."""
        self._mean = 0.0
        self._rest = FIRST_REST_SECONDS

    def tried(self, start: float, end: float) -> None:
        """The loop has waited from `start` to `end`."""
        self._mean += (end - start - self._mean) * _SHARE
        if self._mean > SLOW_SECONDS:
            if start > self.slow_until + self._rest:
                self._rest = FIRST_REST_SECONDS  # it was quick for longer than it had rested
            self.slow_until = end + self._rest
            self._rest = min(2 * self._rest, LONGEST_REST_SECONDS)
            self._mean = 0.0
