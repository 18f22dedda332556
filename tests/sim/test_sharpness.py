"""Whole runs with a fault that one check alone can see: what the run records reaches the checker."""

import asyncio

from varlog.base.ids import Slot
from varlog.client import Entry, Log
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
