"""An ordered set of tasks with one owner: nothing runs on unseen, nothing fails unheard.

`asyncio.TaskGroup` keeps its tasks in a set, whose order follows memory addresses; here tasks are
cancelled in the order of their creation, so that a simulated run is the same run every time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from varlog.base.errors import Unavailable, VarlogError

Result = TypeVar("Result")
OnDefect = Callable[[BaseException], None]


def report_defect(error: BaseException) -> None:
    """What happens to an error that nobody else takes: the event loop's exception handler gets it."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"an error nobody waits for: {error!r}", "exception": error}
    )


class Scope:
    """Tasks that live no longer than their owner.

    A task whose exception nobody awaits hands it to `on_defect`. Somebody counts as awaiting when he
    does so at the moment the task ends; who comes later finds the exception too, but it was reported.
    """

    def __init__(self, on_defect: OnDefect | None = None) -> None:
        self._on_defect: OnDefect = on_defect or report_defect
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def closed(self) -> bool:
        return self._closed

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Run `work` as a task of this scope; in a closed scope it is cancelled before its first step."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        if self._closed:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel every task, oldest first, and take no more; does not wait, see `close`.

        A task that calls this itself is spared: it ends when it returns.
        """
        self._closed = True
        for task in self._others():
            task.cancel()

    async def close(self) -> None:
        """Cancel every task, oldest first, and wait until all (but the caller's own) have ended."""
        self.cancel()
        while self._others():
            self._waiter = self._waiter or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)

    def _others(self) -> list[asyncio.Task[Any]]:
        current = asyncio.current_task()
        return [task for task in self._tasks if task is not current]

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None
        if not task.cancelled() and task._log_traceback:
            # Those who await the task are woken in this turn of the loop; look again behind them.
            task.get_loop().call_soon(self._report, task)

    def _report(self, task: asyncio.Task[Any]) -> None:
        if task._log_traceback:
            error = task.exception()
            if error is not None:
                self._on_defect(error)


async def all_of(works: Sequence[Coroutine[Any, Any, Result]], name: str) -> list[Result]:
    """The results of works that are done at the same time; the first error ends the others, and they are waited for."""
    scope = Scope()
    tasks = [scope.spawn(work, name) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await scope.close()


async def result_of(task: "asyncio.Task[Result]", ended: str) -> Result:
    """The result of a task that others wait for, too: who gives up does not end it.

    Its owner may: that is `Unavailable` for all who wait, with `ended` as its reason. They were not cancelled.
    """
    waiting = asyncio.current_task()
    before = waiting.cancelling() if waiting is not None else 0
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() and waiting is not None and waiting.cancelling() == before:
            raise Unavailable(ended) from None
        task.add_done_callback(_heed)
        raise


def _heed(task: "asyncio.Task[Result]") -> None:
    """Those who wait get its error themselves, and all may have given up: only a defect is left to be reported."""
    if not task.cancelled() and isinstance(task._exception, VarlogError):
        task.exception()
