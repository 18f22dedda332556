"""The event loop of a real process: uvloop where it is installed, asyncio's own where not."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run(work: Coroutine[Any, Any, Result], *, switch_interval: float | None = None) -> Result:
    """Run `work` to its end on the best loop there is.

    A busy loop starves threads that wait for the interpreter: a process that syncs files in a thread
    sets `switch_interval` (seconds) low, so that the thread gets its turn soon.
    """
    if switch_interval is not None:
        sys.setswitchinterval(switch_interval)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
