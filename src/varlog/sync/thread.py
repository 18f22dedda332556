"""An event loop on a thread of its own, for callers that do not await."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from varlog.base.errors import ConnectionLost, InvalidArgument, Unavailable, VarlogError
from varlog.client.errors import CLOSED
from varlog.runtime.loop import loop_factory

Result = TypeVar("Result")


class LoopThread:
    """An event loop that runs until it is stopped."""

    def __init__(self) -> None:
        self._loop = loop_factory()()
        self._process = os.getpid()
        self._closed = False
        self._closing = threading.RLock()
        """Held while something is handed to the loop: what was handed over before it is stopped gets its turn."""
        self._thread = threading.Thread(target=self._serve, name="varlog", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self._closed and not self._forked

    @property
    def _forked(self) -> bool:
        """In a process that was forked from the one of the thread: that stayed behind, and so did who held locks."""
        return os.getpid() != self._process

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to its end on the loop's thread and wait for it; when the wait is interrupted, so is the work."""
        try:
            future = self._hand_over(work)
        except VarlogError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError as cancelled:
            raise ConnectionLost(CLOSED) from cancelled  # nothing else cancels what somebody waits for
        except BaseException:
            future.cancel()
            raise

    def _hand_over(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        self.check_usable()
        with self._closing:
            if self._closed:
                raise Unavailable(CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def check_usable(self) -> None:
        """Raises an error where nothing can be waited for; ask before a lock that others hold while they wait."""
        self.check_caller()
        if self._forked:
            raise Unavailable("this connection belongs to the process that this one was forked from: connect anew")

    def check_caller(self) -> None:
        """Raises an error on the loop's own thread: nobody would ever do what is waited for."""
        if threading.current_thread() is self._thread and not self._forked:
            raise InvalidArgument(
                "this call waits for the connection's own thread, on which it was made: in what a future calls when"
                " it is done, hand the work to another thread"
            )

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have something called on the loop's thread, soon."""
        if self._forked:
            return
        with self._closing:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """End the thread; what others wait for ends in `ConnectionLost`."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_what_is_left())
        finally:
            self._loop.close()


async def _end_what_is_left() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
    await asyncio.get_running_loop().shutdown_asyncgens()
