"""One connection per address, made on demand and shared by all who talk to that process.

Used by clients (towards nodes and repositories) and by nodes (towards their peers). A failed attempt
is remembered for a while that grows with every failure, so that a dead address costs its callers an
error at once instead of a time-out each.
"""

import asyncio
from dataclasses import dataclass

from varlog.base.errors import Unavailable, VarlogError
from varlog.ports import World
from varlog.transport.peer import Handlers, Peer, connect

CONNECT_TIMEOUT_S = 2.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


@dataclass(slots=True)
class _Address:
    peer: Peer | None = None
    attempt: "asyncio.Task[Peer] | None" = None
    failures: int = 0
    not_before: float = 0.0
    error: VarlogError | None = None


class PeerPool:
    """Peers by address."""

    def __init__(self, world: World, handlers: Handlers | None = None) -> None:
        self._world = world
        self._handlers: Handlers = handlers or {}
        self._addresses: dict[str, _Address] = {}
        self._closed = False

    def connected(self, address: str) -> Peer | None:
        """The open connection to an address, if there is one; makes none."""
        known = self._addresses.get(address)
        if known is None or known.peer is None or known.peer.closed_error is not None:
            return None
        return known.peer

    async def get(self, address: str) -> Peer:
        """An open connection; raises `Unavailable` at once while the address is being left alone."""
        if self._closed:
            raise Unavailable("this pool of connections is closed")
        peer = self.connected(address)
        if peer is not None:
            return peer
        known = self._addresses.setdefault(address, _Address())
        if known.attempt is None:
            if known.error is not None and self._world.clock.now() < known.not_before:
                raise Unavailable(known.error.message) from known.error
            known.attempt = asyncio.create_task(self._connect(address, known), name=f"connect {address}")
            known.attempt.add_done_callback(_retrieve)
        # shield: a caller that gives up must not end the attempt others wait for
        return await asyncio.shield(known.attempt)

    async def _connect(self, address: str, known: _Address) -> Peer:
        try:
            peer = await connect(self._world, address, self._handlers, timeout=CONNECT_TIMEOUT_S)
        except VarlogError as error:
            known.failures += 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(known.failures, 10))
            known.not_before = self._world.clock.now() + pause * self._world.random.uniform(0.5, 1.0)
            known.error = error
            raise
        finally:
            known.attempt = None
        known.peer, known.failures, known.error = peer, 0, None
        if self._closed:
            peer.close()
        return peer

    def close(self) -> None:
        """Close every connection; attempts under way end in an error."""
        self._closed = True
        for known in self._addresses.values():
            if known.attempt is not None:
                known.attempt.cancel()
            if known.peer is not None:
                known.peer.close()


def _retrieve(attempt: "asyncio.Task[Peer]") -> None:
    """All who waited for it may have given up; its error is remembered for the next who asks."""
    if not attempt.cancelled():
        attempt.exception()
