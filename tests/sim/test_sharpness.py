"""Whole runs with a fault that one check alone can see: what the run records reaches the checker."""

import asyncio
from typing import Any

import pytest

from varlog.base.errors import Conflict, Unavailable
from varlog.base.ids import Glsn, Slot
from varlog.client import Entry, Log, Subscription, reconfigure
from varlog.client.errors import unsupported
from varlog.node.sequencer import Sequencer
from varlog.repository.healer import Healer
from varlog.sim.bugs.registry import swap
from varlog.sim.run import run_seed

SHORT = 4
"""A seed that takes two tenths of a second."""
NAMED = (27, 98)
"""Seeds under `sequencer`, in which clients name positions."""


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
    ("seeds", "evidence"),
    [
        ((402,), "at the end the log cannot be read"),  # a node drains, and without it there are too few for a segment
        ((117, 244, 443), "has whole copies, and cannot be read"),  # of what came behind it the end is lost
    ],
)
def test_what_is_whole_must_be_readable(seeds: tuple[int, ...], evidence: str) -> None:
    """Where one of several seeds is to show it, any may lose the situation to a change of timing."""
    plain = Log.subscribe

    def subscribe(self: Log, start: int | None = 1, stop: int | None = None, **more: Any) -> Subscription:
        if stop is not None:
            raise Unavailable("nobody has it")
        return plain(self, start, stop, **more)

    with swap(Log, subscribe=subscribe):
        results = [run_seed(seed) for seed in seeds]
    assert all(result.invariants == ["I14"] for result in results)
    assert any(evidence in each.evidence for result in results for each in result.violations)


def test_streams_that_nothing_follows() -> None:
    """They have ended, so nobody can ask them for anything; but their log is to have as many as it wants."""
    with swap(Healer, _wanted=lambda *_: 0):
        result = run_seed(184)  # a node is lost for good
    assert result.invariants == ["I14"]
    assert "0 of the 3 streams it wants are open" in result.violations[0].evidence


def test_a_change_that_was_not_done() -> None:
    """Its answer was lost, and a node: the cluster itself began the next segment, with the settings as they were."""
    with swap(reconfigure, is_done=lambda *_: True):
        results = [run_seed(seed) for seed in (93, 300, 399)]
    assert {name for result in results for name in result.invariants} == {"change"}
    assert all("asked for was" in each.evidence for result in results for each in result.violations)


def test_a_counter_that_goes_ahead() -> None:
    """Who names the next position is told of a Conflict, though nobody else was there."""
    plain = Sequencer.grant

    def grant(self: Sequencer, count: int, expect: int | None) -> tuple[Glsn, int]:
        if expect == self.granted:
            raise Conflict("taken", expect)
        return plain(self, count, expect)

    with swap(Sequencer, grant=grant):
        results = [run_seed(seed) for seed in NAMED]
    assert {name for result in results for name in result.invariants} == {"conditional"}
    assert any("was free all the while" in each.evidence for result in results for each in result.violations)


def test_an_ordering_that_is_said_to_be_the_old_one() -> None:
    async def refuse(self: Log, capability: str, timeout: float | None) -> None:
        raise unsupported(capability, "cut")

    with swap(Log, _refuse=refuse):
        results = [run_seed(seed) for seed in NAMED]
    assert {name for result in results for name in result.invariants} == {"conditional"}
