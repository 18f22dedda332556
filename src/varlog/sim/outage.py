"""Outages of a metadata store that is shared, as an etcd without a majority, or one that is started again, shows them.

    refuses    every call is answered at once: nobody is there
    hangs      calls wait; who gives up does not know whether what he sent will be done when the store is back
    slow       answers come late, and later than somebody's lease

What is under way when an outage begins may have been done or not, and its answer may get lost. A commit that somebody
gave up may still be applied when the store is back, or some time after: only the fence keeps it from harm.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from varlog.base.errors import OutcomeUnknown, Unavailable, VarlogError
from varlog.sim.loop import SimulatedLoop

PATIENCE_S = 2.0
"""How long a call waits at most for a store that hangs: for longer or shorter than a lease lasts."""
REFUSAL_S = 0.002
LATE_S = 1.0
"""After an outage, what was given up before is applied within so long, if it is."""
SLOWNESS = 300.0
"""Factor of every delay of a store that is slow, up to `SLOWEST_S`."""
SLOWEST_S = 3.0


@dataclass(eq=False)
class Outage:
    """Of one store. `begin` and `end` it; calls `pass_by` before, and ask whether they are `lost` afterwards."""

    random: Random
    away: bool = False
    hangs: bool = False
    slow: bool = False
    began: int = 0
    """How many have begun so far."""
    _waiting: "list[asyncio.Future[None]]" = field(default_factory=list)
    _late: list[Callable[[], None]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return not self.away and not self.slow

    def begin(self, *, hangs: bool) -> None:
        self.away, self.hangs = True, hangs
        self.began += 1

    def end(self, loop: SimulatedLoop, context: Context) -> None:
        """In a context that outlives all processes."""
        self.away, self.slow = False, False
        late, self._late = self._late, []
        for effect in late:
            loop.schedule(loop.now + self.random.random() * LATE_S, effect, context=context)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def delay(self, seconds: float) -> float:
        return min(SLOWEST_S, seconds * SLOWNESS) if self.slow else seconds

    async def pass_by(
        self, loop: SimulatedLoop, later: Callable[..., object], effect: Callable[[], None], changes: bool
    ) -> None:
        """Returns when the store can be asked; `later` calls inside the asking process at a virtual time."""
        while self.away:
            future: asyncio.Future[None] = loop.create_future()
            later(loop.now + (self.random.random() * PATIENCE_S if self.hangs else REFUSAL_S), _finish, future)
            if self.hangs:
                self._waiting.append(future)
            began = self.began
            await future
            if not self.away or self.began != began:
                continue
            if changes and self.hangs and self.random.random() < 0.5:
                self._late.append(effect)
            raise _lost(changes and self.hangs)

    def lost(self, began: int, happened: bool, changes: bool) -> VarlogError | None:
        """Why a call that was asked when so many outages had begun gets no answer."""
        if self.began != began and (not happened or self.random.random() < 0.5):
            return _lost(changes)
        return None

    def happens(self, began: int) -> bool:
        """Whether what was asked then is done now."""
        return self.began == began or self.random.random() < 0.5


def _lost(changes: bool) -> VarlogError:
    if changes:
        return OutcomeUnknown("the metadata store did not answer, and may have done it or not")
    return Unavailable("the metadata store cannot be reached")


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
