"""The event loop of a real process: uvloop where it is installed, asyncio's own where not."""

import asyncio
import signal
import sys
import threading
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
    interrupted: list[int] = []
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            return runner.run(_interruptible(work, interrupted))
        except asyncio.CancelledError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise


async def _interruptible(work: Coroutine[Any, Any, Result], interrupted: list[int]) -> Result:
    """SIGINT cancels `work`. The loop itself takes the signal: one that comes while it sleeps is not overlooked."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        interrupted.append(signal.SIGINT)
        if task is not None:
            task.cancel()

    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await work
    finally:
        if on_main_thread:
            loop.remove_signal_handler(signal.SIGINT)
