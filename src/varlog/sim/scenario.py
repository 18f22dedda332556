"""The course of one run.

    start   servers come up, logs are made (in calm, or already in chaos)
    chaos   clients work, faults strike
    heal    faults stop, everything is up again; every stream must take an append within a bound (I14)
    settle  clients finish what they have under way; subscribers must reach the tail
    audit   the log is read through the client; then all nodes lose power, and their files are read

`history` then has everything that the checkers need.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from varlog.base.errors import AlreadyExists, Sealed, VarlogError
from varlog.client import Cluster, Log, connect
from varlog.runtime.timeout import within
from varlog.sim.archive import Archiver
from varlog.sim.audit import audit_node, read_whole_log
from varlog.sim.candidates import Chair
from varlog.sim.checkers import Violation, check_history
from varlog.sim.cluster import SimulatedCluster
from varlog.sim.drainer import Drainer
from varlog.sim.ending import Ending
from varlog.sim.excuses import Excuses, is_lost_with_the_end, streams_of
from varlog.sim.faults import Nemesis
from varlog.sim.history import Append, Chain, Expectation, History, Subscription, fingerprint, payload_bytes
from varlog.sim.host import Process
from varlog.sim.keeper import Keeper
from varlog.sim.loop import SimulatedLoop, SimulationError
from varlog.sim.parts import read_part, whole_parts
from varlog.sim.pipelines import Journal
from varlog.sim.record import Recorder, finish_append
from varlog.sim.repair import BOUND_SECONDS, Repair
from varlog.sim.reshaper import Reshaper, tell
from varlog.sim.scrubbing import await_scrubbed
from varlog.sim.sealer import Sealer
from varlog.sim.trace import Trace
from varlog.sim.weather import Weather
from varlog.sim.workload import Worker
from varlog.wire.proto import varlog_pb2 as pb

STABLE_SECONDS = 3.0
"""The log is taken to have come to rest when its tail has not moved for so long."""

TOLD_SECONDS = 1.0
"""Where nobody has used a log for long, members hear by these last reads alone what is committed, and write it down."""

CREATE_SECONDS = 120.0
"""Within so long the logs are made, faults or not."""

CALM_START = 0.7
"""Share of the runs in which faults begin only when the logs are there."""

ARCHIVE_FAILS = 0.03
"""Share of the reads of archives that fail while faults strike."""

Result = TypeVar("Result")


class Scenario:
    """One run. `play` it, then look at `history`."""

    def __init__(self, loop: SimulatedLoop, weather: Weather, trace: Trace) -> None:
        self.loop = loop
        self.weather = weather
        self.shape = weather.shape
        self.trace = trace
        self.recorder = Recorder(loop, trace)
        self.cluster = SimulatedCluster(loop, weather, trace)
        self.url = self.cluster.url
        self.log_names = [f"log{number}" for number in range(1, weather.shape.logs + 1)]
        self.known = dict.fromkeys(self.log_names, 0)
        self.trimmed = dict.fromkeys(self.log_names, 0)
        self.journals: dict[str, Journal] = {}
        self.healing = False
        self.violations: list[Violation] = []
        """What showed already while it was played."""
        self.stopping = False
        self._sealer: Sealer | None = None
        self._reshaper: Reshaper | None = None
        self._keeper: Keeper | None = None
        self._archivers: list[Archiver] = []
        self._random = Random(f"{weather.seed}/scenario")
        chance = Random(f"{weather.seed}/faults")
        shape = weather.shape
        kinds = {"seals": shape.seals, "rebuilds": shape.rebuilds, "journal": shape.journal}
        self._nemesis = Nemesis(self.cluster, weather.faults, chance, **kinds)
        self.excuses = Excuses(self.cluster, self._nemesis, shape)
        self._repair = Repair(loop, self.cluster, self.log_names, shape, self.excuses)
        self._ending = Ending(self.history, self.excuses, self._alive)
        self._workers: dict[str, Worker] = {}
        self._admin = self.cluster.make_host("admin")
        self._probes = 0

    @property
    def history(self) -> History:
        return self.recorder.history

    @property
    def infos(self) -> dict[str, pb.LogInfo]:
        """The logs' records, as last seen."""
        return self._repair.infos

    @property
    def faults(self) -> dict[str, int]:
        """How often each kind struck; that a node was drained is one of them."""
        drainer = self.excuses.drainer
        drained = {"drained": drainer.count} if drainer is not None and drainer.count else {}
        reshaped = {"reshaped": self._reshaper.count} if self._reshaper is not None and self._reshaper.count else {}
        return self._nemesis.struck | drained | reshaped

    def judge(self) -> list[Violation]:
        """Everything that went wrong in this run."""
        found = self.violations + check_history(self.history)
        lost = {name: self.excuses.lost_with_the_end(info) for name, info in self.infos.items()}
        return [each for each in found if not is_lost_with_the_end(each, lost.get(each.log))]

    def summary(self) -> str:
        """What happened, in numbers."""
        counts: dict[str, int] = {}
        for record in self.history.records:
            name = f"{record.kind} {record.outcome}" if isinstance(record, Append) else record.kind
            counts[name] = counts.get(name, 0) + 1
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        done = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
        return f"{self.loop.now:.1f} virtual s, {self.loop.steps} steps; {done}; faults: {faults or 'none'}"

    # ------------------------------------------------------------ the course

    async def play(self) -> None:
        self.cluster.start_servers()
        admin = self._admin.start(_stay)
        self._make_keeper(admin)
        if self._random.random() < CALM_START:
            await self._as_admin(admin, self._create_logs)
            self._start_workers()
            if self.shape.seals:
                delay = self._random.random() * self.shape.chaos_seconds
                self._sealer = Sealer(admin, self.log_names[-1], self._connect, self.recorder)
                self._sealer.start(delay, self._random)
            if self.shape.drains:
                chance = Random(f"{self.weather.seed}/drainer")
                self.excuses.drainer = Drainer(admin, self._connect, self.trace)
                self.excuses.drainer.start(chance.random() * self.shape.chaos_seconds, chance)
            self._start_reshaper(admin)
            self._start_archivers(admin)
            await self._nemesis.rage(self.shape.chaos_seconds)
        else:
            making = self.loop.create_task(self._as_admin(admin, self._create_logs))
            making.add_done_callback(lambda _: self._start_workers())
            await self._nemesis.rage(self.shape.chaos_seconds)
            self._nemesis.heal()
            await making
        for _ in range(self.weather.faults.lost_nodes if self.shape.replicas > 1 else 0):
            self._lose_node()
        self._nemesis.heal()
        self.cluster.shelf.failing = 0.0
        self.healing = True
        self.trace.event(self.loop.now, "faults", "stop", "everything is up again")
        await self._as_admin(admin, self._probe_and_settle)
        self._nemesis.stop()
        for host in (*self.cluster.clients, self._admin, *self.cluster.nodes):
            host.crash(power_loss=True, keep=0.0)
        await self._audit_files()

    def _make_keeper(self, admin: Process) -> None:
        if self.shape.retains:
            skew = self.cluster.skew_seconds(self.shape.chaos_seconds + BOUND_SECONDS)
            self._keeper = Keeper(admin, self.log_names, self._connect, self.recorder, self.shape, skew)

    def _start_reshaper(self, admin: Process) -> None:
        if self.shape.reshapes:
            faults, most = self.weather.faults, min(5 if self.shape.policies else 3, self.shape.nodes)
            spared = faults.rot or faults.cold_rot or faults.lost_nodes  # what takes a copy must leave another
            replicas = (min(2, most) if spared else 1, most)
            self._reshaper = Reshaper(
                admin,
                self.log_names,
                self._connect,
                self.recorder,
                replicas,
                policies=self.shape.policies,
                journals=self.shape.journal,
            )
            chance = Random(f"{self.weather.seed}/reshaper")
            self._reshaper.start(self.shape.reshapes, self.shape.chaos_seconds, chance)

    def _start_archivers(self, admin: Process) -> None:
        self.cluster.shelf.failing = ARCHIVE_FAILS
        for number in range(self.shape.archivers):
            chance = Random(f"{self.weather.seed}/archiver{number}")
            archiver = Archiver(admin, self.log_names, self._connect, self.recorder, self.cluster.shelf, chance)
            archiver.start()
            self._archivers.append(archiver)

    def _lose_node(self) -> None:
        """One node is gone for good. Its name stays known, so that streams it was a member of have an excuse."""
        host = self.cluster.nodes.pop(self._random.randrange(len(self.cluster.nodes)))
        self.excuses.lost.append(host)
        self.trace.event(self.loop.now, host.name, "is lost", "for good")
        host.crash(power_loss=True)

    def _start_workers(self) -> None:
        self.cluster.ready.set()
        if self._keeper is not None:
            self._keeper.start()
        for number in range(1, self.shape.clients + 1):
            self.cluster.start(self.cluster.add_client(f"client{number}", self._work))

    async def _work(self, process: Process) -> None:
        self._workers[process.host.name] = worker = Worker(self, process)
        await worker.run()

    async def _as_admin(self, admin: Process, work: Callable[[Process], Coroutine[Any, Any, Result]]) -> Result:
        """Run in the admin's process, which no fault strikes (but the network's do)."""
        result: Result = await admin.spawn(work(admin), "admin")
        return result

    # ------------------------------------------------------------ start

    async def _create_logs(self, admin: Process) -> None:
        deadline = admin.clock.now() + CREATE_SECONDS
        for name in self.log_names:
            while not await self._create_log(admin, name):
                if admin.clock.now() > deadline:
                    raise SimulationError(f"log {name} could not be made in {CREATE_SECONDS:g} s")
                await admin.clock.sleep(0.2)

    async def _create_log(self, admin: Process, name: str) -> bool:
        try:
            async with connect(self.url, world=admin.world) as cluster:
                await cluster.create_log(
                    name,
                    ordering=self.shape.ordering,
                    replicas=self.shape.replicas,
                    ack=self.shape.ack or None,
                    streams=self.shape.streams,
                    unit=self.shape.unit or None,
                    roll_seconds=self.shape.roll_seconds,
                    retain_seconds=self.shape.retain_seconds,
                    retain_bytes=self.shape.retain_bytes,
                    retain_archived=self.shape.retain_archived,
                    journal=self.shape.journal,
                    replication=self.shape.replication,
                )
        except AlreadyExists:
            return True
        except VarlogError as error:
            self.trace.event(self.loop.now, "admin", "cannot create", f"{name}: {error!r}")
            return False
        return True

    # ------------------------------------------------------------ heal and settle

    async def _probe_and_settle(self, admin: Process) -> None:
        healed, healed_time = self.recorder.tick(), self.loop.now
        cluster = await self._connect(admin)
        self._chair = Chair(self, admin, cluster)
        if self._sealer is not None:
            self.violations += await self._sealer.wait(BOUND_SECONDS)
        if self.excuses.drainer is not None:
            self.violations += await self.excuses.drainer.wait(BOUND_SECONDS)
        if self._reshaper is not None:
            self.violations += await self._reshaper.wait(BOUND_SECONDS)
        for archiver in self._archivers:
            self.violations += await archiver.wait(BOUND_SECONDS)
        await self._stop_rolling(admin, cluster)
        if self._nemesis.rotting is not None:
            await await_scrubbed(admin, self._nemesis.rotting, self._repair.ask, BOUND_SECONDS)
        expected: dict[tuple[str, int], Expectation] = {}
        while await self._probe_new(admin, cluster, healed, healed_time, expected):
            pass  # streams may end, and others begin, while we look
        self.violations += self.excuses.not_left(self.infos)
        self.violations += self.excuses.not_replaced(self.infos)
        if self._keeper is not None:
            readable = [name for name in self.log_names if self.excuses.readable(self.infos[name])]
            self.violations += await self._keeper.wait(cluster, readable, BOUND_SECONDS)
        self.stopping = True
        await self._settle(admin, cluster)
        await self._repair.rebuilt(admin)
        self.violations += self.excuses.not_moved(self.infos)
        self.violations += await self._repair.calm(admin, cluster)
        self._ending.expect(self.infos, self.loop.now)
        for host in self.cluster.clients:
            host.crash(power_loss=False)
        for name in self.log_names:
            await self._look_at_chain(admin, cluster.log(name), name)
            if self.excuses.readable(self.infos[name]):
                await self._read_whole_log(admin, cluster.log(name), name)
            else:
                await self._read_parts(admin, cluster.log(name), self.infos[name])
        await admin.clock.sleep(TOLD_SECONDS)
        await cluster.close()
        await self._repair.look(admin)  # a copy that nobody waits for may have become a member since
        for (name, number), known in expected.items():
            self._expect_replicas(known, self.infos[name], number)

    async def _stop_rolling(self, admin: Process, cluster: Cluster) -> None:
        """Every append to a new segment would bring the next one: there would be no end of looking."""
        deadline = self.loop.now + BOUND_SECONDS
        for name in self.log_names if self.shape.roll_seconds else ():
            while self.loop.now < deadline:
                try:
                    await cluster.log(name).reconfigure(roll_seconds=0.0)
                    break
                except Sealed:
                    break
                except VarlogError:
                    await admin.clock.sleep(0.2)

    async def _probe_new(
        self,
        admin: Process,
        cluster: Cluster,
        healed: int,
        healed_time: float,
        expected: dict[tuple[str, int], Expectation],
    ) -> bool:
        """Append to every stream that is not known yet. Whether there was one."""
        # A flipped bit that nobody reads is never found: then time is left to look at the streams it did not hurt.
        await self._repair.healed(admin, BOUND_SECONDS / (1 if self._nemesis.rotten is None else 2))
        probes = []
        for name, info in self.infos.items():
            for stream in streams_of(info):
                known = expected.get((name, stream.id))
                excuse = self.excuses.excuse(info, stream)
                if known is not None:
                    known.excuse = known.excuse or excuse
                    continue
                known = Expectation(log=name, stream=stream.id, healed=healed, healed_time=healed_time)
                known.bound, known.excuse = BOUND_SECONDS, excuse
                known.any_stream = info.chain[-1].ordering == "sequencer"
                expected[name, stream.id] = self.history.add(known)
                if not excuse:
                    chosen = None if known.any_stream else stream.id
                    probes.append(admin.spawn(self._probe(admin, cluster.log(name), name, chosen), "probe"))
        for probe in probes:
            await probe
        return bool(probes)

    async def _look_at_chain(self, admin: Process, log: Log, name: str) -> None:
        record = self.recorder.begin(admin, Chain(log=name))
        try:
            tell(record, await log.info())
        except VarlogError as error:
            self.recorder.end(admin, record, error)
        else:
            self.recorder.end(admin, record)

    async def _read_whole_log(self, admin: Process, log: Log, name: str) -> None:
        try:
            self.history.add(await within(admin.clock, BOUND_SECONDS, read_whole_log(log, name)))
        except VarlogError as error:
            self.violations.append(Violation("I14", name, f"at the end the log cannot be read: {error!r}"))

    async def _read_parts(self, admin: Process, log: Log, info: pb.LogInfo) -> None:
        for part in whole_parts(info, self.excuses):
            self.violations += await read_part(admin, log, part, self.recorder, BOUND_SECONDS)

    async def _connect(self, admin: Process) -> Cluster:
        """The repository may just be starting."""
        deadline = admin.clock.now() + BOUND_SECONDS
        while True:
            cluster = connect(self.url, world=admin.world)
            try:
                return await cluster.__aenter__()
            except VarlogError:
                if admin.clock.now() > deadline:
                    raise
                await admin.clock.sleep(0.2)

    def _expect_replicas(self, known: Expectation, info: pb.LogInfo, number: int) -> None:
        stream = next(stream for stream in streams_of(info) if stream.id == number)
        known.replicas, known.thin = len(stream.members), self.excuses.thin(info, stream)

    async def _probe(self, admin: Process, log: Log, name: str, stream: int | None) -> None:
        """Append to one stream until it works, or the bound has passed."""
        deadline = self.loop.now + BOUND_SECONDS
        while self.loop.now < deadline:
            self._probes += 1
            payload = payload_bytes(f"{admin.name}.{self._probes}")
            append = self.recorder.begin(admin, Append(log=name, payloads=[fingerprint(payload)]))
            left = max(0.1, deadline - self.loop.now)
            journal = self.shape.journal
            send = (
                self._chair.append(name, payload, left, stream)
                if journal
                else log.append(payload, stream=stream, timeout=left)
            )
            await finish_append(self.recorder, admin, append, send)
            if append.outcome == "ack" or "Sealed" in append.error:
                return
            await admin.clock.sleep(0.1)

    async def _settle(self, admin: Process, cluster: Cluster) -> None:
        """Until all operations have ended, tails are at rest and every subscriber is there, or time is up."""
        deadline = self.loop.now + BOUND_SECONDS
        tails: dict[str, int] = {}
        since = self.loop.now
        while self.loop.now < deadline:
            await admin.clock.sleep(0.5)
            seen = await self._tails(cluster)
            if seen is None or any(worker.busy for worker in self._workers.values()):
                continue
            if seen != tails:
                tails, since = seen, self.loop.now
            if self.loop.now - since < STABLE_SECONDS:
                continue
            self._ending.tails = tails
            if not self._behind(tails) and not self._ending.due(self.infos, self.loop.now):
                break
        for subscription in self._open_subscriptions():
            subscription.must_catch_up = True

    async def _tails(self, cluster: Cluster) -> dict[str, int] | None:
        try:
            return {name: await cluster.log(name).tail() for name in self.log_names}
        except VarlogError:
            return None

    def _open_subscriptions(self) -> list[Subscription]:
        return [
            record
            for record in self.history.records
            if isinstance(record, Subscription)
            and record.end is None
            and not record.stop
            and self.excuses.readable(self.infos[record.log])
            and self._alive(record.client)
        ]

    def _alive(self, client: str) -> bool:
        hosts = (*self.cluster.clients, self._admin)
        return any(host.process is not None and host.up and host.process.name == client for host in hosts)

    def _behind(self, tails: dict[str, int]) -> bool:
        return any(
            (subscription.glsns[-1] if subscription.glsns else subscription.first - 1) < tails[subscription.log]
            for subscription in self._open_subscriptions()
            if not subscription.stream
        )

    # ------------------------------------------------------------ audit

    async def _audit_files(self) -> None:
        """What the disks hold now is what was synced, and nothing else."""
        for host in self.cluster.nodes:
            if host is not self._nemesis.rotten:
                process = host.start(_stay)
                audit = audit_node(process, self.infos, self.excuses.host_of, self.cluster.metadata)
                for replica in await process.spawn(audit, "audit"):
                    self.excuses.excuse_replica(self.infos[replica.log], replica, host)
                    self.history.add(replica)


async def _stay(process: Process) -> None:
    """A program that waits to be told."""
    await asyncio.get_running_loop().create_future()
