"""Bugs in the client."""

from collections.abc import Iterator
from typing import Any

from varlog.base.ids import Glsn
from varlog.client.session import Flight, Session
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
