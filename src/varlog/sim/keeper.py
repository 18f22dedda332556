"""Watches logs that are trimmed by themselves, and says now and then how far they are archived.

Nothing is archived here: the cluster believes what it is told, and must not trim beyond it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

from varlog.base.errors import VarlogError
from varlog.client import ArchiveDescription, Cluster, Log
from varlog.sim.checkers import Violation
from varlog.sim.history import Archiving, Chain, Keeping
from varlog.sim.host import Process
from varlog.sim.record import Recorder
from varlog.sim.reshaper import tell
from varlog.sim.weather import Shape

LOOK_SECONDS = 0.3
"""Between two looks at all logs."""
ARCHIVES = 0.2
"""Share of the looks at which somebody says that more is archived."""
EMPTY = ArchiveDescription("file:///archive", "", "", "", 1, 1)


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

    def start(self, random: Random) -> None:
        self._admin.spawn(self._run(random), "keep an eye on what is kept")

    async def _run(self, random: Random) -> None:
        cluster = await self._connect(self._admin)
        while not self._stopping:
            await self._admin.clock.sleep(LOOK_SECONDS)
            for name in self._names:
                await self._look(cluster.log(name))
                if self._shape.retain_archived and random.random() < ARCHIVES:
                    await self._archive(cluster.log(name), random.random())
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

    async def _archive(self, log: Log, share: float) -> None:
        """So much more of the log is archived, from here to its tail."""
        try:
            known = (await log.info()).archive or await self._begin(log)
            stop = known.stop + int(share * (await log.tail() + 1 - known.stop))
            record = self._recorder.begin(self._admin, Archiving(log=log.name, upto=stop - 1))
            try:
                await log.record_archive(replace(known, metadata="file:///archive/1", stop=stop), expected=known.stop)
            except VarlogError as error:
                self._recorder.end(self._admin, record, error)
            else:
                self._recorder.end(self._admin, record)
        except VarlogError:
            return  # another time

    async def _begin(self, log: Log) -> ArchiveDescription:
        begun = replace(EMPTY, first=(first := (await log.info()).trimmed + 1), stop=first)
        await log.record_archive(begun, expected=0)
        return begun

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
        tail: int | None = None
        while clock.now() < deadline:
            try:
                tail = await log.tail() if tail is None else tail
                if self._shape.retain_archived:
                    await self._archive(log, 1.0)
            except VarlogError:
                pass  # the repository is just starting: the deadline counts
            if tail is not None and await self._look(log) >= tail:
                return None
            await clock.sleep(LOOK_SECONDS)
        return Violation("I14", log.name, f"what is older than {self._shape.retain_seconds:g} s is still there: {tail}")

    async def _let_be(self, log: Log, seconds: float) -> None:
        """From now on nothing goes by itself, so that all of the log can be looked at."""
        deadline = self._admin.clock.now() + seconds
        while self._admin.clock.now() < deadline:
            try:
                await log.reconfigure(retain_seconds=0.0, retain_bytes=0, retain_archived=False)
                return
            except VarlogError:
                await self._admin.clock.sleep(LOOK_SECONDS)
