"""Something done in a process that was forked from the one of the test."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable

CHILD_SECONDS = 60
"""A child that hangs is ended."""


def in_a_fork(work: Callable[[], object]) -> str:
    """What went wrong in a child that did this; nothing if it is empty."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if not child:
        signal.alarm(CHILD_SECONDS)
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        report = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return report if status == 0 else f"{report}it ended with {status}"
