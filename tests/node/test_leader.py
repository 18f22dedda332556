"""What a leader commits, and when it stops."""

import asyncio
from types import SimpleNamespace
from typing import Any

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.node.leader import Leader
from varlog.transport.world import real_world


def test_once_sealed_a_leader_acknowledges_nothing_more() -> None:
    """Where the segment ends is told by how far it was (I11); a backup that was not sealed may still answer."""

    async def story() -> None:
        released: list[int] = []
        log = SimpleNamespace(durable=Slot(10), sealed=False)
        replica: Any = SimpleNamespace(log=log, on_sync=[], leads=0, release=lambda _, upto: released.append(upto))
        leader = Leader(replica, [NodeId(2), NodeId(3)], 2, real_world().clock, lambda _: None)
        leader.begin(Glsn(1))
        leader.has(NodeId(2), Slot(4))
        assert released == [4]
        log.sealed = True
        leader.has(NodeId(2), Slot(9))
        for callback in replica.on_sync:
            callback()
        assert (released, leader.committed) == ([4], 4)

    asyncio.run(story())


def test_committed_never_moves_back() -> None:
    """An answer that comes late, or a member that has lost its end, takes nothing back."""

    async def story() -> None:
        released: list[int] = []
        log = SimpleNamespace(durable=Slot(10), sealed=False)
        replica: Any = SimpleNamespace(log=log, on_sync=[], leads=0, release=lambda _, upto: released.append(upto))
        leader = Leader(replica, [NodeId(2), NodeId(3)], 2, real_world().clock, lambda _: None)
        leader.begin(Glsn(1))
        for tail in (6, 2, 0):
            leader.has(NodeId(2), Slot(tail))
        leader.has(NodeId(3), Slot(5))
        for callback in replica.on_sync:
            callback()
        assert (released, leader.committed) == ([6], 6)

    asyncio.run(story())


def test_what_is_stored_before_the_base_is_known_is_committed_with_it() -> None:
    async def story() -> None:
        released: list[tuple[int, int]] = []
        replica: Any = SimpleNamespace(
            log=SimpleNamespace(durable=Slot(3), sealed=False),
            on_sync=[],
            leads=0,
            release=lambda base, upto: released.append((base, upto)),
        )
        leader = Leader(replica, [NodeId(2)], 2, real_world().clock, lambda _: None)
        leader.has(NodeId(2), Slot(3))
        assert not released
        leader.begin(Glsn(50))
        leader.begin(Glsn(50))
        assert released == [(50, 3)]

    asyncio.run(story())
