"""What checkers share: the view of one log's history, and what a violation is."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from varlog.sim.history import (
    JUNK,
    Append,
    Chain,
    Expectation,
    FinalLog,
    Find,
    History,
    Keeping,
    Opening,
    Operation,
    Read,
    Replica,
    Seal,
    Subscription,
    Tail,
    Trim,
)


class Violation(NamedTuple):
    """An invariant that does not hold, with the evidence."""

    invariant: str
    log: str
    evidence: str
    glsn: int = 0
    """The lowest position that it is about; 0: none, or nobody looked."""

    def __str__(self) -> str:
        return f"{self.invariant} violated in log {self.log!r}: {self.evidence}"


class Sight(NamedTuple):
    """Somebody saw that an entry is at a position."""

    glsn: int
    payload: str
    end: int | None
    """When he knew; None: only at the very end."""
    operation: Operation | None
    """By which; None: the final scan."""

    @property
    def source(self) -> str:
        return describe(self.operation) if self.operation is not None else "the final scan"


@dataclass(eq=False)
class LogHistory:
    """The part of a history that is about one log."""

    log: str
    appends: list[Append]
    reads: list[Read]
    subscriptions: list[Subscription]
    tails: list[Tail]
    trims: list[Trim]
    seals: list[Seal]
    chains: list[Chain]
    keeping: Keeping | None
    finds: list[Find]
    openings: list[Opening]
    replicas: list[Replica]
    expectations: list[Expectation]
    final: FinalLog | None
    hanging: list[Operation] = field(default_factory=list)
    """What should have ended, and has not."""
    at: dict[int, str] = field(default_factory=dict)
    """Position -> payload in the final log."""
    found: dict[str, int] = field(default_factory=dict)
    """Payload -> its (first) position in the final log."""

    def __post_init__(self) -> None:
        if self.final is not None:
            self.at = dict(zip(self.final.glsns, self.final.payloads, strict=True))
            self.at |= dict.fromkeys(self.final.junk, JUNK)
            for glsn, payload in self.at.items():
                self.found.setdefault(payload, glsn)

    @property
    def trimmed(self) -> int:
        """Nothing at or below is there at the end."""
        return self.final.trimmed if self.final is not None else 0

    @cached_property
    def stream_at(self) -> dict[int, int]:
        """Position -> stream in the final log."""
        final = self.final
        return dict(zip(final.glsns, final.streams, strict=False)) if final is not None else {}

    def ordering(self, segment: int) -> str:
        """Of a segment, as far as anybody was told."""
        told = [chain.orderings for chain in self.chains if len(chain.orderings) >= segment]
        return told[-1][segment - 1] if told else "cut"

    @cached_property
    def unknown_upto(self) -> float:
        """Whether positions up to here held an entry or junk cannot be told any more."""
        if not any("sequencer" in chain.orderings for chain in self.chains):
            return 0
        return self.trimmed if self.final is not None else inf

    def may_follow(self, expected: int, glsn: int) -> bool:
        """Whether an entry at `glsn` is the next one from `expected` on."""
        if expected <= glsn <= self.unknown_upto:
            return True
        return glsn == self.after_junk(int(max(expected, self.unknown_upto + 1)))

    def after_junk(self, glsn: int) -> int:
        """The first position from this one on that holds an entry, or nothing yet."""
        while self.at.get(glsn) == JUNK:
            glsn += 1
        return glsn

    @property
    def losses(self) -> list[Trim]:
        """Trims after which something is gone for good: it is not in an archive."""
        return [trim for trim in self.trims if not trim.archived]

    def acks(self) -> list[Append]:
        return [append for append in self.appends if append.outcome == "ack"]

    @cached_property
    def sights(self) -> list[Sight]:
        """Everything anybody saw, except what only replicas know."""
        found: list[Sight] = []
        for append in self.acks():
            for offset, payload in enumerate(append.payloads):
                found.append(Sight(append.first + offset, payload, append.end, append))
        found += [Sight(read.glsn, read.payload, read.end, read) for read in self.reads if read.payload is not None]
        found += [Sight(read.glsn, JUNK, read.end, read) for read in self.reads if read.error == "Junk"]
        for each in self.subscriptions:
            rows = zip(each.glsns, each.payloads, each.orders, strict=True)
            found += [Sight(glsn, payload, order, each) for glsn, payload, order in rows]
        found += [Sight(glsn, payload, None, None) for glsn, payload in self.at.items()]
        return found

    @cached_property
    def filled(self) -> dict[int, list[int]]:
        """Stream -> positions of entries that somebody saw, rising; those of all streams under 0.

        They are there for ever, whatever else is not known of the log.
        """
        streams = [(glsn, stream) for glsn, stream in self.stream_at.items()]
        for append in self.acks():
            streams += [(glsn, append.stream) for glsn in range(append.first, append.last + 1)]
        streams += [(read.glsn, read.stream) for read in self.reads if read.payload is not None]
        for each in self.subscriptions:
            streams += zip(each.glsns, each.streams or [each.stream] * len(each.glsns), strict=True)
        found: dict[int, set[int]] = {0: {sight.glsn for sight in self.sights if sight.payload != JUNK}}
        for glsn, stream in streams:
            found.setdefault(stream, set()).add(glsn)
        return {stream: sorted(positions) for stream, positions in found.items()}

    def seen_positions(self) -> list[tuple[int, int]]:
        """(order, position) of everything that was seen before the end."""
        return [(sight.end, sight.glsn) for sight in self.sights if sight.end is not None]

    def violation(self, invariant: str, evidence: str, glsn: int = 0) -> Violation:
        return Violation(invariant, self.log, evidence, glsn)


Checker = Callable[[LogHistory], Iterator[Violation]]


def split(history: History) -> list[LogHistory]:
    """By log."""
    return [_of_log(history, log) for log in history.logs()]


def _of_log(history: History, log: str) -> LogHistory:
    finals = history.of(FinalLog, log)
    return LogHistory(
        log=log,
        appends=history.of(Append, log),
        reads=history.of(Read, log),
        subscriptions=history.of(Subscription, log),
        tails=history.of(Tail, log),
        trims=history.of(Trim, log),
        seals=history.of(Seal, log),
        chains=history.of(Chain, log),
        keeping=next(iter(history.of(Keeping, log)), None),
        finds=history.of(Find, log),
        openings=history.of(Opening, log),
        replicas=history.of(Replica, log),
        expectations=history.of(Expectation, log),
        final=finals[-1] if finals else None,
        hanging=[each for each in history.records if isinstance(each, Operation) and _hangs(each, log)],
    )


def _hangs(operation: Operation, log: str) -> bool:
    return operation.log == log and operation.must_end and operation.end is None


def describe(operation: Operation) -> str:
    """For people: who did what, and when."""
    ended = "never ended" if operation.end_time is None else f"to {operation.end_time:.6f}"
    return f"{operation.client or 'somebody'}'s {_what(operation)} from {operation.start_time:.6f} {ended}"


def _what(operation: Operation) -> str:
    if isinstance(operation, Append):
        batch = operation.payloads[0] if operation.payloads else "nothing"
        more = f" and {len(operation.payloads) - 1} more" if len(operation.payloads) > 1 else ""
        where = f" at {operation.first}..{operation.last}" if operation.outcome == "ack" else f" ({operation.outcome})"
        return f"append of {batch}{more}{where}"
    if isinstance(operation, Read):
        return f"read of {operation.glsn}: {operation.payload or f'{operation.error}({operation.value})'}"
    if isinstance(operation, Subscription):
        only = f" of stream {operation.stream}" if operation.stream else ""
        return f"subscription{only} from position {operation.first}"
    if isinstance(operation, Tail):
        return f"tail: {operation.tail}"
    if isinstance(operation, Trim):
        return f"trim up to {operation.upto}{'' if operation.done else f' ({operation.error})'}"
    if isinstance(operation, Seal):
        return f"seal: {operation.position or operation.error}"
    if isinstance(operation, Chain):
        told = f"segment {operation.segments[-1][0]}" if operation.segments else "refused"
        return f"{'change' if operation.changed else 'look at the chain'}: {told}"
    if isinstance(operation, Find):
        return f"find of {operation.time_us} µs: {operation.glsn}"
    if isinstance(operation, Opening):
        return f"opening of a producer: the log has {', '.join(operation.payloads) or 'nothing new'}"
    return operation.kind


def highest_before(events: list[tuple[int, int]]) -> Callable[[int], int]:
    """From (order, position) pairs, a function: the highest position among those before a given order (0: none)."""
    events = sorted(events)
    orders = [order for order, _ in events]
    highest = [0]
    for _, position in events:
        highest.append(max(highest[-1], position))
    return lambda order: highest[bisect_left(orders, order)]
