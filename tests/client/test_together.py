"""Who asks the same at the same time shares a question; nobody gets the answer to one that left before he asked."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tests.servers import run
from tests.soon import soon
from tests.transport.pipe import ManualClock

from varlog.base.errors import NotFound, Timeout, Unavailable
from varlog.client import together
from varlog.client.limits import SUPERSEDED_SECONDS
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
        questions.answers[0].set_result(None)
        assert await asyncio.gather(*early) == [0, 0, 0]
        await soon()
        assert not any(asking.done() for asking in late), "it had left before they asked"
        questions.answers[1].set_result(None)
        assert await asyncio.gather(*late) == [1, 1, 1]
        assert not questions.together.is_asking

    tell(story)


def test_who_waits_is_content_with_a_later_answer() -> None:
    async def story(questions: Questions) -> None:
        asking = []
        for _ in range(2):
            asking.append(questions.ask())
            await soon()
        questions.answers[1].set_result(None)
        assert await asyncio.gather(*asking) == [1, 1]
        await soon()
        assert questions.answers[0].cancelled(), "nobody waits for it any more"
        assert not questions.together.is_asking

    tell(story)


def test_a_question_may_take_as_long_as_any_who_shares_it_waits() -> None:
    async def story(questions: Questions) -> None:
        asking = [questions.ask(seconds) for seconds in (0.01, PATIENT_S, PATIENT_S / 2)]
        with pytest.raises(Timeout):
            await asking[0]
        assert questions.patience == pytest.approx([PATIENT_S], abs=1.0)
        questions.answers[0].set_result(None)
        assert await asyncio.gather(*asking[1:]) == [0, 0]

    tell(story)


def test_however_many_ask_one_after_the_other_two_questions_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SUPERSEDED_SECONDS", PATIENT_S)

    async def story(questions: Questions) -> None:
        asking = []
        for _ in range(10):
            asking.append(questions.ask())
            await soon()
        assert len(questions.answers) == 2
        questions.answers[0].set_result(None)
        await soon()
        assert len(questions.answers) == 3
        assert [each.done() for each in asking] == [True] + 9 * [False]
        questions.answers[1].set_result(None)
        await soon()
        assert len(questions.answers) == 3, "nobody has asked since the third left"
        questions.answers[2].set_result(None)
        assert await asyncio.gather(*asking) == [0, 1] + 8 * [2]
        assert not questions.together.is_asking

    tell(story)


def test_questions_that_take_long_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the oldest waits for the newest instead; what a question has grows, so that one is answered."""

    async def story(questions: Questions) -> None:
        clock = questions.together._clock = ManualClock()
        asking = []
        for _ in range(3):
            asking.append(questions.ask())
            await soon()
        assert len(questions.answers) == 2
        await clock.advance(SUPERSEDED_SECONDS)
        assert [answer.cancelled() for answer in questions.answers] == [True, False, False]
        asking.append(questions.ask())
        await soon()
        await clock.advance(SUPERSEDED_SECONDS)
        assert len(questions.answers) == 3, "it has twice the time"
        await clock.advance(1.5 * SUPERSEDED_SECONDS)
        assert [answer.cancelled() for answer in questions.answers] == [True, True, False, False]
        questions.answers[2].set_result(None)
        assert await asyncio.gather(*asking[:3]) == [2, 2, 2]
        await soon()
        assert not asking[3].done()
        questions.answers[3].set_result(None)
        assert await asking[3] == 3
        assert not questions.together.is_asking

    tell(story)


def test_who_has_much_time_keeps_it_when_another_question_takes_the_place_of_his() -> None:
    async def story(questions: Questions) -> None:
        clock = questions.together._clock = ManualClock()
        patient = questions.ask(PATIENT_S)
        await soon()
        others = [questions.ask(1.0)]
        await soon()
        others.append(questions.ask(1.0))
        await soon()
        await clock.advance(SUPERSEDED_SECONDS)
        assert [answer.cancelled() for answer in questions.answers] == [True, False, False]
        assert questions.patience == pytest.approx([PATIENT_S, 1.0, PATIENT_S - SUPERSEDED_SECONDS])
        questions.answers[2].set_result(None)
        assert await asyncio.gather(patient, *others) == [2, 2, 2]

    tell(story)


def test_once_a_question_was_answered_the_next_one_waits_no_longer_than_at_first() -> None:
    async def story(questions: Questions) -> None:
        clock = questions.together._clock = ManualClock()
        asking = []
        for _ in range(4):
            asking.append(questions.ask())
            await soon()
            await clock.advance(2 * SUPERSEDED_SECONDS)
        assert questions.together._time > SUPERSEDED_SECONDS
        questions.answers[-1].set_result(None)
        assert await asyncio.gather(*asking) == 4 * [len(questions.answers) - 1]
        left = len(questions.answers)
        asking = []
        for _ in range(3):
            asking.append(questions.ask())
            await soon()
        assert len(questions.answers) == left + 2
        await clock.advance(SUPERSEDED_SECONDS)
        assert len(questions.answers) == left + 3
        questions.answers[-1].set_result(None)
        assert await asyncio.gather(*asking) == 3 * [left + 2]

    tell(story)


def test_an_error_is_for_those_alone_who_wait_for_that_question() -> None:
    async def story(questions: Questions) -> None:
        early = questions.ask()
        await soon()
        late = [questions.ask() for _ in range(2)]
        await soon()
        questions.answers[1].set_exception(NotFound("there is no such log"))
        for waiting in late:
            with pytest.raises(NotFound):
                await waiting
        questions.answers[0].set_result(None)
        assert await early == 0

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
