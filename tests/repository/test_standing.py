"""Who is not to be counted on for a while."""

import asyncio

from tests.transport.pipe import ManualClock

from varlog.base.ids import NodeId
from varlog.repository.standing import FIRST_S, LONGEST_S, POOR_HEAD_S, SAME_S, Standing

ONE, OTHER = NodeId(1), NodeId(2)


def test_each_mishap_within_a_while_counts_for_longer_than_the_one_before() -> None:
    async def story() -> None:
        clock = ManualClock()
        standing = Standing(clock)
        assert not standing.is_shaky(ONE)
        for lasts in (FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S, LONGEST_S, LONGEST_S):
            standing.mishap(ONE)
            await clock.advance(lasts - 0.01)
            assert standing.is_shaky(ONE)
            await clock.advance(0.02)
            assert not standing.is_shaky(ONE)
        assert not standing.is_shaky(OTHER)
        await clock.advance(10 * LONGEST_S)
        standing.mishap(ONE)
        await clock.advance(FIRST_S)
        assert not standing.is_shaky(ONE), "a first one again"

    asyncio.run(story())


def test_what_befalls_many_replicas_of_a_node_at_once_is_one_mishap() -> None:
    async def story() -> None:
        clock = ManualClock()
        standing = Standing(clock)
        for _ in range(9):  # logs are healed one after the other
            standing.mishap(ONE)
            await clock.advance(SAME_S / 2)
        await clock.advance(FIRST_S - SAME_S / 2 - 0.01)
        assert standing.is_shaky(ONE)
        await clock.advance(0.02)
        assert not standing.is_shaky(ONE)
        for _ in range(2):
            standing.mishap(ONE)
        await clock.advance(2 * FIRST_S - 0.01)
        assert standing.is_shaky(ONE), "it had another before"
        await clock.advance(0.02)
        assert not standing.is_shaky(ONE)

    asyncio.run(story())


def test_who_lost_a_lead_is_counted_on_and_leads_after_others_for_a_while() -> None:
    async def story() -> None:
        clock = ManualClock()
        standing = Standing(clock)
        standing.lost_lead(ONE)
        assert not standing.is_shaky(ONE)
        assert (standing.is_poor_head(ONE), standing.is_poor_head(OTHER)) == (True, False)
        await clock.advance(POOR_HEAD_S + 0.01)
        assert not standing.is_poor_head(ONE)

    asyncio.run(story())


def test_who_was_removed_begins_anew() -> None:
    standing = Standing(ManualClock())
    standing.mishap(ONE)
    standing.lost_lead(ONE)
    standing.forget(ONE)
    assert not standing.is_shaky(ONE)
    assert not standing.is_poor_head(ONE)
