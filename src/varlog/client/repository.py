"""Asking the repository: any of several addresses, moving on when one is gone, until the caller's deadline."""

from google.protobuf.message import Message

from varlog.base.errors import ConnectionLost, NotLeader, OutcomeUnknown, Timeout, Unavailable, VarlogError
from varlog.client.errors import CLOSED
from varlog.client.limits import (
    ATTEMPT_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SHORTEST_ATTEMPT_SECONDS,
)
from varlog.ports import World
from varlog.runtime.timeout import within
from varlog.transport.peer import Peer
from varlog.transport.pool import PeerPool, Place
from varlog.wire.methods import Method


class Doubt:
    """Whether an earlier attempt of a call may have had its effect."""

    __slots__ = ("repeated",)

    def __init__(self) -> None:
        self.repeated = False


def pause(world: World, failures: int, first: float = FIRST_PAUSE_SECONDS) -> float:
    """Seconds to wait after so many failures in a row."""
    longest = min(LONGEST_PAUSE_SECONDS, first * (1 << min(failures, 16)))
    return longest * world.random.uniform(0.5, 1.0)


class Repositories:
    """The repositories of one cluster, asked one at a time."""

    def __init__(self, world: World, pool: PeerPool, addresses: list[str]) -> None:
        self._world = world
        self._pool = pool
        self._addresses = addresses
        self._current = 0

    async def connect(self, timeout: float) -> None:
        """Reach one of them, trying each once."""
        errors = []
        for _ in self._addresses:
            try:
                await self.peer(timeout)
            except (Unavailable, Timeout) as error:
                errors.append(f"{self._address}: {error.message}")
                self._move_on()
            else:
                return
        raise Unavailable(f"no repository answers at {'; '.join(errors)}")

    async def peer(self, timeout: float) -> Peer:
        """A connection to the one in use."""
        return await within(self._world.clock, timeout, self._pool.get(Place(self._address)))

    async def call(
        self, method: Method, message: Message, *, timeout: float, changes: bool = False, doubt: Doubt | None = None
    ) -> Message:
        """Ask until someone answers or the time is up.

        With `changes`, a call that may have had its effect ends in `OutcomeUnknown`, not in `Timeout`.
        """
        asking = _Asking(self, method, message, timeout, doubt or Doubt())
        return await asking.run(changes)

    def moved(self) -> None:
        """Whoever was talked to is gone: try another next time."""
        self._move_on()

    @property
    def closed(self) -> bool:
        """Nobody can be reached any more."""
        return self._pool.closed

    @property
    def _address(self) -> str:
        return self._addresses[self._current % len(self._addresses)]

    def _move_on(self) -> None:
        self._current = (self._current + 1) % len(self._addresses)


class _Asking:
    """One call, with its attempts."""

    def __init__(self, owner: Repositories, method: Method, message: Message, timeout: float, doubt: Doubt) -> None:
        self._owner = owner
        self._world = owner._world
        self._method = method
        self._message = message
        self._timeout = timeout
        self._deadline = self._world.clock.now() + timeout
        self._attempt_seconds = max(ATTEMPT_SECONDS, timeout / 4)
        self._doubt = doubt
        self._failures = 0
        self._declined = 0

    async def run(self, changes: bool) -> Message:
        last: VarlogError = Timeout("no time to ask")
        while (left := self._deadline - self._world.clock.now()) > SHORTEST_ATTEMPT_SECONDS:
            try:
                return await self._attempt(left)
            except (ConnectionLost, Timeout, Unavailable) as error:
                last = error
                if self._declined >= len(self._owner._addresses):
                    raise
                if self._owner.closed:
                    break
            self._owner._move_on()
            self._failures += 1
            if self._failures % len(self._owner._addresses) == 0:
                left = max(0.0, self._deadline - self._world.clock.now())
                await self._world.clock.sleep(min(left, pause(self._world, self._failures)))
        raise self._given_up(changes, last) from last

    async def _attempt(self, left: float) -> Message:
        peer = await self._owner.peer(left)
        left = max(0.001, self._deadline - self._world.clock.now())
        try:
            reply = await peer.call(self._method, self._message, timeout=min(left, self._attempt_seconds))
        except (ConnectionLost, Timeout):
            self._doubt.repeated = True
            raise
        except NotLeader:
            raise  # soon another one leads
        except Unavailable:
            if peer.closed_error is None:
                self._declined += 1
            raise
        message: Message = reply.message
        return message

    def _given_up(self, changes: bool, last: VarlogError) -> VarlogError:
        what = self._method.name.lower().replace("_", " ")
        when = f"before {CLOSED}" if self._owner.closed else f"in {self._timeout:g} s"
        if changes and self._doubt.repeated:
            return OutcomeUnknown(f"{what}: not answered {when}; it may have been done ({last.message})")
        if self._doubt.repeated:
            kind = Unavailable if self._owner.closed else Timeout
            return kind(f"{what}: not answered {when} ({last.message})")
        return Unavailable(f"{what}: no repository was reached {when} ({last.message})")
