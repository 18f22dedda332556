"""I12. The chain never forks: epochs grow by one, segments adjoin, and an end, once recorded, never changes.

A replica that is finished has the slots that the chain records for its stream, no more and no less.

And I11 for its streams, and so for its segments: what was begun after a stream had ended is not in it.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe
from varlog.sim.history import Chain


def check(history: LogHistory) -> Iterator[Violation]:
    told = [chain for chain in history.chains if chain.segments]
    for chain in told:
        yield from _adjoins(history, chain)
    yield from _ends_stay(history, told)
    yield from _epochs_stay(history, told)
    yield from _finished_there(history, told)
    yield from _nothing_behind(history, told)


def _adjoins(history: LogHistory, chain: Chain) -> Iterator[Violation]:
    for index, (epoch, base, end) in enumerate(chain.segments):
        before = chain.segments[index - 1] if index else [0, 1, 1]
        if epoch != index + 1 or base != before[2]:
            yield history.violation("I12", f"{describe(chain)}: segment {epoch} from {base} on comes behind {before}")
        if not end and index < len(chain.segments) - 1:
            yield history.violation("I12", f"{describe(chain)}: segment {epoch} has no end, and another behind it")


def _ends_stay(history: LogHistory, told: list[Chain]) -> Iterator[Violation]:
    """Of segments and of streams."""
    known: dict[tuple[str, int], tuple[int, Chain]] = {}
    for chain in told:
        ends = {("segment", epoch): end for epoch, _, end in chain.segments if end}
        ends |= {("stream", stream): end for stream, _, end in chain.streams if end >= 0}
        for what, end in ends.items():
            first, by = known.setdefault(what, (end, chain))
            if first != end:
                evidence = f"ends at {end} by {describe(chain)}, at {first} by {describe(by)}"
                yield history.violation("I12", f"{what[0]} {what[1]} {evidence}")


def _epochs_stay(history: LogHistory, told: list[Chain]) -> Iterator[Violation]:
    """What was answered before a question was asked is not forgotten; an answer given to a change least of all."""
    answered = sorted((chain.end, len(chain.segments)) for chain in told if chain.end is not None and chain.changed)
    for chain in told:
        before = max((count for end, count in answered if end < chain.start), default=0)
        if chain.changed and len(chain.segments) < before:
            yield history.violation("I12", f"{describe(chain)}, but before it segment {before} was there")


def _finished_there(history: LogHistory, told: list[Chain]) -> Iterator[Violation]:
    """A stream of whose end nobody was told is not judged: it may have ended since anybody asked."""
    ends = {stream: end for chain in told for stream, _, end in chain.streams if end >= 0}
    for replica in history.replicas:
        end = ends.get(replica.stream, replica.durable)
        if replica.state == "finished" and replica.durable != end:
            where = f"stream {replica.stream} on node {replica.node}"
            evidence = f"{where} is finished with {replica.durable} slots, but by the chain it ends at {end}"
            yield history.violation("I12", evidence)


def _nothing_behind(history: LogHistory, told: list[Chain]) -> Iterator[Violation]:
    """An append that begins after its stream has ended goes elsewhere; a repetition may find its place.

    Anybody may have been told that end: once on record it never moves, and nothing sent later is before it.
    """
    ended: dict[int, tuple[int, Chain]] = {}
    for chain in told:
        for stream, _, end in chain.streams:
            known = ended.get(stream)
            if end >= 0 and chain.end is not None and (known is None or chain.end < known[0]):
                ended[stream] = (chain.end, chain)
    begun: dict[str, int] = {}
    for append in history.appends:
        for payload in append.payloads[:1]:
            begun[payload] = min(append.start, begun.get(payload, append.start))
    for append in history.acks():
        if append.payloads and append.stream in ended:
            moment, chain = ended[append.stream]
            if begun[append.payloads[0]] > moment:
                evidence = f"{describe(append)} is in stream {append.stream}, which had ended by {describe(chain)}"
                yield history.violation("I11", evidence)
