"""Draws the weather of a seed: what of it there is, and how much.

Kinds of fault that came later draw by a chance of their own, so that all else stays as it was for a seed.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from varlog.core.ordering.leader import default_ack
from varlog.sim.weather import NEVER_MS, FaultWeather, Latency, NetworkWeather, Shape, Weather, between


def draw(seed: int | str) -> Weather:
    """The weather of a seed."""
    random = Random(f"{seed}/weather")
    network = _draw_network(random)
    faults = _draw_faults(random)
    faults, shape = _draw_rebuild(Random(f"{seed}/weather/rebuild"), faults, _draw_shape(random))
    shape = _draw_reshapes(seed, replace(shape, drains=_draw_drain(seed)))
    faults, shape = _draw_scrub(Random(f"{seed}/weather/scrub"), faults, shape)
    shape = _draw_sequencer(Random(f"{seed}/sequencer"), shape)
    shape = replace(shape, direct_nodes=_draw_direct_nodes(seed), journal=_draw_journal(seed, shape))
    shape = replace(shape, replication=_draw_replication(seed, shape))
    faults = _draw_failures(Random(f"{seed}/failures"), faults, shape)
    faults, shape = _draw_store(Random(f"{seed}/store"), faults, shape)
    shape = replace(shape, archivers=_draw_archivers(seed, shape))
    shape = _draw_retention(Random(f"{seed}/retention"), shape)
    shape = _draw_policies(Random(f"{seed}/reshaped"), _draw_quorum(Random(f"{seed}/acknowledge"), shape))
    shape = replace(shape, conditions=_draw_conditions(seed, shape), ghosts=_draw_ghosts(seed, shape))
    faults = _draw_losses(Random(f"{seed}/losses"), faults, shape)
    fastest = between(random, *random.choice(((5e-5, 1e-2), (5e-5, 1e-2), (5e-3, 3e-2))))
    return Weather(
        seed=str(seed),
        network=network,
        faults=faults,
        shape=shape,
        commit=Latency(between(random, 1e-4, 2e-2), random.uniform(0, 1), random.choice((0.0, 0.01)), 0.5),
        commits_in_order=random.random() < 0.5,
        worst_clock=random.choice((0.0, 0.0002, 0.05)),
        disk_sync=(fastest, min(0.1, fastest * between(random, 1.0, 300.0))),
        disk_stalls=random.random() < 0.3,
        disk_capacity=1 << 28,
    )


def _draw_network(random: Random) -> NetworkWeather:
    in_order = random.random() < 0.6
    delay = Latency(
        between(random, 3e-5, 1e-2), random.uniform(0, 1), random.choice((0.0, 0.0, 0.005)), between(random, 0.02, 0.2)
    )

    def rate(most: float) -> float:
        return 0.0 if in_order or random.random() < 0.3 else between(random, most / 50, most)

    return NetworkWeather(
        delay=delay,
        in_order=in_order,
        loss=rate(0.05),
        duplicate=rate(0.1),
        reorder=rate(0.2),
        bytes_per_second=between(random, 1e6, 1e9),
        window_bytes=int(between(random, 2048, 1 << 20)),
        late_notice=random.choice((0.0, 0.0, 0.5, 1.0)),
        late_notice_seconds=between(random, 0.5, 20.0),
        break_on_heal=random.random(),
        distance=min(random.choice((1.0, 1.0, 3.0, 20.0)), max(1.0, 0.05 / delay.median)),
        stragglers=random.choice((0.0, 0.0, 0.5, 1.0)),
    )


def _draw_faults(random: Random) -> FaultWeather:
    """Each kind is there in about half of the seeds: some bugs need quiet, and some many kinds at once."""

    def rate(most: float, present: float = 0.5) -> float:
        return between(random, most / 10, most) if random.random() < present else 0.0

    return FaultWeather(
        node_crashes=rate(1.0, 0.6),
        repository_crashes=rate(0.6, 0.4),
        client_crashes=rate(0.3, 0.3),
        snipes=rate(4.0, 0.6),
        downtime=between(random, 0.05, 5.0),
        power_loss=random.choice((0.0, 0.5, 1.0, 1.0)),
        pauses=rate(0.7, 0.4),
        pause_seconds=between(random, 0.05, 5.0),
        clock_stops=random.random(),
        partitions=rate(0.5, 0.4),
        partition_seconds=between(random, 0.1, 5.0),
        one_way=random.choice((0.0, 0.3, 1.0)),
        breaks=rate(2.0, 0.4),
        full_disks=rate(0.3, 0.15),
        full_seconds=between(random, 0.2, 4.0),
        failing_syncs=rate(0.1, 0.1),
        failing_commits=rate(0.2, 0.15),
        stops=rate(0.5, 0.3),
        **_draw_loss(random),
    )


def _draw_loss(random: Random) -> dict[str, Any]:
    """At most one of the faults that take a copy for good and leave the others alone."""
    kind = random.choices(("", "lost_nodes", "rot"), (7, 2, 1))[0]
    return {kind: {"lost_nodes": 1, "rot": True}[kind]} if kind else {}


def _draw_losses(random: Random, faults: FaultWeather, shape: Shape) -> FaultWeather:
    """Where nodes are lost for good: mostly as many as what was acknowledged may lose, if that stays as it is."""
    ack = shape.ack or default_ack(shape.replicas)
    if not faults.lost_nodes or shape.reshapes or ack < 3 or random.random() < 0.2:
        return faults
    return replace(faults, lost_nodes=ack - 1)


def _draw_failures(random: Random, faults: FaultWeather, shape: Shape) -> FaultWeather:
    """Syncs and commits that fail beside everything else, and crashes while something ends, in some seeds each.

    A failed sync takes a copy for good, so others must be there, and nothing else that takes one.
    """
    spared = faults.rot or faults.cold_rot or faults.lost_nodes or shape.replicas < 2
    syncs, commits, ends = (random.random() < chance for chance in (0.15, 0.15, 0.3))
    if syncs and not spared and not faults.failing_syncs:
        faults = replace(faults, failing_syncs=between(random, 0.01, 0.1))
    if commits and not faults.failing_commits:
        faults = replace(faults, failing_commits=between(random, 0.02, 0.2))
    return replace(faults, end_snipes=between(random, 0.4, 4.0)) if ends else faults


def _draw_drain(seed: int | str) -> bool:
    """By a chance of its own, so that all else is drawn as it was before there were drains."""
    return Random(f"{seed}/drain").random() < 0.2


def _draw_reshapes(seed: int | str, shape: Shape) -> Shape:
    """By a chance of its own, too."""
    random = Random(f"{seed}/reshape")
    reshapes = random.choice((0, 0, 1, 3, 8))
    roll_seconds = random.choice((0.0, 0.0, 0.0, between(random, 1.0, 5.0)))
    ordering = random.choice(("cut", "leader"))
    streams = 1 if ordering == "leader" else shape.streams
    return replace(shape, reshapes=reshapes, roll_seconds=roll_seconds, ordering=ordering, streams=streams)


def _draw_sequencer(random: Random, shape: Shape) -> Shape:
    """In a third of the seeds logs begin under a sequencer; stripes may be short, or of one entry each."""
    if random.random() >= 0.33:
        return shape
    unit = max(shape.batch_entries, random.choice((1, 4, 32, 4096)))
    streams, fill_seconds = random.choice((1, 1, 2, 3)), random.choice((1.0, 1.0, 0.1, 0.02))
    return replace(shape, ordering="sequencer", streams=streams, unit=unit, fill_seconds=fill_seconds)


def _draw_journal(seed: int | str, shape: Shape) -> bool:
    """A third of the seeds with a leader have clients that lead."""
    return shape.ordering == "leader" and Random(f"{seed}/candidates").random() < 0.35


def _draw_replication(seed: int | str, shape: Shape) -> str:
    """Where somebody leads, it is a chain in some seeds."""
    led = shape.ordering == "leader" and shape.replicas > 1
    return "chain" if led and Random(f"{seed}/chain").random() < 0.3 else ""


def _draw_quorum(random: Random, shape: Shape) -> Shape:
    """In half of the seeds with a leader: two to five copies, on nodes enough, and any number that may acknowledge.

    In half of the others: with how few of its copies a log goes on; two at least, as one may be lost.
    """
    if random.random() < 0.5:
        return shape
    if shape.ordering != "leader":
        return replace(shape, ack=random.randint(min(2, shape.replicas), shape.replicas))
    replicas = random.choice((2, 3, 3, 4, 4, 5, 5))
    spare = 1 if shape.rebuilds else random.choice((0, 0, 1))
    ack = random.randint(2, replicas)
    nodes = max(shape.nodes, replicas + spare)
    return replace(shape, replicas=replicas, nodes=nodes, ack=ack)


def _draw_policies(random: Random, shape: Shape) -> Shape:
    """In half of the seeds in which logs are changed: all that can be, and mostly more nodes to do it with."""
    if not shape.reshapes or random.random() < 0.5:
        return shape
    return replace(shape, policies=True, nodes=max(shape.nodes, random.choice((1, 4, 5))))


def _draw_conditions(seed: int | str, shape: Shape) -> bool:
    """In half of those in which the ordering may change, whatever logs begin with."""
    return bool(shape.reshapes) and not shape.journal and Random(f"{seed}/expected").random() < 0.5


def _draw_ghosts(seed: int | str, shape: Shape) -> float:
    """In half of those that have a named producer."""
    random = Random(f"{seed}/ghosts")
    return between(random, 0.02, 0.3) if shape.named_producers and random.random() < 0.5 else 0.0


def _draw_scrub(random: Random, faults: FaultWeather, shape: Shape) -> tuple[FaultWeather, Shape]:
    """In a third of the seeds nodes look for rot, and mostly find some, unless other copies are lost for good."""
    if random.random() >= 0.35:
        return faults, shape
    every = between(random, 0.5, 5.0)
    shape = replace(shape, scrub_every_s=every, scrub_bytes_per_s=random.choice((1 << 17, 1 << 20, 8 << 20)))
    if faults.rot or faults.lost_nodes or shape.replicas < 2 or random.random() < 0.2:
        return faults, shape
    return replace(faults, cold_rot=between(random, 0.1, 2.0)), shape


def _draw_direct_nodes(seed: int | str) -> int:
    """All of them, or none."""
    return Random(f"{seed}/direct").choice((0, 16))


def _draw_archivers(seed: int | str, shape: Shape) -> int:
    """Where clients do not trim: what is gone for good and what is archived are different questions."""
    return 0 if shape.trims else Random(f"{seed}/archive").choice((0, 0, 1, 2))


def _draw_store(random: Random, faults: FaultWeather, shape: Shape) -> tuple[FaultWeather, Shape]:
    """One repository may have its store somewhere else, too; whatever is somewhere else is away at times."""
    shape = replace(shape, store_elsewhere=random.random() < 0.2)
    if not shape.shared_store or random.random() < 0.5:
        return faults, shape
    return replace(faults, outages=between(random, 0.1, 1.0), outage_seconds=between(random, 0.1, 5.0)), shape


def _draw_retention(random: Random, shape: Shape) -> Shape:
    """In a quarter of the seeds logs are trimmed by themselves; where somebody archives, only what is archived."""
    if random.random() >= 0.25:
        return shape
    by_time, by_size = random.choice(((True, False), (True, False), (False, True), (True, True)))
    return replace(
        shape,
        retain_seconds=round(between(random, 1.0, 10.0), 3) if by_time else 0.0,
        retain_bytes=random.choice((1 << 16, 1 << 17)) if by_size else 0,
        retain_archived=bool(shape.archivers),
    )


def _draw_rebuild(random: Random, faults: FaultWeather, shape: Shape) -> tuple[FaultWeather, Shape]:
    """Soon or never; fast, or so slowly that much happens meanwhile. Somebody must be there to copy to."""
    rebuild_ms = random.choice((NEVER_MS, NEVER_MS, 50, 500, 2000))
    if rebuild_ms == NEVER_MS:
        return faults, shape
    lost_ms = random.choice((20, 100, 300))
    shape = replace(
        shape,
        rebuild_ms=rebuild_ms,
        lost_ms=lost_ms,
        copy_bytes_per_s=random.choice((1 << 16, 1 << 18, 256 << 20)),
        nodes=max(shape.nodes, shape.replicas + random.choice((1, 1, 2))),
        chaos_seconds=shape.chaos_seconds + 5.0,
        seals=shape.seals or random.random() < 0.3,
    )
    seconds = (rebuild_ms + lost_ms) / 1000 + between(random, 0.2, 5.0)
    return replace(faults, absences=between(random, 0.1, 0.6), absence_seconds=seconds), shape


def _draw_shape(random: Random) -> Shape:
    nodes = random.choice((1, 2, 3, 3, 3, 4, 5))
    batch_entries = random.choice((1, 3, 10))
    pick: Callable[[float, float], float] = lambda low, high: between(random, low, high)  # noqa: E731
    return Shape(
        nodes=nodes,
        volumes=random.choice((1, 1, 2)),
        logs=random.choice((1, 1, 1, 2)),
        streams=random.choice((1, 1, 2, 3)),
        replicas=min(nodes, random.choice((1, 2, 3, 3))),
        clients=random.choice((1, 2, 3)),
        chaos_seconds=pick(2, 12),
        operations_per_second=pick(3, 120),
        burst=random.choice((1, 1, 4, 16)),
        file_bytes=random.choice((1 << 16, 1 << 16, 1 << 20)),
        batch_entries=batch_entries,
        payload_bytes=random.choice((0, 16, 600, 6000)) // batch_entries,
        in_flight=random.choice((1, 4, 16, 64)),
        reads=random.choice((0.0, 0.3, 1.0)),
        tails=random.choice((0.0, 0.2, 0.5)),
        trims=random.choice((0.0, 0.0, 0.02, 0.1)),
        finds=random.choice((0.0, 0.05)),
        subscribers=random.choice((0, 1, 2)),
        producers=random.choice((0, 0, 1, 2)),
        named_producers=random.random() < 0.3,
        seals=random.random() < 0.15,
        lost_ms=random.choice((20, 100, 300, 1000)),
        repositories=random.choice((1, 1, 2, 3)),
    )
