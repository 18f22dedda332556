"""Drains a node at some moment of a run, as an operator would: again and again until it is recorded.

Now and then he thinks better of it and takes it back a while later; then the node counts like any other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from varlog.base.errors import Timeout, VarlogError
from varlog.client import Cluster
from varlog.runtime.timeout import within
from varlog.sim.checkers import Violation
from varlog.sim.host import Process
from varlog.sim.trace import Trace

Result = TypeVar("Result")

PAUSE_SECONDS = 0.2
"""Between two attempts."""

TAKES_BACK = 0.2
"""Share of the drains that are undone."""


class Drainer:
    """The draining of one node, in the process of an administrator."""

    def __init__(self, admin: Process, connect: Callable[[Process], Awaitable[Cluster]], trace: Trace) -> None:
        self._admin = admin
        self._connect = connect
        self._trace = trace
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        """Of the node that is to be left alone from now on; empty while there is none."""
        self.count = 0
        """How often a node was drained."""

    def start(self, delay: float, random: Random) -> None:
        self._task = self._admin.spawn(self._run(delay, random), "drain")

    async def _run(self, delay: float, random: Random) -> None:
        await self._admin.clock.sleep(delay)
        cluster = await self._connect(self._admin)
        nodes = await self._insist(cluster.nodes)
        node = random.choice(sorted(nodes, key=lambda node: node.id))
        self._tell("drains", f"node {node.id} at {node.address}")
        await self._insist(lambda: cluster.drain_node(node.id))
        self.address = node.address
        self.count += 1
        if random.random() < TAKES_BACK:
            await self._admin.clock.sleep(delay)
            self._tell("drains no more", f"node {node.id}")
            await self._insist(lambda: cluster.drain_node(node.id, undo=True))
            self.address = ""
        await cluster.close()

    async def _insist(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await ask()
            except VarlogError:
                await self._admin.clock.sleep(PAUSE_SECONDS)

    def _tell(self, what: str, detail: str) -> None:
        self._trace.event(self._admin.clock.now(), "admin", what, detail)

    async def wait(self, seconds: float) -> list[Violation]:
        """Until it is recorded, for so long at most; what is wrong if it is not."""
        if self._task is None:
            return []
        try:
            await within(self._admin.clock, seconds, self._task)
        except Timeout:
            return [Violation("I14", "", f"a node could not be drained in {seconds:g} s")]
        return []
