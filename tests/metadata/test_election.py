"""Leading in the simulated store: paused leaders, and leaders that are deposed without being told."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sim.world import Small

from varlog.base.errors import InvalidArgument, NotLeader, Unavailable
from varlog.metadata.election import HELD_SHARE, leader_of
from varlog.ports.election import leader_key
from varlog.ports.metadata import Transaction
from varlog.sim.host import Host, Process
from varlog.sim.metadata import MetadataState, SimulatedMetadata

Body = Callable[[Small, MetadataState, Callable[[str, float], tuple[Host, Process, SimulatedMetadata]]], Any]


def simulated(body: Body) -> None:
    """Several processes on hosts of their own, one store."""
    small = Small()
    shared = small.host("store", metadata=True)
    state = shared.metadata
    assert state is not None

    async def forever(process: Process) -> None:
        await process.stopping

    def start(name: str, rate: float = 1.0) -> tuple[Host, Process, SimulatedMetadata]:
        host = small.host(name, rate=rate)
        process = host.start(forever)
        return host, process, SimulatedMetadata(state, small.loop, process)

    small.run(body(small, state, start))


async def within(process: Process, work: Coroutine[Any, Any, Any]) -> Any:
    return await process.spawn(work, "test")


def test_an_election_needs_a_name() -> None:
    with pytest.raises(InvalidArgument):
        leader_key("")


@pytest.mark.parametrize("clock_stops", [False, True])
def test_a_leader_that_is_paused_for_longer_than_its_lease_is_deposed(clock_stops: bool) -> None:
    async def body(small: Small, state: MetadataState, start: Any) -> None:
        host, one, store = start("one")
        _, two, other = start("two")
        first = await within(one, store.elect("cuts", "one"))
        waiting = two.spawn(other.elect("cuts", "two"), "two")
        await asyncio.sleep(10 * state.lease_s)
        assert first.held  # it is renewed
        assert not waiting.done()
        host.pause(clock_stops=clock_stops)
        second = await waiting
        assert second.term > first.term
        assert await within(two, other.fenced(second).commit(Transaction(put={"a": b"2"})))
        host.resume()
        with pytest.raises(NotLeader):
            await within(one, store.fenced(first).commit(Transaction(put={"a": b"1"})))
        assert state.data["a"].value == b"2"

    simulated(body)


async def unreachable(lease: int) -> float:
    raise Unavailable("the store is away")


@pytest.mark.parametrize("rate", [0.85, 1.0, 1.15])
def test_a_leader_stops_believing_in_itself_before_another_can_lead(rate: float) -> None:
    async def body(small: Small, state: MetadataState, start: Any) -> None:
        _, one, store = start("one", rate)
        _, two, other = start("two")
        first = await within(one, store.elect("cuts", "one"))
        waiting = two.spawn(other.elect("cuts", "two"), "two")
        await asyncio.sleep(1.0)
        store.renew = unreachable
        began = small.loop.now
        while first.held:
            await asyncio.sleep(0.01)
        assert small.loop.now - began > HELD_SHARE * state.lease_s / 2
        assert not waiting.done()
        assert (await waiting).held

    simulated(body)


def test_a_leader_deposed_by_the_store_notices() -> None:
    async def body(small: Small, state: MetadataState, start: Any) -> None:
        _, one, store = start("one")
        first = await within(one, store.elect("cuts", "one"))
        assert state.depose("cuts")
        assert not state.depose("cuts")
        assert first.held  # nobody has told it
        with pytest.raises(NotLeader):
            await within(one, store.fenced(first).commit(Transaction(put={"a": b"1"})))
        second = await within(one, store.elect("cuts", "one"))
        assert state.depose("cuts")
        await within(one, second.wait_lost())  # its next renewal does
        assert await within(one, leader_of(store, "cuts")) is None
        assert "a" not in state.data

    simulated(body)


def test_a_leader_that_crashed_is_followed_by_another() -> None:
    async def body(small: Small, state: MetadataState, start: Any) -> None:
        host, one, store = start("one")
        _, two, other = start("two")
        await within(one, store.elect("cuts", "one"))
        waiting = two.spawn(other.elect("cuts", "two"), "two")
        await asyncio.sleep(1.0)
        host.crash()
        began = small.loop.now
        await waiting
        assert small.loop.now - began < 1.5 * state.lease_s

    simulated(body)
