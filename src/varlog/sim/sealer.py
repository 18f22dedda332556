"""Seals a log at some moment of a run, as an operator would: again and again until it is done or certainly refused."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from varlog.base.errors import Timeout, VarlogError
from varlog.client import Cluster
from varlog.runtime.timeout import within
from varlog.sim.checkers import Violation
from varlog.sim.history import Seal
from varlog.sim.host import Process
from varlog.sim.record import Recorder

PAUSE_SECONDS = 0.2
"""Between two attempts."""

GIVES_UP = 0.5
"""Share of refusals that he takes for an answer; then the log must go on as if he had never asked."""


class Sealer:
    """The sealing of one log, in the process of an administrator."""

    def __init__(
        self, admin: Process, name: str, connect: Callable[[Process], Awaitable[Cluster]], recorder: Recorder
    ) -> None:
        self._admin = admin
        self._name = name
        self._connect = connect
        self._recorder = recorder
        self._task: asyncio.Task[None] | None = None

    def start(self, delay: float, random: Random) -> None:
        self._task = self._admin.spawn(self._run(delay, random), "seal")

    async def _run(self, delay: float, random: Random) -> None:
        await self._admin.clock.sleep(delay)
        cluster = await self._connect(self._admin)
        certain = True
        while True:
            seal = self._recorder.begin(self._admin, Seal(log=self._name))
            try:
                seal.position = await cluster.log(self._name).seal()
            except VarlogError as error:
                seal.refused = error.outcome_known
                self._recorder.end(self._admin, seal, error)
                certain = certain and seal.refused
                if certain and random.random() < GIVES_UP:
                    break
                await self._admin.clock.sleep(PAUSE_SECONDS)
            else:
                self._recorder.end(self._admin, seal)
                break
        await cluster.close()

    async def wait(self, seconds: float) -> list[Violation]:
        """Until he has his answer, for so long at most; what is wrong if he has none."""
        if self._task is None:
            return []
        try:
            await within(self._admin.clock, seconds, self._task)
        except Timeout:
            return [Violation("I14", self._name, f"it could not be sealed in {seconds:g} s")]
        return []
