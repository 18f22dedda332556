"""Runs every bench beside the machine's own limits and prints one table, as Markdown.

./run bench                 everything, about two minutes
./run bench --quick         shorter runs, for a first look
./run bench --json FILE     the figures as JSON too
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import varlog
from bench import appends, idle, machine, subscribe
from bench.cluster import RunningCluster, running_cluster
from varlog.runtime.loop import run

PROTOTYPE_ALONE = 2.75
PROTOTYPE_SHARE = {"1000 × 100 B": 0.26, "100 × 1 KiB": 0.29, "1000 × 1 KiB": 0.41}
"""What the prototype of this design reached of the same limits; see docs/benchmarks.md."""
REPLICAS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    seconds = 1.5 if options.quick else 5.0
    entries = 200_000 if options.quick else 1_000_000
    say("measuring the machine …")
    limits = machine.measure(options.folder)
    with running_cluster(options.folder) as cluster:
        say("idle …")
        at_rest = idle.idle(cluster, 3.0 if options.quick else 10.0)
        figures = run(measure_all(cluster, seconds, entries))
    for line in report(limits, at_rest, figures):
        print(line)
    if options.json is not None:
        found = {"machine": asdict(limits), "idle": at_rest}
        found |= {name: asdict(figure) for name, figure in figures.items()}
        options.json.write_text(json.dumps(found, indent=2))


Figures = dict[str, "appends.Rate | appends.Memory | subscribe.Reading"]


async def measure_all(cluster: RunningCluster, seconds: float, entries: int) -> Figures:
    figures: Figures = {}
    async with varlog.connect(cluster.url) as connected:
        log = await connected.create_log("bench", replicas=REPLICAS, streams=1)
        for workers in (1, 64, 256, 1024):
            name = "alone" if workers == 1 else f"{workers} at once"
            say(f"{name} …")
            figures[name] = await appends.singles(cluster, log, workers, seconds)
        for count, size in ((1000, 100), (100, 1024), (1000, 1024)):
            name = f"{count} × {'1 KiB' if size == 1024 else f'{size} B'}"
            say(f"batches of {name} …")
            figures[name] = await appends.batches(cluster, log, count, size, seconds)
        for size in (100, 1024):
            say(f"subscribe, {size} B …")
            fresh = await connected.create_log(f"read-{size}", replicas=REPLICAS, streams=1)
            figures[f"subscribe {size}"] = await subscribe.subscribe(
                fresh, entries if size == 100 else entries // 4, size
            )
        say("a producer's memory …")
        figures["producer"] = await appends.producer(log, entries)
    return figures


def report(limits: machine.Machine, at_rest: dict[str, float], figures: Figures) -> Iterator[str]:
    yield f"Settings: {REPLICAS} storage nodes and 1 repository as processes, 1 client process, 1 log stream,"
    yield f"{REPLICAS} replicas, every copy and every cut synced before the ack; Python {platform.python_version()}."
    yield ""
    yield f"Machine: loopback echo {limits.echo_s * 1e6:.0f} µs; write + sync of 1 KiB {limits.sync_1k_s * 1e6:.0f} µs,"
    yield f"by three processes at once {limits.sync_1k_three_s * 1e6:.0f} µs; three processes syncing 64 KiB"
    yield f"{limits.write_three_64k / 1e6:.0f} MB/s, 1 MiB {limits.write_three_1m / 1e6:.0f} MB/s in all."
    yield ""
    yield "| work | entries/s | MB/s | p50 | p99 | CPU per entry | beside the machine | of the prototype's |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, figure in figures.items():
        if isinstance(figure, appends.Rate):
            yield row(name, figure, limits)
    yield ""
    yield "| subscribe | batches only | every payload | every entry as an object |"
    yield "|---|---|---|---|"
    for figure in figures.values():
        if isinstance(figure, subscribe.Reading):
            yield reading(figure)
    yield ""
    for figure in figures.values():
        if isinstance(figure, appends.Memory):
            grown = (figure.resident_most - figure.resident_before) / 1e6
            yield (
                f"A producer sending {figure.entries:,} entries of 100 B one by one: "
                f"{figure.entries / figure.seconds:,.0f} entries/s; its resident memory grew by {grown:.0f} MB at most."
            )
    listed = ", ".join(f"{name} {share:.1%}" for name, share in at_rest.items())
    yield f"Idle, share of a core: {listed}."


def row(name: str, rate: appends.Rate, limits: machine.Machine) -> str:
    beside = versus = ""
    if name == "alone":
        ratio = rate.median_s / limits.append_alone_s
        beside, versus = f"{ratio:.1f} × (a sync + a sync by three)", f"{PROTOTYPE_ALONE / ratio:.2f}"
    elif name in PROTOTYPE_SHARE:
        share = rate.bytes_per_second * REPLICAS / limits.write_three_1m
        beside, versus = f"{share:.0%} of what three processes sync", f"{share / PROTOTYPE_SHARE[name]:.2f}"
    return (
        f"| {name} | {rate.per_second:,.0f} | {rate.bytes_per_second / 1e6:.1f} | {rate.median_s * 1e3:.2f} ms "
        f"| {rate.p99_s * 1e3:.1f} ms | {rate.cpu_per_entry_s * 1e6:.1f} µs | {beside} | {versus} |"
    )


def reading(figure: subscribe.Reading) -> str:
    def cell(seconds: float) -> str:
        rate = figure.entries / seconds
        return f"{rate:,.0f}/s ({rate * figure.entry_bytes / 1e6:,.0f} MB/s)"

    return (
        f"| {figure.entries:,} × {figure.entry_bytes} B | {cell(figure.batches_s)} "
        f"| {cell(figure.payloads_s)} | {cell(figure.entries_s)} |"
    )


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
