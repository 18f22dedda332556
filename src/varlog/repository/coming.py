"""Streams on their way: placed, and in no record yet. They are load all the same, for who places others meanwhile.

    placed --- ids reserved --- opened on all members --- the record says so
    |<------------------ counted from here --------------->|<-- counted from the catalog

With them come the streams in whose place they are: those still are in the record, and end with it. So counts are as
they will be, in whatever order changes that are under way are done. If one fails, it is as if it had never been.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from varlog.base.ids import LogId, NodeId, StreamId

NEW_LOG = LogId(0)
"""A log that is being made: none has this id."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """By one change of one log."""

    log: LogId
    streams: Sequence[tuple[NodeId, ...]]
    """Members of each, the primary first."""
    ending: Collection[StreamId]
    journal: bool
    """A client leads the log: it has no primaries."""
    granting: bool
    """The primary of the first grants the log's positions."""


class Coming:
    """All that is on its way in the cluster."""

    def __init__(self) -> None:
        self._placed: dict[Placed, None] = {}

    @contextmanager
    def counted(
        self,
        log: LogId,
        streams: Sequence[tuple[NodeId, ...]],
        ending: Collection[StreamId] = (),
        *,
        journal: bool = False,
        granting: bool = False,
    ) -> Iterator[None]:
        """To be entered in the same step in which they were placed, and left in that in which the record says so."""
        placed = Placed(log, streams, ending, journal, granting)
        self._placed[placed] = None
        try:
            yield
        finally:
            del self._placed[placed]

    def __iter__(self) -> Iterator[Placed]:
        return iter(self._placed)

    def ending(self) -> dict[tuple[LogId, StreamId], None]:
        """Streams that are about to end."""
        return {(placed.log, stream): None for placed in self._placed for stream in placed.ending}
