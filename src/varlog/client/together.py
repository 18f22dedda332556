"""Who asks the same at the same time shares a question, and the load of it.

    A, B ask     ──▶ question 1 leaves ─────────────────▶ answer to A and B
    C asks after that      ──▶ question 2 leaves ────────────────▶ answer to C

Nobody gets the answer to a question that had left before he asked: it may be older than what he wants to know of.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from varlog.client.errors import CLOSED
from varlog.client.limits import GRACE_SECONDS
from varlog.ports import Clock
from varlog.runtime.scope import Scope, result_of
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
        """One that has not left yet. It does in the next turn of the event loop."""
        self._on_their_way = 0
        """Questions that have."""

    @property
    def is_asking(self) -> bool:
        """Whether there is a question that was not answered yet."""
        return self._next is not None or self._on_their_way > 0

    async def ask(self, ask: Ask[Answer], timeout: float) -> Answer:
        """What `ask` returns that was begun after this call; several share it, if they wait for it as long.

        It ends when nobody waits for it any more.
        """
        question = self._next
        if question is None or question.patience + GRACE_SECONDS < timeout:
            question = self._next = _Question(timeout)
            question.answer = self._scope.spawn(self._run(question, ask), name=self._name)
        question.callers += 1
        try:
            # A little more than what the question itself may take: it knows best why it was not answered.
            return await within(self._clock, timeout + GRACE_SECONDS, result_of(question.answer, CLOSED))
        finally:
            question.callers -= 1
            if not question.callers:
                question.answer.cancel()
                self._leaves(question)

    async def _run(self, question: "_Question[Answer]", ask: Ask[Answer]) -> Answer:
        self._leaves(question)
        self._on_their_way += 1
        try:
            return await ask(question.patience)
        finally:
            self._on_their_way -= 1

    def _leaves(self, question: "_Question[Answer]") -> None:
        if self._next is question:
            self._next = None


class _Question(Generic[Answer]):
    """One, for all who wait for it."""

    answer: "asyncio.Task[Answer]"

    def __init__(self, patience: float) -> None:
        self.patience = patience
        """How long it may take, in seconds."""
        self.callers = 0
