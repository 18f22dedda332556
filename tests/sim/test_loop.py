"""The simulated event loop: order, virtual time, and the ways a run can fail."""

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import copy_context
from pathlib import Path

import pytest

from varlog.sim.loop import Deadlock, Defective, TooManySteps, make_loop


def test_time_jumps_to_the_next_timer() -> None:
    loop = make_loop()

    async def main() -> float:
        await asyncio.sleep(3600)
        return loop.now

    assert loop.run(main()) == 3600


def test_equal_times_leave_in_the_order_they_came() -> None:
    loop = make_loop()
    order: list[int] = []

    async def main() -> None:
        for number in range(50):
            loop.schedule(1.0, order.append, number, context=copy_context())
        await asyncio.sleep(2)

    loop.run(main())
    assert order == list(range(50))


def test_a_time_that_has_passed_is_now() -> None:
    loop = make_loop()
    seen: list[float] = []

    async def main() -> None:
        await asyncio.sleep(5)
        loop.schedule(1.0, lambda: seen.append(loop.now), context=copy_context())
        await asyncio.sleep(1)

    loop.run(main())
    assert seen == [5.0]


def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    loop = make_loop()
    seen: list[float] = []

    async def main() -> None:
        handle = loop.schedule(1.0, lambda: seen.append(loop.now), context=copy_context())
        handle.cancel()
        await asyncio.sleep(2)

    loop.run(main())
    assert seen == []
    assert loop.steps < 10


def test_gather_locks_queues_and_events_work() -> None:
    loop = make_loop()

    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock, ready = asyncio.Lock(), asyncio.Event()

        async def produce() -> None:
            await ready.wait()
            for number in range(3):
                async with lock:
                    await queue.put(number)

        async def consume() -> list[int]:
            ready.set()
            return [await queue.get() for _ in range(3)]

        _, got = await asyncio.gather(produce(), consume())
        return got

    assert loop.run(main()) == [0, 1, 2]


def test_what_main_raises_comes_out() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise ValueError("so it goes")

    with pytest.raises(ValueError, match="so it goes"):
        make_loop().run(main())


def test_nothing_left_to_happen_is_a_deadlock() -> None:
    loop = make_loop()

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock):
        loop.run(main())
    loop.close()


def test_spinning_is_noticed() -> None:
    loop = make_loop(max_steps=1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TooManySteps):
        loop.run(main())
    loop.close()


def test_an_exception_in_a_callback_ends_the_run() -> None:
    loop = make_loop()

    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(Defective, match="ZeroDivisionError"):
        loop.run(main())
    loop.close()


def test_a_task_whose_exception_nobody_takes_ends_the_run() -> None:
    loop = make_loop()

    async def fail() -> None:
        raise KeyError("nobody listens")

    async def main() -> None:
        task = loop.create_task(fail())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(1)

    with pytest.raises(Defective, match="nobody listens"):
        loop.run(main())
    loop.close()


def test_an_abandoned_generator_is_closed() -> None:
    loop = make_loop()
    closed: list[float] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(1)
            closed.append(loop.now)

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    loop.run(main())
    assert closed == [1.0]


def test_a_generator_that_outlives_its_loop_is_left_alone() -> None:
    loop = make_loop()
    kept: list[AsyncGenerator[int, None]] = []

    async def numbers() -> AsyncGenerator[int, None]:
        while True:
            yield 1

    async def main() -> None:
        kept.append(numbers())
        await anext(kept[0])

    loop.run(main())
    loop.close()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        kept.clear()
        gc.collect()
    assert not found


SCRIPT = """
import asyncio, random
from varlog.sim.loop import make_loop
loop, chance, order = make_loop(), random.Random(7), []
async def walk(name):
    for _ in range(20):
        await asyncio.sleep(chance.random())
        order.append(name)
async def main():
    await asyncio.gather(*(walk(name) for name in "abcdefgh"))
loop.run(main())
print("".join(order), loop.steps, loop.now.hex())
"""


def test_a_run_does_not_depend_on_hash_seeds() -> None:
    source = str(Path(__file__).resolve().parents[2] / "src")

    def output(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True).stdout

    assert output("1") == output("2")
