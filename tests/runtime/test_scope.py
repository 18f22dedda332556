"""Scopes: order of cancellation, waiting, and errors nobody awaits."""

import asyncio
from typing import Any

import pytest

from varlog.base.errors import Unavailable
from varlog.runtime.scope import Scope, all_of, result_of


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_are_cancelled_oldest_first_and_waited_for() -> None:
    async def main() -> None:
        scope = Scope()
        ended: list[int] = []

        async def work(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await turns(3)
                ended.append(number)

        for number in range(50):
            scope.spawn(work(number), f"work {number}")
        await turns()
        assert len(scope) == 50
        await scope.close()
        assert ended == list(range(50))
        assert len(scope) == 0

    asyncio.run(main())


def test_the_result_of_a_task_can_be_awaited() -> None:
    async def main() -> None:
        async def work() -> int:
            await turns()
            return 7

        assert await Scope().spawn(work(), "work") == 7

    asyncio.run(main())


def test_an_error_nobody_awaits_is_a_defect() -> None:
    async def main() -> None:
        defects: list[BaseException] = []
        scope = Scope(defects.append)

        async def fail() -> None:
            raise ZeroDivisionError

        scope.spawn(fail(), "fail")
        await turns()
        assert [type(defect) for defect in defects] == [ZeroDivisionError]

    asyncio.run(main())


@pytest.mark.parametrize("gathered", [False, True])
def test_an_error_that_is_awaited_is_not_a_defect(gathered: bool) -> None:
    async def main() -> None:
        defects: list[BaseException] = []
        scope = Scope(defects.append)

        async def fail() -> None:
            await turns()
            raise ZeroDivisionError

        task = scope.spawn(fail(), "fail")
        with pytest.raises(ZeroDivisionError):
            await (asyncio.gather(task) if gathered else task)
        await turns()
        assert defects == []

    asyncio.run(main())


def test_by_default_defects_go_to_the_loop() -> None:
    async def main() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

        async def fail() -> None:
            raise ZeroDivisionError

        Scope().spawn(fail(), "fail")
        await turns()
        assert [type(each) for each in told] == [ZeroDivisionError]

    asyncio.run(main())


def test_an_error_while_closing_is_not_lost() -> None:
    async def main() -> None:
        defects: list[BaseException] = []
        scope = Scope(defects.append)

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise ZeroDivisionError

        scope.spawn(work(), "work")
        await turns()
        await scope.close()
        await turns()
        assert [type(defect) for defect in defects] == [ZeroDivisionError]

    asyncio.run(main())


def test_a_closed_scope_starts_nothing() -> None:
    async def main() -> None:
        scope = Scope()
        await scope.close()
        began: list[int] = []

        async def work() -> None:
            began.append(1)

        task = scope.spawn(work(), "work")
        await turns()
        assert task.cancelled()
        assert began == []
        assert scope.closed

    asyncio.run(main())


def test_a_task_may_close_its_own_scope() -> None:
    async def main() -> None:
        scope = Scope()
        seen: list[str] = []

        async def other() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("other ended")

        async def closer() -> None:
            await turns()
            await scope.close()
            seen.append("closed")

        scope.spawn(other(), "other")
        await scope.spawn(closer(), "closer")
        assert seen == ["other ended", "closed"]

    asyncio.run(main())


def test_closing_twice_at_once_is_fine_and_one_that_gives_up_does_not_stop_the_other() -> None:
    async def main() -> None:
        scope = Scope()
        hold = asyncio.Event()

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await hold.wait()

        scope.spawn(stubborn(), "stubborn")
        await turns()
        first, second = asyncio.ensure_future(scope.close()), asyncio.ensure_future(scope.close())
        await turns()
        first.cancel()
        await turns()
        assert first.cancelled()
        assert not second.done()
        hold.set()
        await second

    asyncio.run(main())


def test_works_are_done_at_the_same_time_and_their_results_are_in_order() -> None:
    async def main() -> None:
        events = [asyncio.Event() for _ in range(3)]

        async def work(number: int) -> int:
            if number:
                await events[number].wait()
            if number + 1 < len(events):
                events[number + 1].set()
            return number

        assert await all_of([work(number) for number in reversed(range(3))], "work") == [2, 1, 0]
        nothing: list[int] = await all_of([], "work")
        assert nothing == []

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_first_error_ends_all_works_and_so_does_who_gives_up(cancelled: bool) -> None:
    async def main() -> None:
        ended: list[int] = []
        lost: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))

        async def work(number: int) -> None:
            try:
                await (turns(3) if number == 2 and not cancelled else asyncio.Event().wait())
                raise Unavailable(str(number))
            finally:
                await turns(3)
                ended.append(number)

        working = asyncio.create_task(all_of([work(number) for number in range(4)], "work"))
        await turns(2)
        if cancelled:
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
        else:
            with pytest.raises(Unavailable, match="2"):
                await working
        assert sorted(ended) == [0, 1, 2, 3]
        assert not lost

    asyncio.run(main())


def test_who_gives_up_does_not_end_what_others_wait_for() -> None:
    async def main() -> None:
        scope, go_on = Scope(), asyncio.Event()

        async def work() -> int:
            await go_on.wait()
            return 5

        task = scope.spawn(work(), "work")
        one, other = (asyncio.ensure_future(result_of(task, "closed")) for _ in range(2))
        await turns()
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        go_on.set()
        assert await other == 5

    asyncio.run(main())


@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError()])
def test_an_error_whose_waiters_have_all_given_up_is_reported_if_it_is_a_defect(error: Exception) -> None:
    async def main() -> None:
        defects: list[BaseException] = []
        go_on = asyncio.Event()

        async def fail() -> None:
            await go_on.wait()
            raise error

        task = Scope(defects.append).spawn(fail(), "fail")
        waiting = asyncio.ensure_future(result_of(task, "closed"))
        await turns()
        waiting.cancel()
        await turns()
        go_on.set()
        await turns()
        assert defects == ([] if isinstance(error, Unavailable) else [error])

    asyncio.run(main())


@pytest.mark.parametrize("before", [True, False], ids=["before its first step", "under way"])
def test_the_end_of_a_task_is_no_cancellation_of_who_waits_for_it(before: bool) -> None:
    async def main() -> None:
        scope = Scope()
        if before:
            scope.cancel()
        waiting = asyncio.ensure_future(result_of(scope.spawn(asyncio.Event().wait(), "work"), "closed"))
        await asyncio.sleep(0)
        scope.cancel()
        with pytest.raises(Unavailable, match="closed"):
            await waiting

    asyncio.run(main())


def test_who_is_cancelled_together_with_what_he_waits_for_is_cancelled() -> None:
    async def main() -> None:
        scope = Scope()
        waiting = asyncio.ensure_future(result_of(scope.spawn(asyncio.Event().wait(), "work"), "closed"))
        await turns()
        scope.cancel()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
