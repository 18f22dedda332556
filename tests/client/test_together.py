"""Who asks the same at the same time shares a question; nobody gets the answer to one that left before he asked."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tests.servers import run
from tests.soon import soon

from varlog.base.errors import Timeout, Unavailable
from varlog.client.together import Together
from varlog.runtime.clock import RealClock
from varlog.runtime.scope import Scope

PATIENT_S = 60.0


class Questions:
    """What has left, each with the time it may take; they are answered by hand, with their numbers."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.together: Together[int] = Together(RealClock(), self.scope, "test")
        self.patience: list[float] = []
        self.answers: list[asyncio.Future[None]] = []

    def ask(self, timeout: float = PATIENT_S) -> "asyncio.Task[int]":
        return asyncio.ensure_future(self.together.ask(self._ask, timeout))

    async def _ask(self, timeout: float) -> int:
        number = len(self.answers)
        self.patience.append(timeout)
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[number]
        return number


def tell(story: Callable[[Questions], Coroutine[None, None, None]]) -> None:
    async def told() -> None:
        questions = Questions()
        await story(questions)
        await questions.scope.close()

    run(told())


def test_who_asks_at_once_shares_a_question_and_who_comes_later_gets_another() -> None:
    async def story(questions: Questions) -> None:
        early = [questions.ask() for _ in range(3)]
        await soon()
        late = [questions.ask() for _ in range(3)]
        await soon()
        assert len(questions.answers) == 2
        questions.answers[1].set_result(None)
        assert await asyncio.gather(*late) == [1, 1, 1]
        questions.answers[0].set_result(None)
        assert await asyncio.gather(*early) == [0, 0, 0]
        assert not questions.together.is_asking

    tell(story)


def test_who_waits_longer_asks_anew_and_who_waits_less_long_shares() -> None:
    async def story(questions: Questions) -> None:
        asking = [questions.ask(seconds) for seconds in (0.01, PATIENT_S, PATIENT_S / 2)]
        await soon()
        assert questions.patience == [0.01, PATIENT_S]
        with pytest.raises(Timeout):
            await asking[0]
        questions.answers[1].set_result(None)
        assert await asyncio.gather(*asking[1:]) == [1, 1]

    tell(story)


def test_a_question_ends_when_nobody_waits_for_it_any_more() -> None:
    async def story(questions: Questions) -> None:
        asking = [questions.ask() for _ in range(2)]
        await soon()
        asking[0].cancel()
        await soon()
        assert not questions.answers[0].done()
        asking[1].cancel()
        await soon()
        assert questions.answers[0].cancelled()
        assert not questions.together.is_asking

    tell(story)


def test_when_the_client_is_closed_those_who_wait_are_told() -> None:
    async def story(questions: Questions) -> None:
        asking = questions.ask()
        await soon()
        await questions.scope.close()
        for waiting in (asking, questions.ask(), questions.ask()):
            with pytest.raises(Unavailable, match="closed"):
                await waiting
        assert not questions.together.is_asking

    tell(story)
