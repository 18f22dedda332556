"""Capabilities that a log is pinned to: no change may take them away, whoever asks for it."""

from collections.abc import Iterable

from varlog.base.errors import InvalidArgument, Unsupported
from varlog.core.capabilities import CAPABILITIES, KNOWN, capabilities
from varlog.wire.proto import varlog_pb2 as pb


def pinned_after(log: pb.LogInfo, message: pb.ReconfigureLogRequest) -> list[str]:
    """What a log is pinned to once a change is carried out."""
    gone = checked_pins(message.unpin)
    kept = [name for name in log.pinned if name not in gone]
    return checked_pins([*kept, *message.pin])


def checked_pins(names: Iterable[str]) -> list[str]:
    """Sorted, each once; raises if there is no such capability."""
    found = sorted(dict.fromkeys(names))
    unknown = [name for name in found if name not in KNOWN]
    if unknown:
        raise InvalidArgument(f"there is no capability {', '.join(unknown)}; there are {', '.join(KNOWN)}")
    return found


def refuse_loss(pinned: Iterable[str], ordering: str, streams: int, *, journal: bool) -> None:
    """Raises `Unsupported` if a log of this kind lacks what it is pinned to."""
    there = capabilities(ordering, streams=streams, journal=journal)
    for name in pinned:
        if name not in there:
            kind = "a journal" if journal else f"ordering {ordering!r} with {streams} stream{'s' * (streams > 1)}"
            able = " or ".join(each for each in CAPABILITIES if name in capabilities(each))
            error = Unsupported(
                f"the log is pinned to {name}, which {kind} does not have: choose {able}, or do without the pin"
            )
            error.capability = name
            raise error
