"""Changes logs while a run lasts, as an operator would: other replication, more or fewer streams, new segments."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from varlog.base.errors import InvalidArgument, Sealed, Timeout, Unsupported, VarlogError
from varlog.client import Cluster, LogDescription
from varlog.runtime.timeout import within
from varlog.sim.checkers import Violation
from varlog.sim.history import Chain
from varlog.sim.host import Process
from varlog.sim.record import Recorder

PAUSE_SECONDS = 0.2
"""Between two attempts."""
MOST_ATTEMPTS = 20
"""With too few nodes up, a change is refused again and again: he then leaves it."""


class Reshaper:
    """Somebody who is never content, in the process of an administrator."""

    def __init__(
        self,
        admin: Process,
        names: Sequence[str],
        connect: Callable[[Process], Awaitable[Cluster]],
        recorder: Recorder,
        replicas: tuple[int, int],
    ) -> None:
        """`replicas`: the fewest and the most that he may ask for."""
        self._admin = admin
        self._names = names
        self._connect = connect
        self._recorder = recorder
        self._replicas = replicas
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.count = 0
        """How many changes were carried out."""

    def start(self, count: int, seconds: float, random: Random) -> None:
        """So many changes, spread over so long."""
        self._task = self._admin.spawn(self._run(count, seconds, random), "reshape")

    async def _run(self, count: int, seconds: float, random: Random) -> None:
        cluster = await self._connect(self._admin)
        for _ in range(count):
            await self._admin.clock.sleep(random.random() * 2 * seconds / count)
            if self._stopping:
                break
            await self._change(cluster, random.choice(self._names), random)
        await cluster.close()

    async def _change(self, cluster: Cluster, name: str, random: Random) -> None:
        log = cluster.log(name)
        kind = random.choice(("roll", "streams", "replicas", "ordering", "ordering"))
        wanted = self._wanted(kind, random)
        attempts = 0
        while not attempts or (attempts < MOST_ATTEMPTS and not self._stopping):
            attempts += 1
            record = self._recorder.begin(self._admin, Chain(log=name, changed=True))
            try:
                told = await log.reconfigure(**wanted)
            except VarlogError as error:
                self._recorder.end(self._admin, record, error)
                if isinstance(error, Sealed | InvalidArgument | Unsupported):
                    return
                await self._admin.clock.sleep(PAUSE_SECONDS)
            else:
                tell(record, told)
                self._recorder.end(self._admin, record)
                self.count += 1
                return

    def _wanted(self, kind: str, random: Random) -> dict[str, Any]:
        """More streams than one are refused where there is a leader, and a unit where nothing is striped: so be it."""
        if kind == "roll":
            return {"roll": True}
        if kind == "streams":
            return {"streams": random.randint(1, 3)}
        replicas = random.randint(*self._replicas)
        if kind == "replicas":
            return {"replicas": replicas}
        ordering = random.choice(("cut", "leader", "sequencer"))
        streams = random.randint(1, 1 if ordering == "leader" else 3)
        wanted = {"ordering": ordering, "replicas": replicas, "streams": streams}
        return wanted | ({"unit": random.choice((10, 64))} if ordering == "sequencer" else {})

    async def wait(self, seconds: float) -> list[Violation]:
        """Until what he has begun is answered, for so long at most; what is wrong if he is not."""
        self._stopping = True
        if self._task is None:
            return []
        try:
            await within(self._admin.clock, seconds, self._task)
        except Timeout:
            return [Violation("I14", "", f"changes of logs were not answered in {seconds:g} s")]
        return []


def tell(record: Chain, told: LogDescription) -> None:
    """What a log's chain is said to be."""
    record.orderings = [each.ordering for each in told.chain]
    record.segments = [[each.epoch, each.base, each.end or 0] for each in told.chain]
    record.streams = [
        [stream.id, each.epoch, -1 if stream.end_slot is None else stream.end_slot]
        for each in told.chain
        for stream in each.streams
    ]
    record.trimmed = told.trimmed
