"""A process whose main work is the log: what it asks of its interpreter, its allocator and the system.

A library must not do so unasked, since all of it holds for the whole process. Servers do; an application may.
"""

import gc

from varlog.runtime.memory import keep_memory
from varlog.runtime.turns import ask_for_short_turns

YOUNG_OBJECTS = 50_000
"""How many more are made than freed before garbage is looked for: requests leave no cycles behind."""


def tune_process() -> None:
    """Make this process quicker at appending and reading, for the rest of its life. Call it when it is set up.

    Memory of batches is kept for the next ones, garbage is looked for less often and not in what is there
    already, and the scheduler is asked for turns that are short and soon. Where the system has no such thing, nothing
    happens.
    """
    keep_memory()
    ask_for_short_turns()
    spare_the_collector()


def spare_the_collector() -> None:
    """What is there now stays to the end; looking through it again and again would cost every request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
