"""Watches on a real etcd that are interrupted, left behind by compaction, not read, and dropped."""

import gc
from typing import Any

import pytest
from tests.metadata.etcd_stories import configured, opened, put, run, until
from tools.etcd import Ensemble

from varlog.base.errors import Unavailable, VarlogError
from varlog.metadata.etcd import EtcdStore, reads, space, watch
from varlog.metadata.etcd.connection import COMPACT
from varlog.ports.metadata import Change, Transaction
from varlog.wire.proto import etcd_pb2 as pb


class Breakable:
    """Lets a store have no streams for a while."""

    def __init__(self, shared: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stream = shared._connection.stream
        self._streams: list[Any] = []
        self.broken = False
        monkeypatch.setattr(shared._connection, "stream", self.stream)

    async def stream(self, method: Any) -> Any:
        if self.broken:
            raise Unavailable("no streams now")
        self._streams.append(await self._stream(method))
        return self._streams[-1]

    def break_all(self) -> None:
        self.broken = True
        for stream in self._streams:
            stream.cancel()


def test_a_watch_goes_on_where_it_broke(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more to catch up on than etcd sends in one piece."""

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            breakable = Breakable(shared, monkeypatch)
            changes = shared.watch("k/")
            assert await shared.commit(put("k/first"))
            assert (await anext(changes)).key == "k/first"
            breakable.break_all()
            for number in range(20):
                values = {f"k/{number:02}/{part}": bytes(100_000) for part in range(3)}
                assert await shared.commit(Transaction(put=values))
            assert await shared.commit(Transaction(delete=["k/first"]))
            breakable.broken = False
            told = [await anext(changes) for _ in range(61)]
            expected = [f"k/{number:02}/{part}" for number in range(20) for part in range(3)]
            assert [change.key for change in told] == [*expected, "k/first"]
            assert told[-1].value is None

    run(story())


def test_a_watch_that_missed_what_was_compacted_tells_how_things_stand(
    etcd: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            assert await shared.commit(Transaction(put={"k/gone": b"", "k/stays": b"", "k/changes": b"0"}))
            breakable = Breakable(shared, monkeypatch)
            changes = shared.watch("k/")
            assert await shared.commit(put("k/seen"))
            assert (await anext(changes)).key == "k/seen"
            breakable.break_all()
            for number in range(1, 4):
                assert await shared.commit(put("k/changes", str(number).encode()))
            assert await shared.commit(Transaction(delete=["k/gone", "k/seen"]))
            assert await shared.commit(Transaction(put={"k/new": b"n", "k/brief": b""}))
            assert await shared.commit(Transaction(delete=["k/brief"]))
            revision = shared._connection.revision
            await shared._connection.ask(COMPACT, pb.CompactionRequest(revision=revision))
            breakable.broken = False
            told = [await anext(changes) for _ in range(4)]
            assert sorted(told[:2], key=lambda change: change.key) == [Change("k/gone", None), Change("k/seen", None)]
            assert told[2:] == [Change("k/changes", b"3"), Change("k/new", b"n")]
            assert await shared.commit(put("k/after"))
            assert await anext(changes) == Change("k/after", b"x")

    run(story())


def test_a_stream_that_cannot_be_asked_for_a_sign_of_life_is_given_up(
    etcd: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason: a silent one would be listened to for ever."""
    monkeypatch.setattr(watch, "NUDGE_S", 0.01)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            begun = 0
            begin = shared._connection.stream

            async def stream(method: Any) -> Any:
                nonlocal begun
                begun += 1
                made: Any = await begin(method)
                send = made.send

                async def sending(message: pb.WatchRequest) -> None:
                    if begun < 3 and message.HasField("progress_request"):
                        raise RuntimeError("a defect")
                    await send(message)

                made.send = sending
                return made

            monkeypatch.setattr(shared._connection, "stream", stream)
            changes = shared.watch("k/")
            await until(lambda: begun == 3)
            assert await shared.commit(put("k/after"))
            assert (await anext(changes)).key == "k/after"

    run(story())


def test_a_slow_watcher_takes_no_memory(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WAITING_CHANGES", 10)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            changes = shared.watch("k/")
            for number in range(0, 300, 3):
                keys = (f"k/{number + part:03}" for part in range(3))
                assert await shared.commit(Transaction(put=dict.fromkeys(keys, b"")))
            assert len(changes._feed._changes) <= 10
            assert [(await anext(changes)).key for _ in range(300)] == [f"k/{number:03}" for number in range(300)]

    run(story())


def test_a_watch_that_is_dropped_or_closed_ends(etcd: Ensemble) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            dropped, closed = shared.watch("a"), shared.watch("b")
            await until(lambda: len(shared._feeds) == 2)
            await closed.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(closed)
            del dropped
            gc.collect()
            await until(lambda: len(shared._feeds) == 0)

    run(story())


def test_old_revisions_are_given_back(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "KEPT_REVISIONS", 10)
    monkeypatch.setattr(space, "COMPACT_EVERY", 20)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            start = shared._connection.revision
            changes = shared.watch("k")
            for number in range(100):
                assert await shared.commit(put("k", str(number).encode()))
            with pytest.raises(VarlogError, match="compacted"):
                await reads.read_range_at(shared._connection, b"a", b"b", start + 1)
            while (await anext(changes)).value != b"99":
                pass
            late = shared.watch("k")
            late._feed.told = start
            with pytest.raises(Unavailable, match="begin it anew"):
                await anext(late)
            again = shared.watch("k")
            assert await shared.commit(put("k", b"100"))
            assert await anext(again) == Change("k", b"100")

    run(story())
