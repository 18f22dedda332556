"""The event loop and clock of a real process."""

import asyncio
import sys

import pytest

from varlog.runtime.clock import RealClock
from varlog.runtime.loop import loop_factory, run


def test_the_result_and_the_error_of_the_work_come_back() -> None:
    async def work() -> str:
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    async def fail() -> None:
        raise ZeroDivisionError

    loop = loop_factory()()
    expected = type(loop).__module__.partition(".")[0]
    loop.close()
    assert run(work()) == expected
    with pytest.raises(ZeroDivisionError):
        run(fail())


def test_without_uvloop_asyncios_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is asyncio.new_event_loop


def test_the_switch_interval_is_set_only_when_asked_for() -> None:
    async def interval() -> float:
        return sys.getswitchinterval()

    before = sys.getswitchinterval()
    try:
        assert run(interval()) == before
        assert run(interval(), switch_interval=1e-4) == pytest.approx(1e-4)
    finally:
        sys.setswitchinterval(before)


def test_the_real_clock_goes_on_and_rings() -> None:
    async def main() -> None:
        clock = RealClock()
        rung: list[str] = []
        before, wall = clock.now(), clock.wall_us()
        clock.call_later(0.001, rung.append, "rung")
        clock.call_later(0.001, rung.append, "never").cancel()
        await clock.sleep(0.02)
        assert rung == ["rung"]
        assert clock.now() - before >= 0.019
        assert clock.wall_us() > wall > 1_600_000_000_000_000

    run(main())
