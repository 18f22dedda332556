"""Changes logs while a run lasts, as an operator would: other replication, more or fewer streams, new segments.

Where he is told to see to policies, too: how many copies acknowledge, on which nodes they are, and whether these are
told by the leader or by one another, in any combination. What he is told was done must be what he asked for.
"""

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
KINDS = ("roll", "streams", "replicas", "ordering", "ordering")
POLICIES = ("quorum", "quorum", "members")
"""Kinds of change besides, where policies are seen to."""
JOURNAL_AGAIN = 0.5
"""Of the changes of the ordering of what was made as a journal, so many make it one."""
SETTINGS = ("ordering", "replication", "unit")
"""What a segment says of itself, by the names under which it is asked for."""


class Reshaper:
    """Somebody who is never content, in the process of an administrator."""

    def __init__(
        self,
        admin: Process,
        names: Sequence[str],
        connect: Callable[[Process], Awaitable[Cluster]],
        recorder: Recorder,
        replicas: tuple[int, int],
        *,
        policies: bool = False,
        journals: bool = False,
    ) -> None:
        """`replicas`: the fewest and the most that he may ask for. `policies`: whether he sees to them, too.
        `journals`: the logs are journals, which he makes ordinary logs of, and journals again.
        """
        self._admin = admin
        self._names = names
        self._connect = connect
        self._recorder = recorder
        self._replicas = replicas
        self._policies = policies
        self._journals = journals
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._violations: list[Violation] = []
        self.count = 0
        """How many changes were carried out."""

    def start(self, count: int, seconds: float, random: Random) -> None:
        """So many changes, spread over so long; of journals twice as many, for there is a way back."""
        count = 2 * count if self._journals else count
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
        kinds = KINDS + POLICIES if self._policies else KINDS
        kind = random.choice(("ordering", *kinds) if self._journals else kinds)
        wanted = self._wanted(kind, random)
        if kind == "members" or (self._policies and kind in ("quorum", "ordering") and random.random() < 0.4):
            wanted |= await self._members(cluster, wanted["replicas"], random)
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
                self._violations += not_done(wanted, told)
                self.count += 1
                return

    def _wanted(self, kind: str, random: Random) -> dict[str, Any]:
        """More streams than one are refused where there is a leader, and a unit where nothing is striped: so be it."""
        if kind == "roll":
            return {"roll": True}
        if kind == "streams":
            return {"streams": random.randint(1, 3)}
        replicas = random.randint(*self._replicas)
        if kind in ("replicas", "members"):
            return {"replicas": replicas}
        if kind == "quorum":
            return {"replicas": replicas} | self._quorum(replicas, random)
        if self._journals and random.random() < JOURNAL_AGAIN:
            return {"journal": True, "replicas": replicas}
        ordering = random.choice(("cut", "leader", "sequencer"))
        streams = random.randint(1, 1 if ordering == "leader" else 3)
        wanted: dict[str, Any] = {"ordering": ordering, "replicas": replicas, "streams": streams}
        if ordering == "leader" and self._policies:
            wanted |= self._quorum(replicas, random)
        return wanted | ({"unit": random.choice((10, 64))} if ordering == "sequencer" else {})

    def _quorum(self, replicas: int, random: Random) -> dict[str, Any]:
        """Who acknowledges, and by whom they are told. One copy of several may not: so be it."""
        kind = random.choice(("ack", "ack", "chain", "broadcast"))
        if kind == "chain":
            return {"replication": "chain"}
        ack = random.randint(min(2, replicas), replicas)
        return {"ack": ack} if kind == "ack" else {"ack": ack, "replication": "broadcast"}

    async def _members(self, cluster: Cluster, replicas: int, random: Random) -> dict[str, Any]:
        """On some nodes that are known, or on any if nobody can say which there are."""
        try:
            nodes = [node.id for node in await cluster.nodes()]
        except VarlogError:
            return {}
        return {"members": random.sample(nodes, random.randint(min(replicas, len(nodes)), len(nodes)))}

    async def wait(self, seconds: float) -> list[Violation]:
        """Until what he has begun is answered, for so long at most; what is wrong if he is not, or was told wrongly."""
        self._stopping = True
        if self._task is None:
            return []
        try:
            await within(self._admin.clock, seconds, self._task)
        except Timeout:
            return [*self._violations, Violation("I14", "", f"changes of logs were not answered in {seconds:g} s")]
        return self._violations


def not_done(wanted: dict[str, Any], told: LogDescription) -> list[Violation]:
    """What was asked for, and is not so though the answer was that it is done.

    He alone asks for changes of a log: others, as those who heal it, keep to what it is to be. They may choose other
    nodes, and go on with fewer copies where nodes are away.
    """
    last = told.chain[-1]
    found = {name: getattr(last, name) for name in SETTINGS} | {
        name: getattr(told, name) for name in ("replicas", "ack", "streams")
    }
    found["replication"] = last.replication or "broadcast"  # which is all there is where nobody leads
    wrong = {name: (asked, found[name]) for name, asked in wanted.items() if name in found and found[name] != asked}
    return [
        Violation("change", told.name, f"{name}: asked for was {asked}, the answer that it is done says {there}")
        for name, (asked, there) in wrong.items()
    ]


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
