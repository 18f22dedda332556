"""Calls that ask several questions one after the other have one deadline for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from varlog.base.errors import NotFound
from varlog.client import log as logs
from varlog.client.appender import Appender
from varlog.client.columns import Columns
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.log import Log
from varlog.wire.proto import varlog_pb2 as pb

TIMEOUT_S = 10.0
EACH_S = 1.0
"""So long every question takes."""


class Slow:
    """A log whose questions are answered slowly, on a clock of its own; and how long each might have taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.timeouts: list[float] = []
        self.orderings = ["sequencer"]
        """What the log is under: each question takes one from the end, and leaves the first."""
        self.removed = False
        """The log was made anew, which is heard with the next question about it."""
        routes = SimpleNamespace(resolve=self._resolve, refresh=self._ask, info=pb.LogInfo())
        world = SimpleNamespace(clock=SimpleNamespace(now=lambda: self.time))
        context = SimpleNamespace(routes=routes, world=world, repositories=SimpleNamespace(call=self._call))
        appender = SimpleNamespace(append=self._append)
        self.log = Log(cast(LogContext, context), cast(Appender, appender), TIMEOUT_S)
        monkeypatch.setattr(logs, "ask_tail", self._ask_tail)
        monkeypatch.setattr(logs, "describe_log", lambda info: info)

    async def _ask(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        self.time += EACH_S

    async def _resolve(self, timeout: float) -> pb.LogInfo:
        await self._ask(timeout)
        ordering = self.orderings.pop() if len(self.orderings) > 1 else self.orderings[0]
        return pb.LogInfo(id=1, name="orders", ordering=ordering, streams=1)

    async def _ask_tail(self, _: LogContext, timeout: float) -> pb.TailReply:
        await self._ask(timeout)
        return pb.TailReply(tail=7)

    async def _call(self, *_: object, timeout: float, changes: bool) -> pb.Empty:
        await self._ask(timeout)
        if self.removed:
            self.removed = False
            raise NotFound("there is no such log")
        return pb.Empty()

    async def _append(self, _: Columns, __: object, ___: bool, timeout: float, expect: int) -> Ack:
        await self._ask(timeout)
        return cast(Ack, expect)


async def trim(slow: Slow) -> None:
    await slow.log.trim(3)


async def trim_anew(slow: Slow) -> None:
    slow.removed = True
    await slow.log.trim(3)


async def append(slow: Slow) -> None:
    slow.orderings.append("cut")
    await slow.log.append(b"a", expect=8)


async def look(slow: Slow) -> None:
    await slow.log.info()


@pytest.mark.parametrize(("call", "questions"), [(trim, 4), (trim_anew, 7), (append, 4), (look, 2)])
def test_what_one_question_takes_the_next_has_no_more(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Slow], Awaitable[None]], questions: int
) -> None:
    async def story() -> None:
        slow = Slow(monkeypatch)
        await call(slow)
        assert slow.timeouts == [TIMEOUT_S - EACH_S * asked_before for asked_before in range(questions)]

    asyncio.run(story())
