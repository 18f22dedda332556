"""Looking up a log when whoever asked has given up, or comes later than another; and which replicas are near."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from tests.servers import run, servers
from tests.soon import soon

import varlog
from varlog.base.errors import Timeout, Unavailable
from varlog.client.repository import Repositories
from varlog.client.routes import Routes
from varlog.runtime.scope import Scope
from varlog.transport.world import real_world
from varlog.wire.proto import varlog_pb2 as pb


class NobodyThere:
    """Repositories that do not answer until told to refuse."""

    def __init__(self) -> None:
        self.refuse = asyncio.Event()

    async def call(self, *arguments: object, timeout: float) -> pb.LogInfo:
        await self.refuse.wait()
        raise Unavailable("nobody is there")


def test_an_error_that_nobody_waits_for_is_none() -> None:
    async def story() -> None:
        defects: list[BaseException] = []
        scope, nobody = Scope(defects.append), NobodyThere()
        routes = Routes("orders", cast(Repositories, nobody), real_world(), scope)
        asking = asyncio.ensure_future(routes.refresh(5.0))
        await soon()
        asking.cancel()
        nobody.refuse.set()
        await soon()
        assert defects == []
        with pytest.raises(Unavailable):
            await routes.refresh(5.0)
        await scope.close()

    run(story())


class SlowToAnswer:
    """Repositories that keep the answers to all questions, as of when they came, until told to give them."""

    def __init__(self) -> None:
        self.version = 1
        self.asked = 0
        self.answer = asyncio.Event()

    async def call(self, *arguments: object, timeout: float) -> pb.LogInfo:
        self.asked += 1
        found = pb.LogInfo(id=1, name="orders", version=self.version)
        await self.answer.wait()
        return found

    async def peer(self, timeout: float) -> None:
        raise Unavailable("it is not watched")

    def moved(self) -> None: ...


def test_who_asks_later_gets_what_was_so_later() -> None:
    async def story() -> None:
        scope, slow = Scope(), SlowToAnswer()
        routes = Routes("orders", cast(Repositories, slow), real_world(), scope)
        early = [asyncio.ensure_future(routes.refresh(5.0)) for _ in range(3)]
        await soon()
        assert slow.asked == 1, "those who ask at once share a question"
        slow.version = 2
        late = [asyncio.ensure_future(routes.refresh(5.0)) for _ in range(3)]
        await soon()
        assert slow.asked == 2, "one that has left may be answered with what was so before"
        slow.answer.set()
        await asyncio.gather(*early, *late)
        assert routes.info is not None
        assert routes.info.version == 2
        await scope.close()

    run(story())


class NeverInTime:
    """Repositories that let all time pass, and say which questions they got."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    async def call(self, *arguments: object, timeout: float) -> pb.LogInfo:
        self.timeouts.append(timeout)
        await asyncio.sleep(timeout)
        raise Timeout(f"not answered in {timeout:g} s")


def test_nobody_is_told_sooner_than_he_asked_for_that_nobody_answers() -> None:
    async def story() -> None:
        scope, never = Scope(), NeverInTime()
        routes = Routes("orders", cast(Repositories, never), real_world(), scope)
        hasty, patient, another = (asyncio.ensure_future(routes.refresh(seconds)) for seconds in (0.05, 10.0, 5.0))
        with pytest.raises(Timeout, match=r"in 0\.05 s"):
            await hasty
        assert never.timeouts == pytest.approx([10.0], abs=1.0), "who waits less long shares the question"
        assert not patient.done()
        assert not another.done()
        await scope.close()
        for waiting in (patient, another):
            with pytest.raises(Unavailable, match="closed"):
                await waiting

    run(story())


def test_a_replica_in_the_same_zone_is_near(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, 0) as made:
            for number, zone in enumerate(("a", "b", "b"), 1):
                await made.start_node(number, zone=zone)
            url = f"varlog://{made.repository_address}"
            async with varlog.connect(url) as anywhere, varlog.connect(url, zone="b") as there:
                await anywhere.create_log("orders", replicas=3)
                for cluster, near in ((anywhere, {1, 2, 3}), (there, {2, 3})):
                    log = cluster.log("orders")
                    await log.append(b"x")
                    routes = log._context.routes
                    (stream,) = routes.streams
                    assert {stream.members[routes.near(stream)] for _ in range(200)} == near
                    assert [entry.payload async for entry in log.subscribe(1, wait=False)]

    run(story())
