"""The event loop of the simulator: asyncio without threads, sockets or waiting, on virtual time.

    ready   ->  callbacks that are due now, first in, first out
    timers  ->  (when, sequence, handle), a heap; equal times leave in the order they came

A step takes the next ready callback; when there is none, the earliest timer is taken and virtual
time jumps to it. So a simulated minute costs only what happens in it, and the order of steps
depends on nothing but the order of calls: no clock, no address, no hash.

What runs belongs to an *owner*, a simulated process (`sim.host`): the context variable `OWNER` is
inherited by all its tasks and callbacks. So a crash finds all tasks of a process, and errors that
nobody handled are charged to the right one. Code of an owner may not use the loop's own
timers: production code has to go through the `Clock` it was handed.

The garbage collector is off during a run: when it would strike depends on what the interpreter did
before, and it runs finalizers.
"""

import asyncio
import gc
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

MAX_STEPS = 20_000_000
"""Steps after which a run is taken for one that never ends."""


LAST_STEPS = 100_000
"""Steps that tasks get to end when the loop is closed."""


class SimulationError(Exception):
    """The run itself failed, not a check of what it did."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and the run is not over."""


class TooManySteps(SimulationError):
    """The run used up its steps: something spins."""


class Defective(SimulationError):
    """An exception that nobody handled; the first one ends the run."""


class Owner(Protocol):
    """A simulated process, as the loop sees it."""

    name: str
    alive: bool


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


@dataclass(frozen=True, slots=True)
class Defect:
    """An exception nobody handled, a task destroyed while pending, and the like."""

    time: float
    owner: str
    message: str
    exception: BaseException | None

    def __str__(self) -> str:
        return f"{self.time:.6f} {self.owner}: {self.message}: {self.exception!r}"


class Handle:
    """A call that is still to come."""

    __slots__ = ("arguments", "callback", "context")

    def __init__(self, callback: Callable[..., Any], arguments: tuple[Any, ...], context: Context) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.arguments = arguments
        self.context = context

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None


class SimulatedLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as code without I/O needs."""

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        self.now = 0.0
        """Virtual seconds since the run began."""
        self.steps = 0
        self.defects: list[Defect] = []
        self._max_steps = max_steps
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = 0
        self._running = False
        self._closed = False
        self._tasks: dict[asyncio.Task[Any], Owner | None] = {}

    # ------------------------------------------------------------ what the simulator's ports use

    def schedule(self, when: float, callback: Callable[..., Any], *arguments: Any, context: Context) -> Handle:
        """Call at virtual time `when`, or now if that has passed."""
        handle = Handle(callback, arguments, context)
        self._sequence += 1
        heappush(self._timers, (max(when, self.now), self._sequence, handle))
        return handle

    def tasks_of(self, owner: Owner) -> "list[asyncio.Task[Any]]":
        """Those that are not done, oldest first."""
        return [task for task, its_owner in self._tasks.items() if its_owner is owner and not task.done()]

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run until `main` is done; raises what it raised, or what stopped the run."""
        task = self.create_task(main)
        task.add_done_callback(_retrieve)
        with self._in_charge():
            self._turn(task)
        return task.result()

    @contextmanager
    def _in_charge(self) -> Iterator[None]:
        """asyncio takes this loop for the running one, and the garbage collector is off."""
        collecting = gc.isenabled()
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        gc.disable()
        sys.set_asyncgen_hooks(finalizer=self._finalize)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def _turn(self, until: "asyncio.Task[Any]") -> None:
        ready, timers, limit = self._ready, self._timers, self._max_steps
        while not until.done():
            if ready:
                handle = ready.popleft()
            elif timers:
                when, _, handle = heappop(timers)
                if handle.callback is not None:
                    self.now = when
            else:
                raise Deadlock(f"at {self.now:.6f} s nothing is left to happen; waiting: {self._waiting()}")
            if handle.callback is None:
                continue
            self.steps += 1
            if self.steps > limit:
                raise TooManySteps(f"over {limit} steps at {self.now:.6f} s, in {handle.callback!r}")
            try:
                handle.context.run(handle.callback, *handle.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - recorded, and ends the run
                self._defect(handle.context.get(OWNER), f"exception in {handle.callback!r}", error)
            if self.defects:
                raise Defective(str(self.defects[0])) from self.defects[0].exception

    def _waiting(self) -> str:
        names = [task.get_name() for task in self._tasks if not task.done()]
        return ", ".join(names[:20]) or "nobody"

    def _defect(self, owner: Owner | None, message: str, error: BaseException | None) -> None:
        if (owner is None or owner.alive) and not self._closed:
            self.defects.append(Defect(self.now, owner.name if owner else "simulator", message, error))

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._closed:
            return  # it was still in memory when the run was over: nothing would ever run the task
        owner = OWNER.get()
        if owner is None or owner.alive:
            self.create_task(_close_generator(generator))

    # ------------------------------------------------------------ what asyncio itself uses

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        owner = OWNER.get()
        if owner is not None:
            error = SimulationError(f"{owner.name} uses the loop's timers instead of its Clock")
            self._defect(owner, "not deterministic", error)
            raise error
        return self.schedule(when, callback, *args, context=copy_context() if context is None else context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Result]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        self._tasks[task] = owner
        task.add_done_callback(self._forget)
        if owner is not None and not owner.alive:
            task.cancel()
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        owner = self._tasks.pop(task, None)
        if owner is not None and not owner.alive:
            _retrieve(task)  # what the dead leave behind is nobody's defect

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._defect(OWNER.get(), context.get("message", "unhandled"), context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Drop everything that was still to come: all tasks are cancelled, and what they do about it is ignored."""
        self._closed = True
        self._timers.clear()
        for task in list(self._tasks):
            abandon(task)
            task.cancel()
        with self._in_charge():
            for _ in range(LAST_STEPS):
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if handle.callback is not None:
                    with suppress(BaseException):
                        handle.context.run(handle.callback, *handle.arguments)
        self._ready.clear()
        self._tasks.clear()


def make_loop(*, max_steps: int = MAX_STEPS) -> SimulatedLoop:
    """A loop. Those parts of the interface that are about sockets, threads and signals it does not have."""
    return SimulatedLoop(max_steps=max_steps)  # type: ignore[abstract]


def abandon(task: "asyncio.Task[Any]") -> None:
    """Let a task be destroyed while pending without a word."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Mark the outcome as seen by somebody."""
    if not task.cancelled():
        task.exception()


async def _close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()
