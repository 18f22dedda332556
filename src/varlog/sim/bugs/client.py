"""Bugs in the client."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from varlog.base.ids import Glsn, StreamId
from varlog.client.bounds import Bounds
from varlog.client.entry import ReadBatch
from varlog.client.feed import Feed
from varlog.client.parts import Placed
from varlog.client.session import Flight, Session
from varlog.client.subscription import Source
from varlog.client.writer import Carried, StreamWriter
from varlog.core.merge import Merge
from varlog.sim.bugs.registry import bug, swap
from varlog.transport.peer import Peer


@bug("an append that was not answered is sent again under a new identity")
def retry_with_new_identity() -> Iterator[None]:
    plain = StreamWriter._transmit

    def transmit(self: StreamWriter, peer: Peer, session: Session[Carried], flight: Flight[Carried]) -> None:
        if flight.unknown:
            flight.batch.stamp(self._world.random.randbytes(16), 0)
        plain(self, peer, session, flight)

    with swap(StreamWriter, _transmit=transmit):
        yield


@bug(
    "who reads over the seam goes on behind the end of the archive, though he read it to the trim point only",
    lambda weather: weather.shape.archivers > 0 and weather.shape.subscribers > 0,
)
def seam_passed_over() -> Iterator[None]:
    plain = Source._from_archive

    async def from_archive(self: Source, bounds: Bounds, left: int) -> AsyncGenerator[list[ReadBatch], None]:
        async with aclosing(plain(self, bounds, left)) as runs:
            async for run in runs:
                yield run
        info = self.context.routes.info
        bounds.start = Glsn(max(bounds.start, info.archived if info is not None else 0))

    with swap(Source, _from_archive=from_archive):
        yield


@bug(
    "the merge goes on with what is there when a stream is late",
    lambda weather: weather.shape.streams > 1 and weather.shape.subscribers > 0,
)
def merge_does_not_wait() -> Iterator[None]:
    plain = Merge.take

    def take(self: Merge[Any]) -> list[Any]:
        if self._fronts and self.next not in self._fronts and len(self._fronts) < len(self._queues):
            self.next = Glsn(min(self._fronts))
        return plain(self)

    with swap(Merge, take=take):
        yield


@bug(
    "who follows a stream from behind its last entry is not told that it has ended",
    lambda weather: weather.shape.subscribers > 0 and weather.shape.seals,
)
def end_told_to_nobody() -> Iterator[None]:
    plain = Feed.feed

    def feed(self: Feed, stream: StreamId, batches: list[Placed]) -> None:
        if batches:
            plain(self, stream, batches)

    with swap(Feed, feed=feed):
        yield
