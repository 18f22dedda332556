"""Places (a promise of reads): of one position everybody is told the same stream, slot and time, those of the replicas.

An Ack names the stream in which its entries are, and an entry's time is one at which it was on its way by the clock of
who sent it. What a history does not say of an entry (no stream, slot below nought, no time) is not compared.
"""

from collections.abc import Iterator
from typing import NamedTuple

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.history import Operation, Replica


class Place(NamedTuple):
    """What one witness says of one position."""

    glsn: int
    witness: Operation | Replica | None
    """None: the final scan."""
    stream: int = 0
    slot: int = -1
    time_us: int = 0

    @property
    def source(self) -> str:
        if isinstance(self.witness, Replica):
            return f"node {self.witness.node}"
        return describe(self.witness) if self.witness is not None else "the final scan"


def check(history: LogHistory) -> Iterator[Violation]:
    known: dict[tuple[str, int], tuple[int, Place]] = {}
    for place in _places(history):
        for what, told in (("stream", place.stream or None), ("time", place.time_us or None), ("slot", place.slot)):
            if told is None or told < 0:
                continue
            first, by = known.setdefault((what, place.glsn), (told, place))
            if first != told:
                evidence = f"position {place.glsn} has {what} {first} to {by.source} and {told} to {place.source}"
                yield history.violation("places", evidence, place.glsn)
    yield from _times(history, {glsn: by for (what, glsn), (_, by) in known.items() if what == "time"})


def _places(history: LogHistory) -> Iterator[Place]:
    """The replicas first: they are what others are compared with."""
    for replica in history.replicas:
        times = replica.times_us or [0] * len(replica.glsns)
        for offset, (glsn, time_us) in enumerate(zip(replica.glsns, times, strict=False)):
            yield Place(glsn, replica, replica.stream, replica.first_slot + offset, time_us)
    final = history.final
    if final is not None:
        rows = zip(final.glsns, final.streams, final.slots, final.times_us, strict=False)
        for glsn, stream, slot, time_us in rows:
            yield Place(glsn, None, stream, slot, time_us)
    for append in history.acks():
        for glsn in range(append.first, append.last + 1):
            yield Place(glsn, append, append.stream)
    for read in history.reads:
        if read.payload is not None:
            yield Place(read.glsn, read, read.stream, read.slot, read.time_us)
    for each in history.subscriptions:
        for row in zip(each.glsns, each.streams, each.slots, each.times_us, strict=False):
            yield Place(row[0], each, *row[1:])


def _times(history: LogHistory, told: dict[int, Place]) -> Iterator[Violation]:
    """A batch gets its time after it was begun and before it is answered; sent again, it keeps the first one or not."""
    begun: dict[str, int] = {}
    for append in history.appends:
        for payload in append.payloads[:1]:
            begun[payload] = min(append.begun_us, begun.get(payload, append.begun_us))
    for append in history.acks():
        place = told.get(append.first)
        if place is None or not append.ended_us or not append.payloads:
            continue
        if not begun[append.payloads[0]] <= place.time_us <= append.ended_us:
            bounds = f"it was on its way from {begun[append.payloads[0]]} to {append.ended_us}"
            evidence = f"{describe(append)} has time {place.time_us} to {place.source}, but {bounds}"
            yield history.violation("places", evidence, append.first)
