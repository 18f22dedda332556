"""A bench that says nothing was lost, doubled or reordered would have seen it."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from bench.load import Load, Placed, problems

import varlog
from varlog.base.ids import Glsn, StreamId


class Kept:
    """Takes appends as a log does; gives positions upwards, or downwards."""

    def __init__(self, step: int) -> None:
        self.placed: Placed = []
        self._step = step

    async def append(self, payload: bytes) -> varlog.Ack:
        position = Glsn(1_000_000 + self._step * len(self.placed))
        self.placed.append((position, payload))
        await asyncio.sleep(0)
        return varlog.Ack(position, position, StreamId(1))


async def written(step: int = 1) -> tuple[Load, Placed]:
    kept = Kept(step)
    load = Load([cast(varlog.Log, kept)], writers=3)
    await load.all_go_on(5)
    await load.stop()
    return load, sorted(kept.placed)


def lose_one(there: Placed) -> Placed:
    return there[:4] + there[5:]


def double_one(there: Placed) -> Placed:
    return [*there, (there[-1][0] + 1, there[4][1])]


def lose_one_and_double_another(there: Placed) -> Placed:
    """As many as before."""
    return [*there[:4], (there[4][0], there[5][1]), *there[5:]]


def exchange_two(there: Placed) -> Placed:
    (first, one), (second, other) = there[3], there[6]
    return [*there[:3], (first, other), *there[4:6], (second, one), *there[7:]]


def read_two_in_another_order(there: Placed) -> Placed:
    return [*there[:3], there[4], there[3], *there[5:]]


CHANGES = [lose_one, double_one, lose_one_and_double_another, exchange_two, read_two_in_another_order]


def test_all_is_well_when_everything_is_where_it_was_acknowledged() -> None:
    load, there = asyncio.run(written())
    assert len(there) >= 15
    assert problems(load, there, along=there) == []


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_log_is_seen(change: Callable[[Placed], Placed]) -> None:
    load, there = asyncio.run(written())
    assert problems(load, change(there))


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_who_got_something_else_is_seen(change: Callable[[Placed], Placed]) -> None:
    load, there = asyncio.run(written())
    (found,) = problems(load, there, along=change(there))
    assert "reader" in found


def test_acknowledged_positions_in_another_order_than_a_writers_are_seen() -> None:
    load, there = asyncio.run(written(step=-1))
    (found,) = problems(load, there)
    assert "another order" in found


def test_what_others_appended_is_compared_too() -> None:
    load, there = asyncio.run(written())
    other = (there[-1][0] + 1, b"meanwhile")
    assert problems(load, [*there, other])
    assert problems(load, there, others=[other])
    assert problems(load, [*there, other], others=[other]) == []
