"""Errors of appends: which are whose fault, and one for each who is told."""

from varlog.base.errors import Conflict, InvalidArgument, TooLarge, Unsupported, VarlogError

OWN_FAULT = (TooLarge, InvalidArgument, Unsupported, Conflict)
"""Refusals that no other stream would answer differently."""

CLOSED = "the connection to the cluster was closed"
"""Why nothing is answered any more, and nothing begun."""


def unsupported(capability: str, ordering: str) -> Unsupported:
    """What a log cannot do is said, never found out by accident."""
    error = Unsupported(f"{capability}: a log with ordering {ordering!r} cannot do it")
    error.capability = capability
    return error


def again(error: VarlogError) -> VarlogError:
    """The same error for another caller: one exception raised in two places would get both their tracebacks."""
    copy = type(error)(error.message, error.value)
    for name, value in vars(error).items():
        setattr(copy, name, value)
    return copy
