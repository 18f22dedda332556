"""Who asks the same at the same time shares a question, and the load of it.

    A, B ask     ──▶ question 1 leaves ─────────────────▶ answer to A and B
    C asks after that      ──▶ question 2 leaves ────────────────▶ answer to C, and to A and B if they still wait
    D, E ask after that              (waits) ──▶ question 3 leaves when one of these ends, or has had its time

Nobody gets the answer to a question that had left before he asked: it may be older than what he wants to know of. One
that left later is as good as his own. So two under way are enough: when neither ends for a while, those who came
meanwhile ask a third, who waits for the oldest waits for that one instead, and the oldest ends.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from varlog.base.errors import Timeout, Unavailable, VarlogError
from varlog.client.errors import CLOSED
from varlog.client.limits import GRACE_SECONDS, QUESTIONS_UNDER_WAY, SHORTEST_ATTEMPT_SECONDS, SUPERSEDED_SECONDS
from varlog.ports import Clock
from varlog.ports.clock import Timer
from varlog.runtime.scope import Scope, report_defect
from varlog.runtime.timeout import within

Answer = TypeVar("Answer")
Ask = Callable[[float], Coroutine[Any, Any, Answer]]


class Together(Generic[Answer]):
    """The ways to one answer."""

    def __init__(self, clock: Clock, scope: Scope, name: str) -> None:
        self._clock = clock
        self._scope = scope
        self._name = name
        self._next: _Question[Answer] | None = None
        """One that has not left yet. Where there is room it does in the next turn of the event loop."""
        self._under_way: list[_Question[Answer]] = []
        """Those that have, the oldest first."""
        self._number = 0
        """Of the last question."""
        self._time = SUPERSEDED_SECONDS
        """What the newest has before another leaves all the same. Longer each time that happens, until one ends by
        itself: else questions that take longer would never come to an end."""
        self._timer: Timer | None = None

    @property
    def is_asking(self) -> bool:
        """Whether there is a question that was not answered yet."""
        return self._next is not None or bool(self._under_way)

    async def ask(self, ask: Ask[Answer], timeout: float) -> Answer:
        """What `ask` returns that was begun after this call; several share it. It may take as long as any of them
        waits, and ends when nobody does any more."""
        question = self._next
        if question is None:
            self._number += 1
            question = self._next = _Question(ask, self._number)
        question.until = max(question.until, self._clock.now() + timeout)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        question.callers[answer] = question.number
        self._send()
        try:
            # A little more than what the question itself may take: it knows best why it was not answered.
            return await within(self._clock, timeout + GRACE_SECONDS, answer)
        except Timeout:
            if answer.cancelled():  # others have more time, and so has the question
                raise Timeout(f"{self._name}: not answered in {timeout:.3g} s") from None
            raise
        finally:
            self._leave(answer)

    # ------------------------------------------------------------ questions come and go

    def _send(self) -> None:
        """Let the next one leave, if there is room, or else make room if it is time."""
        question = self._next
        if question is None or question.task is not None:
            return
        if len(self._under_way) >= QUESTIONS_UNDER_WAY:
            wait = self._under_way[-1].left_at + self._time - self._clock.now()
            if wait > SHORTEST_ATTEMPT_SECONDS:
                self._timer = self._timer or self._clock.call_later(wait, self._time_is_up)
                return
            self._time *= 2
            question.take_over(self._under_way.pop(0))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        question.task = self._scope.spawn(self._run(question), name=self._name)
        question.task.add_done_callback(partial(self._ended, question))

    def _time_is_up(self) -> None:
        self._timer = None
        self._send()

    async def _run(self, question: "_Question[Answer]") -> Answer:
        self._next = None
        self._under_way.append(question)
        question.left_at = self._clock.now()
        return await question.ask(max(0.0, question.until - question.left_at))

    def _leave(self, caller: "asyncio.Future[Answer]") -> None:
        """He was answered, or waits no longer."""
        if caller.done() and not caller.cancelled():
            caller.exception()  # he may have been told just when he gave up
        for question in self._unanswered():
            if question.callers.pop(caller, None) is not None and not question.callers:
                self._end(question)

    def _end(self, question: "_Question[Answer]") -> None:
        """Nobody waits for it any more."""
        self._forget(question)
        if question.task is not None:
            question.task.cancel()
        self._send()

    def _forget(self, question: "_Question[Answer]") -> None:
        if question is self._next:
            self._next = None
        elif question in self._under_way:
            self._under_way.remove(question)

    def _unanswered(self) -> "list[_Question[Answer]]":
        return [*self._under_way] if self._next is None else [*self._under_way, self._next]

    # ------------------------------------------------------------ answers

    def _ended(self, question: "_Question[Answer]", task: "asyncio.Task[Answer]") -> None:
        self._forget(question)
        callers, question.callers = [*question.callers], {}
        if task.cancelled():
            # Not by us, if there are any.
            _tell(callers, lambda caller: caller.set_exception(Unavailable(CLOSED)))
        elif error := task.exception():
            _tell(callers, lambda caller: caller.set_exception(error))
            if not callers and not isinstance(error, VarlogError):
                report_defect(error)
        else:
            for each in self._unanswered():
                callers += [caller for caller, first in each.callers.items() if first <= question.number]
            _tell(callers, lambda caller: caller.set_result(task.result()))
        if not task.cancelled():
            self._time = SUPERSEDED_SECONDS
        self._send()


class _Question(Generic[Answer]):
    """One, for all who wait for it."""

    def __init__(self, ask: Ask[Answer], number: int) -> None:
        self.ask = ask
        self.number = number
        self.callers: dict[asyncio.Future[Answer], int] = {}
        """Who waits for it, and which was the first question that left after he asked."""
        self.until = 0.0
        """Nobody waits longer."""
        self.task: asyncio.Task[Answer] | None = None
        """Once it leaves."""
        self.left_at = 0.0

    def take_over(self, older: "_Question[Answer]") -> None:
        """Who waits for that one waits for this."""
        self.callers.update(older.callers)
        self.until = max(self.until, older.until)
        older.callers = {}
        if older.task is not None:
            older.task.cancel()


def _tell(callers: "list[asyncio.Future[Answer]]", how: "Callable[[asyncio.Future[Answer]], None]") -> None:
    for caller in callers:
        if not caller.done():
            how(caller)
