"""The streams that have ended, listed once after every change of a log's record, and looked at some at a time.

There may be tens of thousands of them, and whoever looks after them does so in the process that orders appends.
"""

from collections.abc import Iterator, Mapping

from varlog.base.ids import Epoch, ReplicaId, StreamId
from varlog.repository.catalog import Catalog
from varlog.wire.proto import varlog_pb2 as pb

STREAMS_A_LOOK = 256


class EndedStreams:
    """Of all logs that are not being removed; one for each who looks."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._listed_at = -1
        self._all: dict[ReplicaId, pb.StreamInfo] = {}
        self._names: list[ReplicaId] = []
        self._copied: dict[ReplicaId, pb.StreamInfo] = {}
        self._next = 0

    @property
    def all(self) -> Mapping[ReplicaId, pb.StreamInfo]:
        """As they are now."""
        self._list()
        return self._all

    @property
    def copied(self) -> Mapping[ReplicaId, pb.StreamInfo]:
        """Those of which a copy is under way."""
        self._list()
        return self._copied

    def turn(self) -> list[ReplicaId]:
        """Those that come next."""
        self._list()
        first = self._next if self._next < len(self._names) else 0
        self._next = first + STREAMS_A_LOOK
        return self._names[first : self._next]

    def _list(self) -> None:
        if self._listed_at != self._catalog.changes:
            self._listed_at = self._catalog.changes
            self._all = dict(self._find())
            self._names = list(self._all)
            self._copied = {name: stream for name, stream in self._all.items() if stream.HasField("copy")}

    def _find(self) -> Iterator[tuple[ReplicaId, pb.StreamInfo]]:
        for number, log in self._catalog.logs.items():
            for segment in log.chain if not log.removing else ():
                for stream in segment.streams:
                    if stream.state == pb.STREAM_FINALIZED:
                        yield ReplicaId(number, Epoch(segment.epoch), StreamId(stream.id)), stream
