"""Leads a stream under the `leader` ordering, for any number of writers: commits what W members have.

    APPEND --> Primary --stage--> own disk  ---synced---\
                       \\--STORE--> backups ---answers----> committed --> the waiting appends are answered
                                                             `--> backups hear of it with the next STORE

The primary and the forwarders are those of `cut`; only who gives positions is another. A commit costs one round
trip and one sync, and nobody else is asked. What has been stored before the segment is part of the log waits for
its base, and is answered as soon as that is known.
"""

from collections.abc import Callable, Sequence

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.core.ordering import leader as ordering
from varlog.node.replica import Replica
from varlog.ports import Clock, Timer
from varlog.wire.proto import varlog_pb2 as pb

RELEASE_IDLE_S = 0.005
"""How long what is committed waits for a STORE to ride with before backups are told by itself."""


class Leader:
    """Of one stream, as long as its node lives."""

    def __init__(
        self,
        replica: Replica,
        backups: Sequence[NodeId],
        ack: int,
        clock: Clock,
        changed: Callable[[Replica], None],
    ) -> None:
        """`changed` is called when there is something new to report."""
        self.base: Glsn | None = None
        """Position of slot 0, once it is known."""
        self.committed = Slot(0)
        self.tell: list[Callable[[], None]] = []
        """Called when backups should hear of what is committed."""
        self._replica = replica
        self._ack = ack
        self._clock = clock
        self._changed = changed
        self._tails: dict[NodeId, Slot] = dict.fromkeys(backups, Slot(0))
        self._timer: Timer | None = None
        replica.on_sync.append(self._look)

    def begin(self, base: Glsn) -> None:
        """The segment is part of the log, and begins here."""
        if self.base is None:
            self.base = base
            self._replica.leads = pb.LEADS
            self._look()

    def has(self, backup: NodeId, tail: Slot) -> None:
        """A backup says how far it is synced."""
        if tail > self._tails[backup]:
            self._tails[backup] = tail
            self._look()

    def give_up(self, why: str) -> None:
        """A backup can never be brought up in this segment: another one is asked for. Until then all goes on."""
        if self._replica.leads != pb.LEADS_NO_MORE:
            self._replica.leads = pb.LEADS_NO_MORE
            self._replica.trouble = why
            self._changed(self._replica)

    def _look(self) -> None:
        """Our own disk has everything that we commit: what we answer we can show.

        Once sealed we commit no more: where the segment ends is told by how far we were.
        """
        if self._replica.log.sealed:
            return
        durable = self._replica.log.durable
        upto = min(durable, ordering.committed((durable, *self._tails.values()), self._ack))
        if upto > self.committed and self.base is not None:
            self.committed = upto
            self._replica.release(self.base, upto)
            if self._timer is None:
                self._timer = self._clock.call_later(RELEASE_IDLE_S, self._idle)

    def _idle(self) -> None:
        self._timer = None
        for tell in self.tell:
            tell()
