"""Leases of the simulated metadata store: keys that go when nobody renews them, on the store's own clock."""

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field

from varlog.sim.loop import SimulatedLoop


@dataclass(slots=True)
class _Lease:
    seconds: float
    until: float
    keys: list[str] = field(default_factory=list)


class LeaseTable:
    """All leases of one store. Outlives the processes that hold them, and ends them when they stay away."""

    def __init__(self, delete: Callable[[list[str]], None]) -> None:
        """`delete` takes keys out of the store."""
        self._delete = delete
        self._leases: dict[int, _Lease] = {}
        self._last = 0

    def grant(self, loop: SimulatedLoop, context: Context, seconds: float) -> int:
        self._last += 1
        self._leases[self._last] = _Lease(seconds, loop.now + seconds)
        loop.schedule(loop.now + seconds, self._expire, loop, context, self._last, context=context)
        return self._last

    def renew(self, loop: SimulatedLoop, number: int) -> float:
        """Seconds that it lasts from now; 0: it is gone."""
        lease = self._leases.get(number)
        if lease is None:
            return 0.0
        lease.until = loop.now + lease.seconds
        return lease.seconds

    def begin_anew(self, loop: SimulatedLoop) -> None:
        for lease in self._leases.values():
            lease.until = loop.now + lease.seconds

    def attach(self, number: int, key: str) -> None:
        self._leases[number].keys.append(key)

    def exists(self, number: int) -> bool:
        return number in self._leases

    def revoke(self, number: int) -> None:
        lease = self._leases.pop(number, None)
        if lease is not None:
            self._delete(lease.keys)

    def revoke_holder(self, key: str) -> bool:
        """End the lease that `key` is attached to; whether there was one."""
        for number, lease in self._leases.items():
            if key in lease.keys:
                self.revoke(number)
                return True
        return False

    def _expire(self, loop: SimulatedLoop, context: Context, number: int) -> None:
        lease = self._leases.get(number)
        if lease is None:
            return
        if loop.now >= lease.until:
            self.revoke(number)
        else:
            loop.schedule(lease.until, self._expire, loop, context, number, context=context)
