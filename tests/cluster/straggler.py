"""A client that goes by one segment of a log and hears of no other, whatever became of it.

Its connections are made beforehand: what it sends to a node that is stopped waits in that node's socket, and is
the first thing it finds when it wakes up.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from tests.cluster.processes import PATIENCE_S

import varlog
from varlog.base.errors import Gap, Sealed, Taken, Unavailable, VarlogError
from varlog.base.ids import Glsn
from varlog.core.ordering.sequencer import Stripes
from varlog.sim.history import Append, fingerprint, payload_bytes
from varlog.transport.peer import Peer, connect
from varlog.transport.world import real_world
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

FINAL = (Sealed, Taken)
"""Errors by which what was sent is certainly not in the log."""
PAUSE_S = 0.05
"""Before a member is asked again that lacks what others have on their way to it."""


class Straggler(ABC):
    """Talks to the members of the one stream of that segment, by their numbers."""

    def __init__(self, log: varlog.LogDescription, segment: varlog.SegmentDescription) -> None:
        self.appends: list[Append] = []
        """All it ever sent, as clients record theirs."""
        self._log = log
        self._segment = segment
        (self._stream,) = segment.streams
        self._peers: list[Peer] = []

    @property
    def stream(self) -> int:
        """The one that it knows."""
        return self._stream.id

    async def connect(self, addresses: Mapping[int, str]) -> None:
        """Members in their order."""
        world = real_world()
        for node in self._stream.members:
            self._peers.append(await connect(world, addresses[node], {}, timeout=PATIENCE_S))

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    async def append(self) -> Append:
        """Send one, and wait what becomes of it."""
        payload = payload_bytes(f"straggler.{len(self.appends) + 1}")
        append = Append(client="straggler", log=self._log.name, payloads=[fingerprint(payload)])
        self.appends.append(append)
        append.start_time = time.monotonic()
        try:
            append.first = append.last = await self._send(payload)
        except VarlogError as error:
            append.outcome = "refused" if isinstance(error, FINAL) else "unknown"
            append.error, append.value = type(error).__name__, error.value
        else:
            append.outcome, append.stream = "ack", self._stream.id
        append.end_time = time.monotonic()
        return append

    @abstractmethod
    async def _send(self, payload: bytes) -> int:
        """The position it was acknowledged at."""


class LedStraggler(Straggler):
    """Under `leader`: asks the first member to append."""

    async def _send(self, payload: bytes) -> int:
        request = pb.AppendRequest(log=self._log.id, segment=self._segment.epoch, stream=self._stream.id)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                reply = await self._peers[0].call(Method.APPEND, request, [encode_batch([payload])], timeout=PATIENCE_S)
            except Unavailable:  # not taken: the node has been sealed, and has not heard yet where its segment ends
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                assert isinstance(reply.message, pb.AppendReply)
                return reply.message.glsn


class GrantedStraggler(Straggler):
    """Under `sequencer`: asks the first member for a position, and writes there, member after member."""

    def __init__(self, log: varlog.LogDescription, segment: varlog.SegmentDescription) -> None:
        super().__init__(log, segment)
        self._stripes = Stripes(Glsn(segment.base), segment.unit, 1)
        self.granted: list[int] = []
        """Positions that wait to be used by the next appends."""

    async def grant(self) -> int:
        """Ask for a position."""
        request = pb.GrantRequest(
            log=self._log.id,
            segment=self._segment.epoch,
            stream=self._stream.id,
            count=1,
            base=self._segment.base,
        )
        reply = await self._peers[0].call(Method.GRANT, request, timeout=PATIENCE_S)
        assert isinstance(reply.message, pb.GrantReply)
        return reply.message.first

    async def _send(self, payload: bytes) -> int:
        glsn = self.granted.pop(0) if self.granted else await self.grant()
        _, slot = self._stripes.place(glsn)
        request = pb.StoreRequest(
            log=self._log.id,
            segment=self._segment.epoch,
            stream=self._stream.id,
            slot=slot,
            base=self._segment.base,
        )
        data = encode_batch([payload])
        for peer in self._peers:
            await self._store(peer, request, data)
        return glsn

    async def _store(self, peer: Peer, request: pb.StoreRequest, data: bytes) -> None:
        """At one member, as soon as it has what comes before."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                await peer.call(Method.STORE, request, [data], timeout=PATIENCE_S)
            except Gap:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                return
