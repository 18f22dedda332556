"""Processes: clocks, pauses, and that the dead do nothing."""

import asyncio
from contextlib import suppress

import pytest
from tests.sim.world import Small, idle

from varlog.sim.host import STOP_SECONDS, Process
from varlog.sim.loop import Defective


def test_clocks_drift_apart() -> None:
    small = Small()
    fast, slow = small.host("fast", rate=1.25), small.host("slow", rate=0.8)
    woken: list[tuple[str, float]] = []

    async def sleeper(process: Process) -> None:
        await process.world.clock.sleep(1.0)
        woken.append((process.host.name, small.loop.now))

    async def main() -> None:
        fast.start(sleeper)
        slow.start(sleeper)
        await asyncio.sleep(3)

    small.run(main())
    assert [name for name, _ in woken] == ["fast", "slow"]
    assert [when for _, when in woken] == [pytest.approx(0.8), pytest.approx(1.25)]


@pytest.mark.parametrize(("clock_stops", "expected"), [(True, 5.0), (False, 4.5)])
def test_a_paused_process_gets_its_timers_later(clock_stops: bool, expected: float) -> None:
    small = Small()
    host = small.host("a")
    woken: list[float] = []

    async def sleeper(process: Process) -> None:
        await process.world.clock.sleep(1.0)
        woken.append(small.loop.now)

    async def main() -> None:
        host.start(sleeper)
        await asyncio.sleep(0.5)
        host.pause(clock_stops=clock_stops)
        await asyncio.sleep(4.0)
        host.resume()
        await asyncio.sleep(2.0)

    small.run(main())
    assert woken == [pytest.approx(expected)]


def test_the_loops_own_timers_are_forbidden_to_processes() -> None:
    small = Small()
    host = small.host("a")

    async def cheat(process: Process) -> None:
        await asyncio.sleep(1)

    async def main() -> None:
        host.start(cheat)
        await asyncio.sleep(1)

    with pytest.raises(Defective, match="instead of its Clock"):
        small.run(main())


def test_an_unhandled_error_of_a_process_names_it() -> None:
    small = Small()
    host = small.host("culprit")

    async def fail(process: Process) -> None:
        process.world.clock.call_later(1.0, lambda: 1 // 0)

    async def main() -> None:
        host.start(fail)
        await asyncio.sleep(2)

    with pytest.raises(Defective, match="culprit#1"):
        small.run(main())


def test_the_last_words_of_the_dead_reach_nobody() -> None:
    """Finally-blocks run, but every port is dead, and what they raise or start is nobody's defect."""
    small = Small()
    host = small.host("a")
    reached: list[str] = []

    async def late() -> None:
        reached.append("a task made after death ran")

    async def stubborn(process: Process) -> None:
        disk = process.disks[0]
        file = await disk.open("f", create=True)
        try:
            await process.world.clock.sleep(100)
        finally:
            process.world.clock.call_later(0.1, reached.append, "timer")
            process.spawn(late(), "late")
            with suppress(asyncio.CancelledError):
                await process.world.clock.sleep(1)
                reached.append("sleep")
            with suppress(asyncio.CancelledError):
                await file.write(0, [b"from the grave"], sync=True)
                reached.append("write")
            raise ValueError("nobody hears this")

    async def main() -> None:
        host.start(stubborn)
        await asyncio.sleep(1)
        host.crash(power_loss=False)
        await asyncio.sleep(5)

    small.run(main())
    assert reached == []
    assert host.platters[0].file("f").data == b""


def test_lives_are_counted_and_one_at_a_time() -> None:
    small = Small()
    host = small.host("a")

    async def main() -> None:
        first = host.start(idle)
        with pytest.raises(RuntimeError):
            host.start(idle)
        host.crash()
        assert not first.alive
        second = host.start(idle)
        assert (first.name, second.name) == ("a#1", "a#2")
        assert first.world.random.random() != second.world.random.random()

    small.run(main())


@pytest.mark.parametrize("obedient", [True, False])
def test_a_program_told_to_stop_gets_some_time_for_it(obedient: bool) -> None:
    small = Small()
    host = small.host("a")

    async def serve(process: Process) -> None:
        await process.stopping
        await process.clock.sleep(1.0 if obedient else 1000.0)
        small.loop.call_soon(host.end, process)

    async def main() -> float:
        host.start(serve)
        await asyncio.sleep(1.0)
        await host.stop()
        return small.loop.now

    assert small.run(main()) == pytest.approx(2.0 if obedient else 1.0 + STOP_SECONDS)
    assert not host.up


def test_who_waits_for_a_program_to_end_is_cancelled_also_in_the_moment_in_which_it_dies() -> None:
    """A host that is lost for good is not started again by who had told it to stop."""
    small = Small()
    host = small.host("a")

    async def slow(process: Process) -> None:
        await process.clock.sleep(1000.0)

    async def main() -> None:
        host.start(slow)
        await asyncio.sleep(1.0)
        stopping = asyncio.ensure_future(host.stop())
        await asyncio.sleep(0.01)
        host.crash()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping

    small.run(main())
