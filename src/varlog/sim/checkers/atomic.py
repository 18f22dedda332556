"""I7. Atomic batch: all of a batch or none of it, at consecutive positions, in its order."""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe


def check(history: LogHistory) -> Iterator[Violation]:
    """What the trim point has cut through is judged by what is left."""
    if history.final is None:
        return
    for append in history.appends:
        places = [history.found.get(payload, 0) for payload in append.payloads]
        there = [place for place in places if place]
        if not there:
            continue
        start = there[-1] - len(places) + 1
        expected = [glsn if glsn > history.trimmed else 0 for glsn in range(start, start + len(places))]
        if places != expected:
            yield history.violation("I7", f"the entries of {describe(append)} are at {places}, not together")
        elif history.final.streams and _several_streams(history, there):
            yield history.violation("I7", f"the entries of {describe(append)} are in several streams")


def _several_streams(history: LogHistory, places: list[int]) -> bool:
    return len({history.stream_at[glsn] for glsn in places if glsn in history.stream_at}) > 1
