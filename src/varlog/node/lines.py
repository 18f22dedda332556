"""Lines to repositories that follow and gather reports for the one that leads (M5).

The leader names them with every lease. As long as it is told every change itself, a follower gets what changed once
in `PACE_S`: enough to bridge a broken connection, next to nothing to pay. These reports have the number of the last one
that left for the leader, who therefore looks at them only if he has missed that; without a connection to him each
has its own. Where followers alone are told, they
are at once, both with the same report: the leader takes the one that comes first.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from varlog.base.errors import VarlogError
from varlog.base.ids import ReplicaId
from varlog.node.replica import Replica
from varlog.ports import Timer, World
from varlog.runtime.scope import Scope
from varlog.transport.ending import ended
from varlog.transport.peer import Peer, connect
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PACE_S = 0.02
CONNECT_S = 2.0
PAUSE_S = 0.5
"""Before another try to reach a follower; the leader may name another one meanwhile."""
MOST = 4
"""Lines at once, whatever a leader says."""


class MakeReport(Protocol):
    def __call__(self, replicas: Sequence[Replica] | None, *, anew: bool) -> pb.GetReportResponse:
        """Of these replicas, or of all; with a number of its own, or that of the last report."""
        ...


class ReportLines:
    """All lines of a node."""

    def __init__(self, world: World, report: MakeReport) -> None:
        self._world = world
        self._report = report
        self._scope = Scope()
        self._lines: dict[str, asyncio.Task[None]] = {}
        self._peers: dict[str, Peer] = {}
        """Of the lines that are connected."""
        self._changed: dict[ReplicaId, Replica] = {}
        self._timer: Timer | None = None
        self._indirect = False

    @property
    def suffice(self) -> bool:
        """The leader need not be told of changes: followers do it, and one is connected."""
        return self._indirect and bool(self._peers)

    def follow(self, addresses: Sequence[str], indirect: bool) -> None:
        """Report to these from now on, and to no others."""
        self._indirect = indirect
        wanted = dict.fromkeys(addresses[:MOST])
        for address in [each for each in self._lines if each not in wanted]:
            self._lines.pop(address).cancel()
        for address in wanted:
            if address not in self._lines:
                self._lines[address] = self._scope.spawn(self._keep(address), name=f"reports to {address}")

    def changed(self, replica: Replica) -> None:
        """What changes until the next frame shares it."""
        if self._peers:
            self._changed[replica.id] = replica
            if self._timer is None:
                self._timer = self._world.clock.call_later(0.0 if self._indirect else PACE_S, self._flush)

    async def close(self) -> None:
        await self._scope.close()

    def _flush(self) -> None:
        self._timer = None
        changed, self._changed = self._changed, {}
        report = self._report(list(changed.values()), anew=self._indirect)
        for peer in self._peers.values():
            if peer.writable:
                peer.notify(Method.REPORT, report)

    async def _keep(self, address: str) -> None:
        """Until cancelled: stay connected to one follower."""
        while True:
            try:
                await self._serve(address)
            except VarlogError:
                pass  # it is down, or not yet up; reports reach the leader in another way
            await self._world.clock.sleep(PAUSE_S)

    async def _serve(self, address: str) -> None:
        peer = await connect(self._world, address, {}, timeout=CONNECT_S)
        try:
            peer.notify(Method.REPORT, self._report(None, anew=self._indirect))
            self._peers[address] = peer
            await ended(peer)
        finally:
            self._peers.pop(address, None)
            if not self._peers and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._changed.clear()
            peer.close()
