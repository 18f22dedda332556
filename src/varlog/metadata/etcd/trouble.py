"""Saying that etcd cannot be used, and why, to whoever runs the process.

Those who call get the error, wait, and try again, for as long as it takes. Without a word somebody would only see that
nothing is acknowledged. What is wrong is told when a call has failed with all its attempts, each kind of it once in
a while, and when it is over.
"""

import time
from collections.abc import Callable

from varlog.base.errors import (
    InvalidArgument,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Timeout,
    TooLarge,
    Unavailable,
    VarlogError,
)

Tell = Callable[[str], None]

TELL_EVERY_S = 60.0
"""How often the same is told."""
_OF_CALLERS = (InvalidArgument, NotFound, TooLarge)
"""What says nothing about etcd."""
_AWAY = (Unavailable, OutcomeUnknown, Overloaded, Timeout)
"""What is told as one."""


class Trouble:
    """What is wrong, as far as it has been told."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._told: dict[type[VarlogError], float] = {}
        """When, of each kind, since all was well."""
        self.failures = 0
        """Calls that have failed."""

    def met(self, error: VarlogError) -> None:
        """A call has failed, with all its attempts."""
        if self._tell is None or isinstance(error, _OF_CALLERS):
            return
        kind = Unavailable if isinstance(error, _AWAY) else type(error)
        now = time.monotonic()
        self.failures += 1
        if kind not in self._told or now - self._told[kind] >= TELL_EVERY_S:
            self._told[kind] = now
            self._tell(error.message)

    def over(self, failures: int, *, wrote: bool) -> None:
        """A call has succeeded that began after so many failures: others may have failed since.

        An etcd that is full can be read.
        """
        if self._tell is None or failures != self.failures or (NoSpace in self._told and not wrote):
            return
        if self._told:
            self._told.clear()
            self._tell("etcd can be used again")
