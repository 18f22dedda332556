"""A shared metadata store that is away, hangs or is slow."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sim.world import Small

from varlog.base.errors import NotLeader, OutcomeUnknown, Unavailable
from varlog.ports.metadata import Transaction
from varlog.sim.host import Process
from varlog.sim.metadata import MetadataState, SimulatedMetadata
from varlog.sim.outage import LATE_S, PATIENCE_S

Story = Callable[[Small, MetadataState, SimulatedMetadata], Coroutine[Any, Any, None]]


def play(story: Story, seed: int = 1) -> None:
    small = Small(seed)
    host = small.host("repository", metadata=True)

    async def program(process: Process) -> None:
        assert process.metadata is not None
        assert host.metadata is not None
        await story(small, host.metadata, process.metadata)

    async def main() -> None:
        process = host.start(program)
        assert process.main is not None
        await process.main

    small.run(main())


def end(small: Small, state: MetadataState) -> None:
    state.end_outage(small.loop, small.fabric.context, leases_anew=False)


def test_who_is_refused_has_changed_nothing() -> None:
    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        state.outage.begin(hangs=False)
        for call in (store.commit(Transaction(put={"a": b""})), store.get("a"), store.scan(""), store.grant(1.0)):
            with pytest.raises(Unavailable):
                await call
        end(small, state)
        assert await store.get("a") is None
        assert not store._pending
        assert await store.commit(Transaction(put={"a": b""}))

    play(story)


def test_a_call_waits_for_a_store_that_comes_back_soon() -> None:
    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        state.outage.begin(hangs=True)
        store._process.clock.call_later(PATIENCE_S / 100, end, small, state)
        assert await store.commit(Transaction(put={"a": b"1"}))
        found = await store.get("a")
        assert found is not None
        assert found.value == b"1"

    play(story)


def test_what_was_given_up_may_be_done_late_or_never() -> None:
    done = []

    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        state.outage.begin(hangs=True)
        with pytest.raises(Unavailable):
            await store.get("a")
        with pytest.raises(OutcomeUnknown):
            await store.commit(Transaction(put={"a": b"1"}))
        end(small, state)
        assert await store.get("a") is None
        await store._process.clock.sleep(2 * LATE_S)
        done.append(await store.get("a") is not None)

    for seed in range(20):
        play(story_with(story, seed), seed)
    assert set(done) == {True, False}


def story_with(story: Story, seed: int) -> Story:
    """Outages with a chance of their own."""

    async def seeded(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        state.outage.random.seed(seed)
        await story(small, state, store)

    return seeded


def test_what_comes_late_from_a_former_leader_changes_nothing() -> None:
    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        leadership = await store.elect("repository", "me")
        fenced = store.fenced(leadership)
        for number in range(20):
            state.outage.begin(hangs=True)
            with pytest.raises((OutcomeUnknown, NotLeader)):
                await fenced.commit(Transaction(put={f"a/{number}": b""}))
            state.depose("repository")
            end(small, state)
            await store._process.clock.sleep(2 * LATE_S)
        assert await store.scan("a/") == []

    play(story)


def test_what_is_under_way_when_an_outage_begins_is_done_or_not() -> None:
    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        answered, unknown = [], []

        async def one(number: int) -> None:
            try:
                await store.commit(Transaction(put={f"a/{number:03}": b""}))
                answered.append(f"a/{number:03}")
            except OutcomeUnknown:
                unknown.append(f"a/{number:03}")

        state.in_order = False
        tasks = [asyncio.get_running_loop().create_task(one(number)) for number in range(100)]
        await store._process.clock.sleep(0.0005)
        state.outage.begin(hangs=False)
        for task in tasks:
            await task
        end(small, state)
        found = [key for key, _ in await store.scan("a/")]
        assert set(answered) <= set(found)
        assert unknown
        assert 0 < len(set(unknown) & set(found)) < len(unknown)

    play(story)


def test_a_slow_store_answers_late() -> None:
    async def story(small: Small, state: MetadataState, store: SimulatedMetadata) -> None:
        state.outage.slow = True
        start = small.loop.now
        assert await store.commit(Transaction(put={"a": b""}))
        assert small.loop.now - start > 0.1
        end(small, state)
        start = small.loop.now
        await store.get("a")
        assert small.loop.now - start < 0.1

    play(story)
