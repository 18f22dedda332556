"""An event loop on a thread of its own, for callers that do not await."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from varlog.base.errors import InvalidArgument, Unavailable
from varlog.runtime.loop import loop_factory

Result = TypeVar("Result")


class LoopThread:
    """An event loop that runs until it is stopped."""

    def __init__(self) -> None:
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="varlog", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to its end on the loop's thread and wait for it; when the wait is interrupted, so is the work."""
        try:
            self._check()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _check(self) -> None:
        """Raises an error if nobody would ever do what is waited for."""
        if threading.current_thread() is self._thread:
            raise InvalidArgument(
                "this call waits for the connection's own thread, on which it was made: in what a future calls when"
                " it is done, hand the work to another thread"
            )
        if not self.alive:
            raise Unavailable("the connection to the cluster was closed")

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have something called on the loop's thread, soon."""
        if self.alive:
            self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
