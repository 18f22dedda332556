"""Runs every bench beside the machine's own limits and prints one table, as Markdown.

./run bench                 everything, about two minutes
./run bench --quick         shorter runs, for a first look
./run bench --json FILE     the figures as JSON too
"""

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import varlog
from bench import appends, idle, machine, subscribe
from bench.cluster import RunningCluster, running_cluster
from bench.figures import spread
from varlog.runtime.loop import run

PROTOTYPE_ALONE = 2.75
PROTOTYPE_PATH = 2.6
"""The same where the messages of an append count, too. Derived, not measured: 1.25 ms, the middle of what it took, are
2.75 × 0.45 ms of syncs; with 2.5 echoes of 12 µs, as on its machine, 2.6 × 0.48 ms."""
PROTOTYPE_SHARE = {"1000 × 100 B": 0.26, "100 × 1 KiB": 0.29, "1000 × 1 KiB": 0.41}
"""What the prototype of this design reached of what three processes sync."""
PROTOTYPE_RATE = {
    "alone": (550, 970),
    "64 at once": (39_000, 39_000),
    "256 at once": (83_000, 130_000),
    "1024 at once": (255_000, 290_000),
    "1000 × 100 B": (1_060_000, 1_640_000),
    "100 × 1 KiB": (111_000, 168_000),
    "1000 × 1 KiB": (203_000, 231_000),
}
"""Entries a second that it reached, at least and at most, on a machine whose disk and processors were others."""
REPLICAS = 3


@dataclass(frozen=True)
class Round:
    """The machine's limits, and what was done right after they were measured."""

    limits: machine.Machine
    rates: dict[str, appends.Rate]


@dataclass(frozen=True)
class Figures:
    at_rest: dict[str, float]
    rounds: list[Round]
    readings: list[subscribe.Reading]
    producer: appends.Memory


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with running_cluster(options.folder) as cluster:
        figures = run(measure_all(cluster, options.folder, quick=options.quick))
    for line in report(figures):
        print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(figures), indent=2))


async def measure_all(cluster: RunningCluster, folder: Path, *, quick: bool) -> Figures:
    rounds, seconds, entries = (2, 1.0, 200_000) if quick else (7, 1.5, 1_000_000)
    async with varlog.connect(cluster.url) as connected:
        say("idle …")
        at_rest = await asyncio.to_thread(idle.idle, cluster, 3.0 if quick else 10.0)
        log = await connected.create_log("bench", replicas=REPLICAS, streams=1)
        done = []
        for number in range(rounds):
            say(f"appends, round {number + 1} of {rounds} …")
            limits = await asyncio.to_thread(machine.measure, folder)
            done.append(Round(limits, await one_round(cluster, log, seconds)))
        readings = []
        for size in (100, 1024):
            say(f"subscribe, {size} B …")
            fresh = await connected.create_log(f"read-{size}", replicas=REPLICAS, streams=1)
            readings.append(await subscribe.subscribe(fresh, entries if size == 100 else entries // 4, size))
        say("a producer's memory …")
        return Figures(at_rest, done, readings, await appends.producer(log, entries))


async def one_round(cluster: RunningCluster, log: varlog.Log, seconds: float) -> dict[str, appends.Rate]:
    rates = {}
    for workers in (1, 64, 256, 1024):
        name = "alone" if workers == 1 else f"{workers} at once"
        rates[name] = await appends.singles(cluster, log, workers, seconds)
    for count, size in ((1000, 100), (100, 1024), (1000, 1024)):
        name = f"{count} × {'1 KiB' if size == 1024 else f'{size} B'}"
        rates[name] = await appends.batches(cluster, log, count, size, seconds)
    return rates


# ---------------------------------------------------------------- the tables


def report(figures: Figures) -> Iterator[str]:
    limits = [each.limits for each in figures.rounds]
    yield f"Settings: {REPLICAS} storage nodes and 1 repository as processes, 1 client process, 1 log stream,"
    yield f"{REPLICAS} replicas, every copy and every cut synced before the ack; Python {platform.python_version()};"
    yield "the client has called `varlog.tune_process()`."
    yield f"Medians of {len(limits)} rounds, each beside the machine's limits of the same seconds, and the range."
    yield ""
    yield "| the machine | |"
    yield "|---|---|"
    yield f"| a call of a Python method | {spread([each.call_s * 1e9 for each in limits], '.0f')} ns |"
    yield f"| loopback echo | {spread([each.echo_s * 1e6 for each in limits], '.0f')} µs |"
    yield f"| write and sync 1 KiB | {spread([each.sync_1k_s * 1e6 for each in limits], '.0f')} µs |"
    yield f"| the same after 2 ms of rest | {spread([each.sync_1k_rested_s * 1e6 for each in limits], '.0f')} µs |"
    yield f"| three processes at once | {spread([each.sync_1k_three_s * 1e6 for each in limits], '.0f')} µs |"
    over, fresh = ([rate / 1e6 for rate in rates] for rates in zip(*(each.rates_1m for each in limits), strict=True))
    yield f"| three processes syncing 1 MiB | {spread(over, '.0f')} MB/s |"
    yield f"| the same into files only reserved | {spread(fresh, '.0f')} MB/s |"
    yield f"| an append alone, with no log in it | {spread([each.bare_cut_s * 1e6 for each in limits], '.0f')} µs |"
    yield ""
    yield "| work | entries/s | MB/s | p50, ms | p99, ms | CPU per entry, µs | beside the machine | of prototype |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in figures.rounds[0].rates:
        yield row(name, figures.rounds)
    yield ""
    yield "| subscribe | batches only, first time | batches only | every payload | every entry as an object |"
    yield "|---|---|---|---|---|"
    for figure in figures.readings:
        yield reading(figure)
    yield ""
    producer = figures.producer
    grown = (producer.resident_most - producer.resident_before) / 1e6
    yield (
        f"A producer sending {producer.entries:,} entries of 100 B one by one: "
        f"{producer.entries / producer.seconds:,.0f} entries/s; its resident memory grew by {grown:.0f} MB at most."
    )
    listed = ", ".join(f"{name} {share:.1%}" for name, share in figures.at_rest.items())
    yield f"Idle, share of a core: {listed}."


def row(name: str, rounds: list[Round]) -> str:
    rates = [each.rates[name] for each in rounds]
    beside, versus = compared(name, rounds)
    cells = [
        name,
        spread([each.per_second for each in rates], ",.0f"),
        f"{median(each.bytes_per_second / 1e6 for each in rates):.1f}",
        spread([each.median_s * 1e3 for each in rates], ".2f"),
        f"{median(each.p99_s * 1e3 for each in rates):.1f}",
        spread([each.cpu_per_entry_s * 1e6 for each in rates], ".1f"),
        beside,
        versus,
    ]
    return f"| {' | '.join(cells)} |"


def compared(name: str, rounds: list[Round]) -> tuple[str, str]:
    """Beside the limits of the same round; and beside the prototype: by what it reached of those, and by its rates."""
    rate = median(each.rates[name].per_second for each in rounds)
    least, most = (rate / reached for reached in reversed(PROTOTYPE_RATE[name]))
    by_rate = f"{least:.2f}–{most:.2f} by rate" if least != most else f"{least:.2f} by rate"
    if name == "alone":
        ratios = [each.rates[name].median_s / each.limits.append_alone_s for each in rounds]
        paths = [each.rates[name].median_s / each.limits.append_path_s for each in rounds]
        bare = [each.rates[name].median_s / each.limits.bare_cut_s for each in rounds]
        beside = (
            f"{spread(ratios, '.1f')} × (a sync + a sync by three), {spread(paths, '.1f')} × (those + 2.5 echoes), "
            f"{spread(bare, '.1f')} × with no log in it"
        )
        by_syncs = [PROTOTYPE_ALONE / ratio for ratio in ratios]
        on_path = [PROTOTYPE_PATH / path for path in paths]
        return (
            beside,
            f"{spread(by_syncs, '.2f')} by syncs, {spread(on_path, '.2f')} by syncs and messages, {by_rate}",
        )
    if name in PROTOTYPE_SHARE:
        written = [each.rates[name].bytes_per_second * REPLICAS for each in rounds]
        pairs = [
            (rate / over, rate / fresh)
            for rate, (over, fresh) in zip(written, (each.limits.rates_1m for each in rounds), strict=True)
        ]
        over, fresh = (list(shares) for shares in zip(*pairs, strict=True))
        by_over, by_fresh = ([share / PROTOTYPE_SHARE[name] for share in shares] for shares in (over, fresh))
        return (
            f"{spread(over, '.0%')} of what three processes sync, {spread(fresh, '.0%')} into files only reserved",
            f"{spread(by_over, '.2f')} and {spread(by_fresh, '.2f')} by disk, {by_rate}",
        )
    return "", by_rate


def reading(figure: subscribe.Reading) -> str:
    def cell(seconds: float) -> str:
        rate = figure.entries / seconds
        return f"{rate:,.0f}/s ({rate * figure.entry_bytes / 1e6:,.0f} MB/s)"

    return (
        f"| {figure.entries:,} × {figure.entry_bytes} B | {cell(figure.first_s)} | {cell(figure.batches_s)} "
        f"| {cell(figure.payloads_s)} | {cell(figure.entries_s)} |"
    )


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
