"""What has to end by itself once faults have stopped, and when it has had time enough for it."""

from collections.abc import Callable
from typing import Protocol

from varlog.sim.excuses import streams_of
from varlog.sim.history import History, Operation, Subscription
from varlog.wire.proto import varlog_pb2 as pb

SHORT_SECONDS = 1.0
"""A subscription that has just begun need not have found out yet that it is at its end."""

LONG_SECONDS = 30.0
"""Longer than any operation may take: all but subscriptions have a timeout, of ten seconds at most."""


class Readable(Protocol):
    """The part of `Excuses` that matters here."""

    def readable(self, info: pb.LogInfo) -> bool: ...


class Ending:
    """Of one run."""

    def __init__(self, history: History, excuses: Readable, alive: Callable[[str], bool]) -> None:
        """`alive`: whether a client's process, by its name, is still there."""
        self._history = history
        self._excuses = excuses
        self._alive = alive
        self.tails: dict[str, int] = {}
        """Where logs ended when they had come to rest; empty: they have not."""

    def due(self, infos: dict[str, pb.LogInfo], now: float, seconds: float = SHORT_SECONDS) -> list[Operation]:
        """What has not ended, though it could have, and began so long ago."""
        return [
            record
            for record in self._history.records
            if isinstance(record, Operation) and record.end is None
            if record.start_time <= now - (seconds if isinstance(record, Subscription) else 0.0)
            if self._alive(record.client) and self._can_end(record, infos)
        ]

    def _can_end(self, operation: Operation, infos: dict[str, pb.LogInfo]) -> bool:
        """A subscription ends at its stop, and where a sealed log or its one stream ends; all else whatever happens."""
        if not isinstance(operation, Subscription):
            return True
        info, tail = infos[operation.log], self.tails.get(operation.log)
        if tail is None or not self._excuses.readable(info):
            return False
        ended = [each.id for each in streams_of(info) if each.state == pb.STREAM_FINALIZED]
        return info.sealed or operation.stream in ended or 0 < operation.stop <= tail + 1

    def expect(self, infos: dict[str, pb.LogInfo], now: float) -> None:
        """Whatever had time enough must have ended: checkers look at the rest."""
        for operation in self.due(infos, now):
            operation.must_end = operation.start_time <= now - LONG_SECONDS
