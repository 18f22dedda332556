"""One connection per process that is talked to, made on demand and shared by all who talk to it.

Used by clients (towards nodes and repositories) and by nodes (towards their peers). A failed attempt
is remembered for a while that grows with every failure, so that a dead address costs its callers an
error at once instead of a time-out each.

Addresses are given out again: what is sent to a node must not be taken, or acknowledged, by another
that is at its address by now. So whoever is there is asked first who it is.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from varlog.base.errors import Timeout, Unavailable, VarlogError
from varlog.ports import World
from varlog.runtime.scope import result_of
from varlog.transport.peer import Handlers, Peer, connect
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

CONNECT_TIMEOUT_S = 2.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0

_CLOSED = "this pool of connections is closed"


class Place(NamedTuple):
    """An address, and who is expected there."""

    address: str
    node: int = 0
    """0: a repository."""


@dataclass(slots=True)
class _Known:
    peer: Peer | None = None
    attempt: "asyncio.Task[Peer] | None" = None
    failures: int = 0
    not_before: float = 0.0
    error: VarlogError | None = None


class PeerPool:
    """Peers by their place, all of one cluster."""

    def __init__(self, world: World, handlers: Handlers | None = None) -> None:
        self._world = world
        self._handlers: Handlers = handlers or {}
        self._places: dict[Place, _Known] = {}
        self._closed = False
        self.cluster_id = ""
        """Empty: that of whoever answers first."""

    @property
    def closed(self) -> bool:
        """For good."""
        return self._closed

    def connected(self, place: Place) -> Peer | None:
        """The open connection to a place, if there is one; makes none."""
        known = self._places.get(place)
        if known is None or known.peer is None or known.peer.closed_error is not None:
            return None
        return known.peer

    async def get(self, place: Place) -> Peer:
        """An open connection; raises `Unavailable` at once while the place is being left alone."""
        if self._closed:
            raise Unavailable(_CLOSED)
        peer = self.connected(place)
        if peer is not None:
            return peer
        known = self._places.setdefault(place, _Known())
        if known.attempt is None:
            if known.error is not None and self._world.clock.now() < known.not_before:
                raise Unavailable(known.error.message) from known.error
            known.attempt = asyncio.create_task(self._connect(place, known), name=f"connect {place.address}")
            known.attempt.add_done_callback(_retrieve)
        return await result_of(known.attempt, _CLOSED)

    async def _connect(self, place: Place, known: _Known) -> Peer:
        try:
            peer = await connect(self._world, place.address, self._handlers, timeout=CONNECT_TIMEOUT_S)
            await self._identify(peer, place)
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

    async def _identify(self, peer: Peer, place: Place) -> None:
        """Close the connection, and say so, unless who is expected is at its other end."""
        try:
            reply = await peer.call(Method.HELLO, pb.HelloRequest(), timeout=CONNECT_TIMEOUT_S)
            cluster, node = reply.message.cluster_id, reply.message.node_id
            if not cluster:
                raise Unavailable(f"at {place.address} is a node that has not joined a cluster yet")
            if node != place.node:
                raise Unavailable(f"at {place.address} is {_name(node)}, not {_name(place.node)}")
            if cluster != (self.cluster_id or cluster):
                raise Unavailable(f"at {place.address} is {_name(node)} of cluster {cluster}, not of {self.cluster_id}")
            self.cluster_id = cluster
        except Timeout as error:
            peer.close()
            raise Unavailable(f"{place.address} did not say who it is: {error.message}") from error
        except BaseException:
            peer.close()
            raise

    def close(self) -> None:
        """Close every connection; attempts under way end in an error."""
        self._closed = True
        for known in self._places.values():
            if known.attempt is not None:
                known.attempt.cancel()
            if known.peer is not None:
                known.peer.close()


def _name(node: int) -> str:
    return f"node {node}" if node else "a repository"


def _retrieve(attempt: "asyncio.Task[Peer]") -> None:
    """All who waited for it may have given up; its error is remembered for the next who asks."""
    if not attempt.cancelled():
        attempt.exception()
