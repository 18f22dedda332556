"""Everything that chance decides about a run before it begins, drawn from its seed.

A fault with one fixed rate, or a disk with one fixed speed, hides every bug that needs another
(a fixed sync time hid one from 3,000 seeds). So nothing here is fixed: each seed has a climate, each
kind of fault is there or not, and each disk, host and pair of hosts draws its own figures.

    clean TCP       in order, nothing lost inside a connection; connections break, or hang in a partition
    single frames   lost, doubled and overtaken one by one, without the connection noticing
"""

from dataclasses import dataclass, field, replace
from math import exp, log
from random import Random

# ---------------------------------------------------------------- distributions


def between(random: Random, low: float, high: float) -> float:
    """Evenly over orders of magnitude."""
    return exp(random.uniform(log(low), log(high)))


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds something takes: around a median, with a tail of stalls."""

    median: float
    spread: float = 0.3
    """How far single draws stray: 0 is always the median, 1 is factors of three and more."""
    stall_rate: float = 0.0
    stall: float = 0.0

    def draw(self, random: Random) -> float:
        if self.stall_rate and random.random() < self.stall_rate:
            return self.stall * (0.5 + random.random())
        return self.median * exp(self.spread * (random.random() * 4.0 - 2.0))

    def without_stalls(self) -> "Latency":
        return Latency(self.median, self.spread)

    def __str__(self) -> str:
        stalls = f", {self.stall_rate:.1%} stall {self.stall * 1e3:.0f} ms" if self.stall_rate else ""
        return f"{self.median * 1e3:.3f} ms ±{self.spread:.2f}{stalls}"


# ---------------------------------------------------------------- the parts


@dataclass(frozen=True, slots=True)
class NetworkWeather:
    delay: Latency = field(default_factory=lambda: Latency(0.0002))
    in_order: bool = True
    """Clean TCP; else single frames are lost, doubled and overtaken at the rates below."""
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    bytes_per_second: float = 1e9
    window_bytes: int = 1 << 20
    """Bytes under way in one direction of a connection beyond which it is not writable."""
    late_notice: float = 0.0
    """Chance that peers of a machine that lost power notice only after up to `late_notice_seconds`."""
    late_notice_seconds: float = 5.0
    break_on_heal: float = 0.5
    """Chance that a connection which hung in a partition breaks instead of going on."""
    distance: float = 1.0
    """Each ordered pair of hosts draws a factor between 1 and this for its delays."""
    stragglers: float = 0.0
    """Chance that the last words of a process that died arrive late, when it may have been started again."""
    straggle_seconds: float = 2.0

    def describe(self) -> str:
        kind = "clean TCP" if self.in_order else "single frames"
        rates = f"loss {self.loss:.2%}, duplicate {self.duplicate:.2%}, reorder {self.reorder:.2%}"
        return (
            f"{kind}, delay {self.delay}, distance ≤{self.distance:.1f}, {'' if self.in_order else rates + ', '}"
            f"{self.bytes_per_second / 1e6:.1f} MB/s, window {self.window_bytes} bytes, "
            f"late notice {self.late_notice:.0%} ≤{self.late_notice_seconds:.1f} s, "
            f"break on heal {self.break_on_heal:.0%}, last words late {self.stragglers:.0%}"
        )


@dataclass(frozen=True, slots=True)
class DiskWeather:
    sync: Latency = field(default_factory=lambda: Latency(0.0002))
    write: Latency = field(default_factory=lambda: Latency(0.00002))
    read: Latency = field(default_factory=lambda: Latency(0.00005))
    bytes_per_second: float = 1e9
    sync_failure: float = 0.0
    """Chance of each sync to fail."""
    capacity: int = 1 << 30

    def sync_seconds(self, random: Random) -> float:
        return self.sync.draw(random)

    def write_seconds(self, random: Random, size: int) -> float:
        return self.write.draw(random) + size / self.bytes_per_second

    def read_seconds(self, random: Random) -> float:
        return self.read.draw(random)

    def without_faults(self) -> "DiskWeather":
        return replace(self, sync=self.sync.without_stalls(), sync_failure=0.0)

    def describe(self) -> str:
        failing = f", sync fails {self.sync_failure:.3%}" if self.sync_failure else ""
        return f"sync {self.sync}, write {self.write}, read {self.read}, {self.capacity >> 10} KiB{failing}"


CALM_DISK = DiskWeather()


@dataclass(frozen=True, slots=True)
class HostWeather:
    clock_rate: float = 1.0
    wall_offset_us: int = 0
    disk: DiskWeather = CALM_DISK

    def describe(self) -> str:
        return f"clock ×{self.clock_rate:.4f}, wall {self.wall_offset_us / 1e6:+.3f} s, disk {self.disk.describe()}"


@dataclass(frozen=True, slots=True)
class FaultWeather:
    """Events a second while chaos lasts; 0 is never."""

    node_crashes: float = 0.0
    repository_crashes: float = 0.0
    client_crashes: float = 0.0
    snipes: float = 0.0
    """Crashes that wait for a certain message, to hit the moments that matter."""
    end_snipes: float = 0.0
    """The same of messages by which a segment or a stream ends."""
    downtime: float = 1.0
    """Median seconds until what crashed is started again."""
    power_loss: float = 0.5
    """Chance that a crash is a loss of power and not only the end of a process."""
    pauses: float = 0.0
    pause_seconds: float = 1.0
    clock_stops: float = 0.5
    """Chance that the clock of a paused process stands still too."""
    partitions: float = 0.0
    partition_seconds: float = 2.0
    one_way: float = 0.3
    """Chance that a partition lets one direction through."""
    breaks: float = 0.0
    """Connections broken at random."""
    full_disks: float = 0.0
    full_seconds: float = 2.0
    failing_syncs: float = 0.0
    """Disks told to fail their next sync."""
    failing_commits: float = 0.0
    """The repository's store told to fail its next commit."""
    outages: float = 0.0
    """Times that a shared store is away, hangs or is slow."""
    outage_seconds: float = 1.0
    stops: float = 0.0
    """Servers ended in good order, and started again."""
    absences: float = 0.0
    """Nodes that are away for so long that their replicas are rebuilt, and come back."""
    absence_seconds: float = 5.0
    rot: bool = False
    """Once, one bit of one file flips; where streams have other copies."""
    cold_rot: float = 0.0
    """Bits that flip in what the replicas of one node have had on disk for a while; where streams have other copies."""
    lost_nodes: int = 0
    """When chaos ends, so many nodes are gone for good, with all their disks; what was acked must be on the others."""

    def describe(self) -> str:
        rates = {
            "node crashes": self.node_crashes,
            "repository crashes": self.repository_crashes,
            "client crashes": self.client_crashes,
            "snipes": self.snipes,
            "snipes at ends": self.end_snipes,
            "pauses": self.pauses,
            "partitions": self.partitions,
            "broken connections": self.breaks,
            "full disks": self.full_disks,
            "failing syncs": self.failing_syncs,
            "failing commits": self.failing_commits,
            "outages of the store": self.outages,
            "stops": self.stops,
            "long absences": self.absences,
            "rot": self.cold_rot,
        }
        listed = ", ".join(f"{name} {rate:.2f}/s" for name, rate in rates.items() if rate)
        lost = f"; {self.lost_nodes} node{'s' * (self.lost_nodes > 1)} lost for good" if self.lost_nodes else ""
        once = f"{'; a bit flips' * self.rot}{lost}"
        return f"{listed or 'none'}; down {self.downtime:.2f} s, power lost {self.power_loss:.0%}{once}"


NEVER_MS = 3_600_000
"""Longer than any run."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The cluster, and what is asked of it."""

    nodes: int = 3
    volumes: int = 1
    logs: int = 1
    streams: int = 1
    replicas: int = 3
    clients: int = 2
    chaos_seconds: float = 10.0
    operations_per_second: float = 10.0
    """Of each client."""
    burst: int = 1
    """Most operations that a client begins at one moment."""
    file_bytes: int = 1 << 16
    batch_entries: int = 4
    """Most entries in a batch."""
    payload_bytes: int = 16
    """Most bytes of padding behind the id in a payload."""
    in_flight: int = 4
    """Most operations of a client at once."""
    appends: float = 1.0
    reads: float = 0.3
    tails: float = 0.2
    trims: float = 0.0
    finds: float = 0.05
    subscribers: int = 1
    """Of each client."""
    producers: int = 0
    """Of each client, anonymous and pipelined."""
    repositories: int = 1
    """Several share a store and elect a leader."""
    store_elsewhere: bool = False
    """A single repository has its store on an etcd, too."""
    direct_nodes: int = 16
    """Up to so many nodes report to the leading repository themselves."""
    lost_ms: int = 1000
    """How long a node may be away before others take over from it."""
    rebuild_ms: int = NEVER_MS
    """How long a node may be away before its replicas of ended streams are copied to others."""
    copy_bytes_per_s: int = 256 << 20
    """How fast a node copies."""
    scrub_every_s: float = 0.0
    """How often nodes read all their files; 0: never."""
    scrub_bytes_per_s: int = 8 << 20
    seals: bool = False
    """The last log is sealed while faults strike."""
    drains: bool = False
    """A node is drained while faults strike."""
    ordering: str = "cut"
    """Of the logs at their start; changes may choose another."""
    unit: int = 0
    """Under a sequencer: positions that go to one stream before the next has its turn."""
    fill_seconds: float = 1.0
    """How long a position that nobody writes is waited for before it is given up."""
    journal: bool = False
    """The logs are journals: clients are candidates, and who leads appends."""
    replication: str = ""
    """Under a leader; empty: as it comes by itself."""
    ack: int = 0
    """Under a leader, how many copies acknowledge; 0: as many as usual."""
    reshapes: int = 0
    """So many times a log is changed while faults strike: its replication, its streams, its segment."""
    policies: bool = False
    """These changes are of who acknowledges, too, on which nodes, and by whom these are told; up to five copies."""
    conditions: bool = False
    """Clients name positions that entries are to get, also under orderings that cannot do that."""
    roll_seconds: float = 0.0
    """A segment so old is followed by the next; 0: never for that."""
    retain_seconds: float = 0.0
    """What is older is trimmed; 0: nothing for that."""
    retain_bytes: int = 0
    """The same of what is more."""
    retain_archived: bool = False
    """But only what is archived."""
    archivers: int = 0
    """So many archive the logs while faults strike, and have the nodes trim what is archived."""
    named_producers: bool = False
    """Each client has one that goes on after a crash where it was."""
    ghosts: float = 0.0
    """How likely a named producer is followed by another after a batch, and goes on without knowing it."""

    @property
    def shared_store(self) -> bool:
        """The store is as on etcd; else the repository has it to itself."""
        return self.repositories > 1 or self.store_elsewhere

    @property
    def retains(self) -> bool:
        """Logs are trimmed by themselves."""
        return bool(self.retain_seconds or self.retain_bytes)

    @property
    def gathers(self) -> bool:
        """Changes reach the leading repository only through those that follow."""
        return self.repositories > 2 and self.nodes > self.direct_nodes

    @property
    def rebuilds(self) -> bool:
        return self.rebuild_ms < NEVER_MS

    def describe(self) -> str:
        return (
            f"{self.nodes} nodes × {self.volumes} volumes, {self.logs} logs × {self.streams} streams × {self.replicas} "
            f"replicas{f', {self.ack} acknowledge,' * bool(self.ack)} under {self.ordering}"
            f"{f' by {self.unit}, holes filled after {self.fill_seconds:g} s' * bool(self.unit)}"
            f"{', journals' * self.journal}{', in a chain' * bool(self.replication)}, "
            f"files of {self.file_bytes} bytes; "
            f"{self.clients} clients, {self.operations_per_second:.0f} "
            f"operations/s each for {self.chaos_seconds:.0f} s in bursts of ≤{self.burst}, ≤{self.in_flight} at once, "
            f"≤{self.batch_entries} entries a batch, padding ≤{self.payload_bytes} bytes; appends {self.appends:.2f}, "
            f"reads {self.reads:.2f}, tails {self.tails:.2f}, trims {self.trims:.3f}, finds {self.finds:.2f}, "
            f"{self.subscribers} subscribers, {self.producers} producers{' and a named one' * self.named_producers}"
            f"{f', followed unawares {self.ghosts:.0%}' if self.ghosts else ''}"
            f"{'; the last log is sealed' * self.seals}{'; a node is drained' * self.drains}"
            f"{f'; {self.reshapes} changes of logs' * bool(self.reshapes)}"
            f"{', also of who acknowledges' * self.policies}{'; positions are named' * self.conditions}"
            f"{f'; {self.archivers} archivers' * bool(self.archivers)}"
            f"{f'; segments last {self.roll_seconds:.1f} s' * bool(self.roll_seconds)}"
            f"{f'; {self.retain_seconds:.1f} s are kept' * bool(self.retain_seconds)}"
            f"{f'; {self.retain_bytes} bytes are kept' * bool(self.retain_bytes)}"
            f"{' and what is not archived' * self.retain_archived}; "
            f"{self.repositories} repositories{' on a shared store' * self.shared_store}"
            f"{', those that follow gather all reports' * self.gathers}; "
            f"a node is lost after {self.lost_ms} ms"
            f"{f', scrubbed every {self.scrub_every_s:.1f} s' if self.scrub_every_s else ''}"
            f"{f', rebuilt after {self.rebuild_ms} ms at {self.copy_bytes_per_s} bytes/s' * self.rebuilds}"
        )


@dataclass(frozen=True, slots=True)
class Weather:
    """All of it. `hosts` are drawn as they are asked for, by name, so that one more changes no other."""

    seed: str
    network: NetworkWeather
    faults: FaultWeather
    shape: Shape
    commit: Latency
    """Of the repository's metadata store."""
    commits_in_order: bool
    worst_clock: float
    """Clocks run off by up to this share."""
    disk_sync: tuple[float, float]
    """Range of the median sync time of a disk."""
    disk_stalls: bool
    disk_capacity: int

    def host(self, name: str) -> HostWeather:
        random = Random(f"{self.seed}/weather/{name}")
        drift = 1.0 + random.uniform(-self.worst_clock, self.worst_clock)
        return HostWeather(drift, random.randrange(-2_000_000, 2_000_000), self._disk(random))

    def disk(self, name: str) -> DiskWeather:
        return self._disk(Random(f"{self.seed}/weather/{name}"))

    def _disk(self, random: Random) -> DiskWeather:
        stalls = random.choice((0.0, 0.001, 0.02)) if self.disk_stalls else 0.0
        sync = Latency(between(random, *self.disk_sync), random.uniform(0, 1), stalls, between(random, 0.02, 2.0))
        write = Latency(between(random, 5e-6, 2e-4), random.uniform(0, 1))
        read = Latency(between(random, 2e-5, 2e-3), random.uniform(0, 1))
        return DiskWeather(sync, write, read, between(random, 2e7, 2e9), 0.0, self.disk_capacity)

    def describe(self) -> str:
        disks = f"sync median {self.disk_sync[0] * 1e3:.3f} to {self.disk_sync[1] * 1e3:.3f} ms"
        return "\n".join(
            (
                f"shape    {self.shape.describe()}",
                f"network  {self.network.describe()}",
                f"faults   {self.faults.describe()}",
                f"commit   {self.commit}{'' if self.commits_in_order else ', out of order'}",
                f"clocks   off by up to {self.worst_clock:.2%}",
                f"disks    {disks}{', with stalls' if self.disk_stalls else ''}, {self.disk_capacity >> 10} KiB",
            )
        )
