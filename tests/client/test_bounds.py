"""What is asked to know from where to where a subscription goes has one deadline."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from varlog.base.ids import Glsn, Slot, StreamId
from varlog.client import bounds
from varlog.client.bounds import find_bounds
from varlog.client.context import LogContext
from varlog.wire.proto import varlog_pb2 as pb

TIMEOUT_S = 10.0
EACH_S = 2.0
"""So long every question takes."""


class Asked:
    """A log whose questions are answered slowly, on a clock of its own; and how long each might have taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.timeouts: list[float] = []
        routes = SimpleNamespace(resolve=self._resolve, refresh=self._ask, streams=[SimpleNamespace(id=1)])
        world = SimpleNamespace(clock=SimpleNamespace(now=lambda: self.time))
        self.context = cast(LogContext, SimpleNamespace(routes=routes, world=world))
        monkeypatch.setattr(bounds, "ask_tail", self._ask_tail)
        monkeypatch.setattr(bounds, "fresh_tail", self._fresh_tail)
        monkeypatch.setattr(bounds, "committed_slot", self._committed_slot)

    async def _ask(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        self.time += EACH_S

    async def _resolve(self, timeout: float) -> pb.LogInfo:
        await self._ask(timeout)
        return pb.LogInfo(id=1, name="orders")

    async def _ask_tail(self, _: LogContext, timeout: float) -> pb.TailReply:
        await self._ask(timeout)
        return pb.TailReply(tail=7)

    async def _fresh_tail(self, _: LogContext, timeout: float) -> Glsn:
        await self._ask(timeout)
        return Glsn(7)

    async def _committed_slot(self, _: LogContext, __: StreamId, timeout: float) -> Slot:
        await self._ask(timeout)
        return Slot(7)


def test_what_one_question_takes_the_next_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    found = asyncio.run(
        find_bounds(asked.context, start=None, stop=None, stream=StreamId(1), wait=False, timeout=TIMEOUT_S)
    )
    assert (found.start, found.stop, found.slot_limit) == (1, 8, 7)
    assert asked.timeouts == [TIMEOUT_S - EACH_S * asked_before for asked_before in range(4)]
