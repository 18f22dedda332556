"""Several are asked again and again until it is enough."""

import asyncio

import pytest

from varlog.base.errors import Timeout, Unavailable
from varlog.runtime.clock import RealClock
from varlog.runtime.polling import FIRST_PAUSE_S, LONGEST_PAUSE_S, Heard, poll
from varlog.runtime.timeout import within


class Hasty(RealClock):
    """Remembers how long it was to sleep, and sleeps for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def never() -> Heard:
    await asyncio.get_running_loop().create_future()
    return Heard.AGAIN


def test_who_is_silent_holds_nobody_up_and_is_asked_no_more() -> None:
    ended: list[str] = []

    async def silent() -> Heard:
        try:
            return await never()
        finally:
            ended.append("silent")

    async def story() -> None:
        async def answer() -> Heard:
            return Heard.ENOUGH

        await poll(RealClock(), [silent, answer], "test")
        assert ended == ["silent"]

    asyncio.run(story())


def test_who_does_not_answer_is_asked_less_and_less_often() -> None:
    clock = Hasty()
    asked: list[int] = []

    async def away() -> Heard:
        asked.append(len(asked))
        if len(asked) < 12:
            raise Unavailable("is away")
        return Heard.ENOUGH

    asyncio.run(poll(clock, [away], "test"))
    assert clock.slept[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == LONGEST_PAUSE_S


def test_who_has_no_more_to_say_is_asked_once() -> None:
    asked: list[str] = []

    async def short() -> Heard:
        asked.append("short")
        return Heard.ALL

    async def long() -> Heard:
        asked.append("long")
        return Heard.ENOUGH if len(asked) == 5 else Heard.AGAIN

    asyncio.run(poll(Hasty(), [short, long], "test"))
    assert asked == ["short"] + 4 * ["long"]


def test_it_is_over_when_nobody_has_more_to_say() -> None:
    async def short() -> Heard:
        return Heard.ALL

    asyncio.run(poll(Hasty(), [short, short], "test"))


def test_it_goes_on_until_who_waits_has_enough_of_it() -> None:
    async def story() -> None:
        with pytest.raises(Timeout):
            await within(RealClock(), 0.02, poll(RealClock(), [never, never], "test"))
        assert len(asyncio.all_tasks()) == 1, "nobody is asked any more"

    asyncio.run(story())


def test_a_defect_is_no_answer_that_is_passed_over() -> None:
    async def broken() -> Heard:
        raise ZeroDivisionError

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await poll(RealClock(), [broken, never], "test")

    asyncio.run(story())
