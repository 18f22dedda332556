"""What clients did and saw, and what the replicas hold at the end: plain data, one JSON object a line.

The simulator writes it, and so does whoever tortures a real cluster; the checkers read nothing else.
Every operation has a start and an end on one scale of *orders*: integers, all different, earlier is
smaller. In the simulator they come from one counter. Real client processes of one machine write
`start_time` and `end_time` from its monotonic clock instead, and `History.load` makes orders of them,
taking events at the very same time for simultaneous (starts before ends).

Payloads are written as `fingerprint` gives them: an id that is used for one entry only, and the size
and checksum of all bytes, so that an entry with wrong bytes is another payload.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_args

from crc32c import crc32c

_PATTERN = bytes(range(251))

ID_CHARACTERS = 64
"""Longest id in front of a payload."""


def payload_bytes(name: str, padding: int = 0) -> bytes:
    """An entry that says who it is."""
    return f"{name};".encode() + (_PATTERN * (padding // len(_PATTERN) + 1))[:padding]


JUNK = "(junk)"
"""What is at a position that was given up."""


def fingerprint(payload: bytes) -> str:
    """A payload as histories name it."""
    name = payload[:ID_CHARACTERS].split(b";", 1)[0].decode("ascii", "backslashreplace")
    return f"{name}/{len(payload)}/{crc32c(payload):08x}"


@dataclass(slots=True, kw_only=True)
class Operation:
    """What all have. An end of None: it never ended, its client died."""

    kind: ClassVar[str] = ""
    client: str = ""
    log: str = ""
    start: int = 0
    end: int | None = None
    start_time: float = 0.0
    end_time: float | None = None
    error: str = ""
    """Name of the error class, when it ended in one."""
    value: int = 0
    """The integer that the error carried."""
    must_end: bool = False
    """Its client lived on, with all faults over, for longer than it may take."""


@dataclass(slots=True, kw_only=True)
class Append(Operation):
    """One send. Sent again by hand after an unknown outcome, it is another `Append` with the same payloads."""

    kind = "append"
    payloads: list[str] = field(default_factory=list)
    token: str = ""
    """Producer, stream and sequence, where known."""
    expect: int = 0
    """The only position that it may get; 0: any."""
    lane: str = ""
    """Acked sends of one lane are in the log in the order in which they began; empty: no lane."""
    outcome: str = "unknown"
    """ack: in the log. refused: certainly not, now or later. unknown: nobody knows."""
    first: int = 0
    last: int = 0
    stream: int = 0
    """Where it was acked; 0 unless acked."""
    begun_us: int = 0
    """By the wall clock of its client, as is `ended_us`; 0: nobody looked."""
    ended_us: int = 0


@dataclass(slots=True, kw_only=True)
class Read(Operation):
    kind = "read"
    glsn: int = 0
    payload: str | None = None
    """None: it ended in an error."""
    stream: int = 0
    slot: int = -1
    time_us: int = 0


@dataclass(slots=True, kw_only=True)
class Subscription(Operation):
    """One iteration from its start to its end. Errors are those that came out of the iterator."""

    kind = "subscription"
    first: int = 1
    stop: int = 0
    """Ends before this position; 0: never."""
    stream: int = 0
    """Only that stream; 0: all."""
    glsns: list[int] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    """When each was delivered; `times` where there is no counter."""
    times: list[float] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    """What each entry says of itself, like `slots` and `times_us`; empty: nobody looked."""
    slots: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    left: bool = False
    """The subscriber itself had enough before the end."""
    must_catch_up: bool = False
    """It went on after all faults had stopped, long enough to reach the tail."""


@dataclass(slots=True, kw_only=True)
class Tail(Operation):
    kind = "tail"
    tail: int | None = None


@dataclass(slots=True, kw_only=True)
class Trim(Operation):
    kind = "trim"
    upto: int = 0
    done: bool = False
    archived: bool = False
    """What goes from the nodes is in the archive, and stays readable."""


@dataclass(slots=True, kw_only=True)
class Seal(Operation):
    kind = "seal"
    position: int | None = None
    """One past the last position, as it was answered; None: it ended in an error."""
    refused: bool = False
    """In an error that says it was certainly not done."""


@dataclass(slots=True, kw_only=True)
class Chain(Operation):
    """A log's chain as somebody was told it: by a change of the log, or by asking for it."""

    kind = "chain"
    changed: bool = False
    """By this very operation."""
    segments: list[list[int]] = field(default_factory=list)
    """Of each segment: epoch, base, end (0 while it is open). Empty: it ended in an error."""
    streams: list[list[int]] = field(default_factory=list)
    """Of each stream: its id, the epoch of its segment, and its end (-1 while it is open)."""
    orderings: list[str] = field(default_factory=list)
    """Of each segment."""
    trimmed: int = 0


@dataclass(slots=True, kw_only=True)
class Find(Operation):
    kind = "find"
    time_us: int = 0
    glsn: int | None = None
    """None: it ended in an error."""


@dataclass(slots=True, kw_only=True)
class Opening(Operation):
    """A named producer was opened, and told up to which number the log has its batches."""

    kind = "opening"
    payloads: list[str] = field(default_factory=list)
    """Of those batches that it had no Ack for, the first entry each."""


@dataclass(slots=True, kw_only=True)
class Keeping:
    """What a log was told to keep, from its beginning on: the rest may be trimmed by the cluster itself."""

    kind: ClassVar[str] = "keeping"
    log: str = ""
    seconds: float = 0.0
    """0: nothing goes for its age."""
    bytes: int = 0
    """0: nothing goes for its size."""
    archived: bool = False
    """Nothing goes before it is archived: it stays readable."""
    skew_seconds: float = 0.0
    """By how much clocks of clients and repositories may differ."""


@dataclass(slots=True, kw_only=True)
class FinalLog:
    """The whole log as the public client reads it at the end."""

    kind: ClassVar[str] = "final"
    log: str = ""
    trimmed: int = 0
    tail: int = 0
    sealed: bool = False
    glsns: list[int] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    junk: list[int] = field(default_factory=list)
    """Positions that were given up: they hold no entry, and are not among `glsns`."""


@dataclass(slots=True, kw_only=True)
class Replica:
    """What the files of one replica hold at the end."""

    kind: ClassVar[str] = "replica"
    log: str = ""
    segment: int = 1
    stream: int = 0
    node: int = 0
    position: int = 0
    """Among the stream's members: 0 is the primary."""
    state: str = "open"
    """open, sealed, finished or failed; of a failed one nothing else is known."""
    trouble: str = ""
    """Why it failed."""
    excuse: str = ""
    """What its disk did to it, if anything; without it, no replica may fail."""
    unfinished: str = ""
    """Why it need not be finished though its log is sealed; empty: it must."""
    durable: int = 0
    committed: int = 0
    trimmed_slot: int = 0
    trimmed_glsn: int = 0
    first_slot: int = 0
    """Slot of the first entry listed."""
    payloads: list[str] = field(default_factory=list)
    """Of slots from `first_slot` on, up to `durable`."""
    glsns: list[int] = field(default_factory=list)
    """Of slots from `first_slot` on, up to `committed`."""
    times_us: list[int] = field(default_factory=list)
    """Of slots from `first_slot` on, up to `durable`; 0 where there is junk."""


@dataclass(slots=True, kw_only=True)
class Expectation:
    """What must work once faults have stopped (I14)."""

    kind: ClassVar[str] = "expectation"
    log: str = ""
    stream: int = 0
    healed: int = 0
    """Order of the moment when all was well again."""
    healed_time: float = 0.0
    bound: float = 0.0
    """Seconds from then on within which an append must be acked."""
    excuse: str = ""
    """Why this stream need not take appends; empty: it must."""
    any_stream: bool = False
    """Where entries lie clients do not choose: an append to any stream of the log will do."""
    replicas: int = 0
    """How many replicas that work it must have at the end."""
    thin: str = ""
    """Why it may have fewer; empty: it must have them all."""


Record = (
    Append
    | Read
    | Subscription
    | Tail
    | Trim
    | Seal
    | Chain
    | Find
    | Opening
    | Keeping
    | FinalLog
    | Replica
    | Expectation
)
KINDS: dict[str, type[Any]] = {each.kind: each for each in get_args(Record)}
Some = TypeVar("Some", bound=Record)


class History:
    """All records of one run."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)

    def add(self, record: Some) -> Some:
        self.records.append(record)
        return record

    def logs(self) -> list[str]:
        return sorted({record.log for record in self.records})

    def of(self, kind: type[Some], log: str) -> list[Some]:
        return [record for record in self.records if type(record) is kind and record.log == log]

    # ------------------------------------------------------------ as text

    def dump(self) -> Iterator[str]:
        """JSON lines; fields at their defaults are left out."""
        for record in self.records:
            yield dump_record(record)

    @classmethod
    def load(cls, lines: Iterable[str]) -> "History":
        """From JSON lines, of one or of several files; raises ValueError with the line that is wrong."""
        history = cls()
        for number, line in enumerate(lines, 1):
            if line.strip():
                history.add(_load_record(line, number))
        if _without_orders(history.records):
            _order_by_time(history.records)
        return history


def dump_record(record: Record) -> str:
    defaults = {each.name: each.default for each in fields(record)}
    content = {name: value for name, value in asdict(record).items() if value != defaults[name] and value != []}
    return json.dumps({"kind": record.kind, **content}, separators=(",", ":"))


def _load_record(line: str, number: int) -> Record:
    try:
        content = json.loads(line)
        record: Record = KINDS[content.pop("kind")](**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"line {number} of a history: {error!r}: {line[:100]!r}") from error
    return record


def _without_orders(records: list[Record]) -> bool:
    return not any(isinstance(record, Operation) and record.start for record in records)


def _order_by_time(records: list[Record]) -> None:
    """Orders from times: at one time, starts come before ends and deliveries, so that they count as simultaneous."""
    moments: list[tuple[float, int, int, str, int]] = []
    for index, record in enumerate(records):
        if isinstance(record, Operation):
            moments.append((record.start_time, 0, index, "start", 0))
            if record.end_time is not None:
                moments.append((record.end_time, 1, index, "end", 0))
        if isinstance(record, Subscription):
            record.orders = [0] * len(record.times)
            moments += [(time, 1, index, "orders", at) for at, time in enumerate(record.times)]
        if isinstance(record, Expectation):
            moments.append((record.healed_time, 0, index, "healed", 0))
    for order, (_, _, index, name, at) in enumerate(sorted(moments), 1):
        record = records[index]
        if name == "orders":
            assert isinstance(record, Subscription)
            record.orders[at] = order
        else:
            setattr(record, name, order)
