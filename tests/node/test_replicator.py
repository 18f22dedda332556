"""Copying to one backup of a leader, with a scripted peer: what comes back at an awkward moment."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from varlog.base.errors import Gap, NoSpace, Unavailable, VarlogError
from varlog.base.ids import Epoch, LogId, NodeId, ReplicaId, StreamId
from varlog.core.replica import ReplicaState
from varlog.node import copier
from varlog.node.replicator import Replicator
from varlog.transport.world import real_world
from varlog.wire.proto import varlog_pb2 as pb


class Peer:
    """Keeps what it is sent; whoever plays the backup answers by hand."""

    def __init__(self) -> None:
        self.writable = True
        self.closed_error: VarlogError | None = None
        self.sent: list[tuple[int, list[bytes], asyncio.Future[Any]]] = []
        self.room = asyncio.Event()

    def waking(self, _: asyncio.Event) -> AbstractContextManager[None]:
        return nullcontext()

    async def drained(self) -> None:
        await self.room.wait()

    def start_call(
        self,
        _: object,
        header: bytes,
        body: list[bytes],
        timeout: float,
        answered: Callable[["asyncio.Future[Any]"], None],
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(answered)
        self.sent.append((pb.StoreRequest.FromString(header).slot, [bytes(each) for each in body], answer))
        return answer

    async def call(self, _: object, __: pb.StoreRequest, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(message=pb.ReplicaStatus(state=pb.REPLICA_OPEN))


class Stage:
    """A replicator between a replica of which everything is on disk, and a peer."""

    def __init__(self, slots: int, away: bool = False) -> None:
        self.peer = Peer()
        self._away = away
        self.reads: list[asyncio.Future[None]] = []
        log = SimpleNamespace(durable=slots, appended=slots, read=self._read)
        self.replica: Any = SimpleNamespace(
            id=ReplicaId(LogId(1), Epoch(1), StreamId(1)),
            spec=pb.ReplicaSpec(),
            on_group=[],
            on_sync=[],
            on_end=[],
            state=ReplicaState.OPEN,
            log=log,
            recent=lambda _: None,
            trouble="",
        )
        leader: Any = SimpleNamespace(base=1, committed=0, tell=[], has=lambda *_: None)
        connect: Any = self._connect
        replica: Any = self.replica
        replicator = Replicator(replica, NodeId(2), connect, real_world().clock, 1, leader)
        self.task = asyncio.create_task(replicator.run())

    async def _connect(self, _: NodeId) -> Peer:
        if self._away:
            raise Unavailable("it is away")
        return self.peer

    async def _read(self, start: int, _: int, __: int) -> SimpleNamespace:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads.append(gate)
        await gate
        return SimpleNamespace(end=start + 10, data=b"from slot %d" % start)

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def play(story: Callable[[Stage], Awaitable[None]], slots: int, *, away: bool = False) -> None:
    async def run() -> None:
        stage = Stage(slots, away)
        try:
            await stage.turns()
            await story(stage)
        finally:
            stage.task.cancel()

    asyncio.run(run())


def test_what_was_read_is_not_sent_for_another_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup refuses earlier copies while a later one is being read: we go back, and the read is void."""
    monkeypatch.setattr(copier, "batches_in", lambda data: [data])

    async def story(stage: Stage) -> None:
        for number in range(2):
            stage.reads[number].set_result(None)
            await stage.turns()
        assert [(slot, body) for slot, body, _ in stage.peer.sent] == [(0, [b"from slot 0"]), (10, [b"from slot 10"])]
        stage.peer.sent[0][2].set_exception(NoSpace("full"))
        stage.peer.sent[1][2].set_exception(Gap("slots from 0 on are missing", 0))
        await stage.turns()
        stage.reads[2].set_result(None)
        await stage.turns()
        assert all(body == [b"from slot %d" % slot] for slot, body, _ in stage.peer.sent)

    play(story, slots=40)


def test_a_batch_that_meets_a_full_connection_leaves_when_there_is_room() -> None:
    async def story(stage: Stage) -> None:
        stage.peer.writable = False  # by what another stream sends
        stage.replica.recent = lambda slot: (1, b"x") if slot == 0 else None
        stage.replica.log.appended = stage.replica.log.durable = 1
        for callback in (*stage.replica.on_group, *stage.replica.on_sync):
            callback()
        await stage.turns()
        assert not stage.peer.sent
        stage.peer.writable = True
        stage.peer.room.set()
        await stage.turns()
        assert [(slot, body) for slot, body, _ in stage.peer.sent] == [(0, [b"x"])]

    play(story, slots=0)


def test_a_backup_that_is_away_is_not_looked_for_when_its_stream_is_finished() -> None:
    async def story(stage: Stage) -> None:
        stage.replica.state = ReplicaState.FINISHED
        await asyncio.wait_for(stage.task, 5)

    play(story, slots=0, away=True)


def test_nothing_waits_any_more_for_a_stream_that_is_finished() -> None:
    async def story(stage: Stage) -> None:
        stage.replica.state = ReplicaState.FINISHED
        for ended in stage.replica.on_end:
            ended()
        await asyncio.wait_for(stage.task, 5)

    play(story, slots=0)
