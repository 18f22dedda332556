"""Whole runs with a fault that one check alone can see: what the run records reaches the checker."""

import asyncio
from typing import Any

import pytest

from varlog.base.errors import Unavailable
from varlog.base.ids import Slot
from varlog.client import Entry, Log, Subscription
from varlog.repository.healer import Healer
from varlog.sim.bugs.registry import swap
from varlog.sim.run import run_seed

SHORT = 4
"""A seed that takes two tenths of a second."""


def test_a_read_that_names_another_slot() -> None:
    plain = Log.read

    async def read(self: Log, glsn: int, *, timeout: float | None = None) -> Entry:
        entry = await plain(self, glsn, timeout=timeout)
        return entry._replace(slot=Slot(entry.slot + 1))

    with swap(Log, read=read):
        assert run_seed(SHORT).invariants == ["places"]


def test_a_read_that_never_ends() -> None:
    async def read(self: Log, glsn: int, *, timeout: float | None = None) -> Entry:
        never: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        return await never

    with swap(Log, read=read):
        result = run_seed(SHORT)
    assert result.invariants == ["I14"]
    assert "never ended" in result.violations[0].evidence


@pytest.mark.parametrize(
    ("seed", "evidence"),
    [
        (402, "at the end the log cannot be read"),  # a node drains, and without it there are too few for a segment
        (467, "a segment from 1 to 153 has whole copies, and cannot be read"),  # what came behind it is lost
    ],
)
def test_what_is_whole_must_be_readable(seed: int, evidence: str) -> None:
    plain = Log.subscribe

    def subscribe(self: Log, start: int | None = 1, stop: int | None = None, **more: Any) -> Subscription:
        if stop is not None:
            raise Unavailable("nobody has it")
        return plain(self, start, stop, **more)

    with swap(Log, subscribe=subscribe):
        result = run_seed(seed)
    assert result.invariants == ["I14"]
    assert all(evidence in each.evidence for each in result.violations)


def test_streams_that_nothing_follows() -> None:
    """They have ended, so nobody can ask them for anything; but their log is to have as many as it wants."""
    with swap(Healer, _wanted=lambda *_: 0):
        result = run_seed(184)  # a node is lost for good
    assert result.invariants == ["I14"]
    assert "0 of the 3 streams it wants are open" in result.violations[0].evidence
