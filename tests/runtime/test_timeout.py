"""Deadlines on a clock."""

import asyncio

import pytest
from tests.transport.pipe import ManualClock, settle

from varlog.base.errors import Timeout
from varlog.runtime.timeout import deadline, within


def test_what_ends_in_time_is_left_alone() -> None:
    async def main() -> None:
        clock = ManualClock()

        async def work() -> int:
            return 3

        assert await within(clock, 1, work()) == 3
        assert clock.armed == 0

    asyncio.run(main())


def test_what_takes_too_long_is_cancelled_and_told_so() -> None:
    async def main() -> None:
        clock = ManualClock()
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        task = asyncio.create_task(within(clock, 2, work()))
        await settle()
        await clock.advance(1.9)
        assert not task.done()
        await clock.advance(0.2)
        with pytest.raises(Timeout, match="2 s"):
            await task
        assert seen == ["cancelled"]
        assert not task.cancelled()

    asyncio.run(main())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def main() -> None:
        clock = ManualClock()
        task = asyncio.create_task(within(clock, 2, asyncio.Event().wait()))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clock.armed == 0

    asyncio.run(main())


def test_both_at_once_is_a_cancellation() -> None:
    async def main() -> None:
        clock = ManualClock()
        task = asyncio.create_task(within(clock, 2, asyncio.Event().wait()))
        await settle()
        task.cancel()
        for _, _, timer in list(clock._timers):
            assert timer.callback is not None
            timer.callback()  # rings in the same turn
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_another_error_is_not_hidden() -> None:
    async def main() -> None:
        clock = ManualClock()

        async def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await within(clock, 2, fail())
        assert clock.armed == 0

    asyncio.run(main())


def test_deadlines_nest() -> None:
    async def main() -> None:
        clock = ManualClock()

        async def work() -> str:
            async with deadline(clock, 10):
                try:
                    async with deadline(clock, 1) as inner:
                        await asyncio.Event().wait()
                except Timeout:
                    assert inner.expired
                    await clock.sleep(5)
                    return "inner only"
            return "not reached"

        task = asyncio.create_task(work())
        await settle()
        await clock.advance(7)
        assert await task == "inner only"

        outer = asyncio.create_task(within(clock, 1, within(clock, 10, asyncio.Event().wait())))
        await settle()
        await clock.advance(1)
        with pytest.raises(Timeout, match="1 s"):
            await outer
        assert clock.armed == 0

    asyncio.run(main())


def test_a_deadline_that_has_already_passed() -> None:
    async def main() -> None:
        clock = ManualClock()
        task = asyncio.create_task(within(clock, 0, asyncio.Event().wait()))
        await settle()
        await clock.advance(0)
        with pytest.raises(Timeout):
            await task

    asyncio.run(main())


def test_a_deadline_needs_a_task() -> None:
    coroutine = deadline(ManualClock(), 1).__aenter__()
    loop = asyncio.new_event_loop()
    failed: list[BaseException] = []

    def step() -> None:
        try:
            coroutine.send(None)
        except RuntimeError as error:
            failed.append(error)
        loop.stop()

    loop.call_soon(step)
    loop.run_forever()
    loop.close()
    assert "task" in str(failed[0])
