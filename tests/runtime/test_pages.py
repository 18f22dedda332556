"""When written pages are let go, and which."""

import asyncio
import os
from pathlib import Path

import pytest

from varlog.runtime import disk, pages
from varlog.runtime.disk import RealDisk
from varlog.runtime.pages import FIRST_REST_BYTES, KEEP_BYTES, LARGE_BYTES, STEP_BYTES, TRIAL_BYTES, WORTH, PageCache

SIZE = 1 << 20
DEAR = 1e-3
CHEAP = DEAR * WORTH * 0.9
STEPS_KEPT = KEEP_BYTES // STEP_BYTES


class Recorded:
    def __init__(self) -> None:
        self.gone: list[tuple[int, int]] = []

    def let_go(self, start: int, end: int) -> None:
        self.gone.append((start, end))


def write(cache: PageCache, size: int, seconds: float) -> None:
    """So much in large writes, each of which takes so long."""
    for _ in range(size // SIZE):
        cache.wrote(SIZE, seconds)


def dear_cache() -> PageCache:
    cache = PageCache()
    write(cache, TRIAL_BYTES, DEAR)
    write(cache, 2 * TRIAL_BYTES, CHEAP)
    assert cache.settled
    return cache


def write_steps(cache: PageCache, file: Recorded, first: int, count: int) -> None:
    for number in range(first, first + count):
        cache.passed(file, number * STEP_BYTES, (number + 1) * STEP_BYTES)


def test_letting_go_is_tried_and_stays_if_it_pays() -> None:
    cache = PageCache()
    write(cache, TRIAL_BYTES - SIZE, DEAR)
    assert not cache.lets_go
    write(cache, SIZE, DEAR)
    assert cache.lets_go
    write(cache, TRIAL_BYTES, DEAR)  # what is let go by now is used only from now on
    assert cache.lets_go
    assert not cache.settled
    write(cache, TRIAL_BYTES, CHEAP)
    assert cache.lets_go
    assert cache.settled
    write(cache, 10 * TRIAL_BYTES, 2 * DEAR)
    assert cache.lets_go


def test_what_does_not_pay_is_given_up_and_tried_again_later_and_later() -> None:
    cache = PageCache()
    for rest in (FIRST_REST_BYTES, 2 * FIRST_REST_BYTES, 4 * FIRST_REST_BYTES):
        write(cache, TRIAL_BYTES if rest == FIRST_REST_BYTES else 0, DEAR)
        assert cache.lets_go
        write(cache, 2 * TRIAL_BYTES, DEAR)
        assert not cache.lets_go
        write(cache, rest - TRIAL_BYTES, DEAR)
        assert not cache.lets_go
        write(cache, TRIAL_BYTES, DEAR)
    write(cache, 2 * TRIAL_BYTES, CHEAP)
    assert cache.settled


def test_small_writes_tell_nothing() -> None:
    cache = PageCache()
    for _ in range(2 * TRIAL_BYTES // LARGE_BYTES):
        cache.wrote(LARGE_BYTES - 1, DEAR)
    assert not cache.lets_go


def test_where_pages_cost_nothing_the_kernel_keeps_all() -> None:
    cache, file = PageCache(), Recorded()
    write_steps(cache, file, 0, 10 * STEPS_KEPT)
    cache.closes(file)
    assert file.gone == []


def test_the_oldest_go_first_over_all_files() -> None:
    cache, old, new = dear_cache(), Recorded(), Recorded()
    write_steps(cache, old, 0, 2)
    write_steps(cache, new, 0, STEPS_KEPT - 2)
    assert (old.gone, new.gone) == ([], [])
    write_steps(cache, new, STEPS_KEPT - 2, 3)
    assert old.gone == [(0, STEP_BYTES), (STEP_BYTES, 2 * STEP_BYTES)]
    assert new.gone == [(0, STEP_BYTES)]


def test_a_file_that_is_closed_goes_as_a_whole_and_counts_no_more() -> None:
    cache, closed, other = dear_cache(), Recorded(), Recorded()
    write_steps(cache, closed, 0, 3)
    write_steps(cache, other, 0, 1)
    cache.closes(closed)
    assert closed.gone == [(0, 3 * STEP_BYTES)]
    write_steps(cache, other, 1, STEPS_KEPT - 1)
    assert other.gone == []


def test_a_real_file_lets_go_what_is_written_and_reads_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = 1 << 16
    monkeypatch.setattr(disk, "STEP_BYTES", step)
    monkeypatch.setattr(pages, "KEEP_BYTES", 2 * step)
    advised: list[tuple[int, int]] = []

    def advise(fd: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        advised.append((offset, offset + length))
        os.fstat(fd)  # it is still open
        if len(advised) == 2:
            raise OSError("advice that the kernel does not take")

    monkeypatch.setattr(os, "posix_fadvise", advise)

    async def main() -> None:
        real = RealDisk(tmp_path)
        real.pages.lets_go = True
        file = await real.open("data", create=True)
        for number in range(10):
            await file.write(number * step // 2, [bytes([number]) * (step // 2)], sync=True)
        data = bytes(await file.read(0, 5 * step))
        file.close()
        assert await real.list("") == ["data"]  # behind what the helper was given
        assert file.fd < 0
        real.close()
        assert data == b"".join(bytes([number]) * (step // 2) for number in range(10))

    asyncio.run(main())
    assert advised == [(0, step), (step, 2 * step), (2 * step, 4 * step)]
