"""Watches logs that are trimmed by themselves: what is told of them is recorded, and at the end they must have been."""

from collections.abc import Awaitable, Callable, Sequence

from varlog.base.errors import VarlogError
from varlog.client import Cluster, Log
from varlog.sim.checkers import Violation
from varlog.sim.history import Chain, Keeping
from varlog.sim.host import Process
from varlog.sim.record import Recorder
from varlog.sim.reshaper import tell
from varlog.sim.weather import Shape

LOOK_SECONDS = 0.3
"""Between two looks at all logs."""


class Keeper:
    """Somebody who keeps an eye on what logs keep, in the process of an administrator."""

    def __init__(
        self,
        admin: Process,
        names: Sequence[str],
        connect: Callable[[Process], Awaitable[Cluster]],
        recorder: Recorder,
        shape: Shape,
        skew_seconds: float,
    ) -> None:
        self._admin = admin
        self._names = names
        self._connect = connect
        self._recorder = recorder
        self._shape = shape
        self._skew_seconds = skew_seconds
        self._stopping = False
        for name in names:
            recorder.history.add(
                Keeping(
                    log=name,
                    seconds=shape.retain_seconds,
                    bytes=shape.retain_bytes,
                    archived=shape.retain_archived,
                    skew_seconds=skew_seconds,
                )
            )

    def start(self) -> None:
        self._admin.spawn(self._run(), "keep an eye on what is kept")

    async def _run(self) -> None:
        cluster = await self._connect(self._admin)
        while not self._stopping:
            await self._admin.clock.sleep(LOOK_SECONDS)
            for name in self._names:
                await self._look(cluster.log(name))
        await cluster.close()

    async def _look(self, log: Log) -> int:
        """The trim point, as far as somebody answers."""
        record = self._recorder.begin(self._admin, Chain(log=log.name))
        try:
            tell(record, await log.info())
        except VarlogError as error:
            self._recorder.end(self._admin, record, error)
        else:
            self._recorder.end(self._admin, record)
        return record.trimmed

    # ------------------------------------------------------------ the end

    async def wait(self, cluster: Cluster, readable: Sequence[str], seconds: float) -> list[Violation]:
        """Until what is too old has gone, where all streams can be read; what is wrong if it does not in so long."""
        self._stopping = True
        found = [await self._await_trimmed(cluster.log(name), seconds) for name in readable]
        for name in self._names:
            await self._let_be(cluster.log(name), seconds)
        return [violation for violation in found if violation is not None]

    async def _await_trimmed(self, log: Log, seconds: float) -> Violation | None:
        if not self._shape.retain_seconds:
            return None
        clock = self._admin.clock
        deadline = clock.now() + 1.1 * self._shape.retain_seconds + self._skew_seconds + seconds
        goal: int | None = None
        while clock.now() < deadline:
            goal = await self._goal(log) if goal is None else goal
            if goal is not None and await self._look(log) >= goal:
                return None
            await clock.sleep(LOOK_SECONDS)
        return Violation("I14", log.name, f"what is older than {self._shape.retain_seconds:g} s is still there: {goal}")

    async def _goal(self, log: Log) -> int | None:
        """Up to where the log is to be trimmed; None if nobody answers."""
        try:
            return (await log.info()).archived - 1 if self._shape.retain_archived else await log.tail()
        except VarlogError:
            return None

    async def _let_be(self, log: Log, seconds: float) -> None:
        """From now on nothing goes by itself, so that all of the log can be looked at."""
        deadline = self._admin.clock.now() + seconds
        while self._admin.clock.now() < deadline:
            try:
                await log.reconfigure(retain_seconds=0.0, retain_bytes=0, retain_archived=False)
                return
            except VarlogError:
                await self._admin.clock.sleep(LOOK_SECONDS)
