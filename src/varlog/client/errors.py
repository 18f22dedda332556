"""Errors of appends: which are whose fault, and one for each who is told."""

from varlog.base.errors import InvalidArgument, TooLarge, Unsupported, VarlogError

OWN_FAULT = (TooLarge, InvalidArgument, Unsupported)
"""Refusals that no other stream would answer differently."""


def again(error: VarlogError) -> VarlogError:
    """The same error for another caller: one exception raised in two places would get both their tracebacks."""
    copy = type(error)(error.message, error.value)
    for name, value in vars(error).items():
        setattr(copy, name, value)
    return copy
