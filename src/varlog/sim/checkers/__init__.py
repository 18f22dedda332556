"""One checker, one file: each looks at one invariant in the history of one log, in linear time or nearly so."""

from varlog.sim.checkers import (
    agreement,
    atomic,
    chain,
    conditional,
    dense,
    found,
    fresh_tail,
    lanes,
    no_invention,
    no_loss,
    numbers,
    one_value,
    places,
    progress,
    real_time,
    refused,
    sealed,
    subscribers,
    trim,
)
from varlog.sim.checkers.base import Checker, Violation, split
from varlog.sim.history import History

CHECKERS: dict[str, Checker] = {
    "I1": no_loss.check,
    "I2": one_value.check,
    "I3": dense.check,
    "I4": real_time.check,
    "I5": no_invention.check,
    "I6": refused.check,
    "I7": atomic.check,
    "I8": agreement.check,
    "I9": subscribers.check,
    "I10": fresh_tail.check,
    "I11": sealed.check,
    "I12": chain.check,
    "I13": trim.check,
    "I14": progress.check,
    "conditional": conditional.check,
    "find": found.check,
    "lanes": lanes.check,
    "numbers": numbers.check,
    "places": places.check,
}

__all__ = ["CHECKERS", "Violation", "check_history"]


def check_history(history: History) -> list[Violation]:
    """Everything that is wrong with it."""
    return [violation for log in split(history) for check in CHECKERS.values() for violation in check(log)]
