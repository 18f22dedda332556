"""From where to where a read goes: positions, times and words become a range of positions, or a clear error."""

import warnings
from dataclasses import dataclass
from datetime import datetime

from varlog import sync
from varlog.base.errors import InvalidArgument, NotFound, NotWritten, Trimmed
from varlog.client import ArchiveDescription
from varlog.spark.options import Options, Position


class DataLossWarning(UserWarning):
    """Entries were asked for that are trimmed, and left out as `failOnDataLoss=false` wants it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a log has: the positions `[first, end)`, in its archive or on its nodes."""

    log: int
    """Its id."""
    name: str
    first: int
    end: int
    archive: ArchiveDescription | None = None

    def has(self, position: int) -> bool:
        """Also in an archive that does not reach up to what the nodes have."""
        archive = self.archive
        return position >= self.first or (archive is not None and archive.first <= position < archive.stop)


def extent(log: sync.Log) -> Extent:
    """As fresh as this call."""
    info = log.info()
    return Extent(info.id, info.name, info.first, max(log.tail(), info.trimmed) + 1, info.archive)


def check_same(name: str, planned: int, found: int) -> None:
    """Raises `NotFound` if a log has another id than when a read of it was planned."""
    if found != planned:
        raise NotFound(
            f"log {name!r} was removed, and another made under its name (id {planned} when the read was planned, "
            f"{found} now): load the frame anew, or start the query with a new checkpoint"
        )


def find_start(log: sync.Log, known: Extent, options: Options) -> int:
    """Where a read begins. Raises `Trimmed` or `NotWritten` if that lies outside of what there is."""
    start = _position(log, known, options.start)
    if start > known.end:
        raise NotWritten(f"start {start} lies beyond the tail of log {known.name!r}, {known.end - 1}", known.end - 1)
    return not_trimmed(start, known, options)


def find_stop(log: sync.Log, known: Extent, options: Options) -> int:
    """One past the last position of a batch read; without an option, of what there is now."""
    if options.stop is None:
        return known.end
    stop = _position(log, known, options.stop)
    if stop > known.end:
        raise NotWritten(
            f"stop {stop} lies beyond the tail of log {known.name!r}: its last position is {known.end - 1}, "
            f"so stop is at most {known.end}",
            known.end - 1,
        )
    return stop


def find_range(log: sync.Log, options: Options) -> tuple[int, int]:
    """The positions `[start, stop)` of a batch read."""
    if isinstance(options.start, int) and isinstance(options.stop, int) and options.start > options.stop:
        raise InvalidArgument(f"start {options.start} lies behind stop {options.stop}")
    known = extent(log)
    start = find_start(log, known, options)
    return start, max(start, find_stop(log, known, options))


def not_trimmed(start: int, known: Extent, options: Options) -> int:
    """The start, or, where loss is allowed, the first position that is left; says so."""
    if known.has(start):
        return start
    lost = f"positions {start} to {known.first - 1} of log {known.name!r} are trimmed"
    if options.fail_on_data_loss:
        raise Trimmed(f"{lost}: begin at {known.first}, or set failOnDataLoss to false to leave them out", known.first)
    warnings.warn(f"{lost} and are left out", DataLossWarning, stacklevel=2)
    return known.first


def _position(log: sync.Log, known: Extent, wanted: Position) -> int:
    if isinstance(wanted, datetime):
        return log.find(wanted)
    if isinstance(wanted, int):
        return wanted
    return known.first if wanted == "earliest" else known.end
