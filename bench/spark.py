"""How fast does Spark read a log, beside the same rows from Parquet; archive it, and audit it? What does a small
micro-batch cost, and how much memory does a task take?

./run python -m bench.spark                 everything, five minutes
./run python -m bench.spark --quick         a twentieth of the rows, once: whether it works, not how fast it is

Ratios within one run are what to look at: both sides share the machine and the minute.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import varlog
from bench.cluster import RunningCluster, running_cluster
from bench.scratch import scratch
from varlog.spark import archive_log, local_session, read
from varlog.spark.audit import audit
from varlog.spark.options import Options

REPLICAS = 2
STREAMS = 2
ROUNDS = 3
BATCH = 1000
MICRO_BATCHES = 20
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "",
    "spark.sql.parquet.compression.codec": "zstd",
}
"""Without what makes Spark quick to start and slow in the long run."""


@dataclass(frozen=True)
class Reading:
    name: str
    rows: int
    log_s: list[float]
    parquet_s: list[float]
    positions_s: list[float]
    archive_s: list[float]
    """Of equal parts of the log, as many as there were rounds."""
    audit_s: float
    before_bytes: int
    """Most memory that a Python worker had before it was archived and audited,"""
    after_bytes: int
    """and afterwards."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, once")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    share, rounds = (20, 1) if options.quick else (1, ROUNDS)
    made = scratch(options.folder)
    with running_cluster(options.folder) as cluster:
        spark = local_session("bench", settings={**SETTINGS, "spark.sql.warehouse.dir": f"{made}/warehouse"})
        readings = [
            reading(spark, cluster, made, f"{rows // share:,} × {size} B", rows // share, size, rounds)
            for rows, size in ((10_000_000, 100), (1_000_000, 1024))
        ]
        own, rate = micro_batches(spark, cluster, made, MICRO_BATCHES // share + 2)
        spark.stop()
    report(readings, own, rate)


def reading(
    spark: SparkSession, cluster: RunningCluster, folder: Path, name: str, rows: int, size: int, rounds: int
) -> Reading:
    log = f"read-{size}"
    say(f"filling {name} …")
    fill(cluster, log, rows, size)
    frame = read(spark, cluster.url, log)
    table = str(folder / log)
    say("writing the same rows as Parquet …")
    frame.write.parquet(table)
    parquet = spark.read.parquet(table)
    positions = read(spark, cluster.url, log, columns=["glsn"])
    times: dict[str, list[float]] = {"log": [], "parquet": [], "positions": []}
    for number in range(rounds):
        say(f"reading, round {number + 1} of {rounds} …")
        for kind, each in (("log", frame), ("parquet", parquet), ("positions", positions)):
            times[kind].append(timed(lambda each=each: discard(each)))  # type: ignore[misc]
    before = most_of_a_worker()
    say("archiving …")
    archive_s = [archived(spark, cluster, log, folder, rows * (part + 1) // rounds) for part in range(rounds)]
    say("auditing …")
    audit_s = timed(lambda: check(not audit(spark, Options(cluster.url, log)).faults))
    measured = (times["log"], times["parquet"], times["positions"], archive_s, audit_s)
    return Reading(name, rows, *measured, before, most_of_a_worker())


def archived(spark: SparkSession, cluster: RunningCluster, log: str, folder: Path, upto: int) -> float:
    """Seconds for what was not yet, up to this position."""
    start = time.perf_counter()
    done = archive_log(spark, cluster.url, log, str(folder / "archive"), upto=upto)
    check(done.stop == upto + 1)
    return time.perf_counter() - start


def check(holds: bool) -> None:
    """What was measured is what was meant."""
    if not holds:
        raise SystemExit("bench: the job did not do what it was to do")


def fill(cluster: RunningCluster, log: str, rows: int, size: int) -> None:
    with varlog.sync.connect(cluster.url, timeout=60) as connected:
        made = connected.create_log(log, replicas=REPLICAS, streams=STREAMS)
        producers = [made.producer(stream=stream + 1).open() for stream in range(STREAMS)]
        for number in range(rows // BATCH):
            data = os.urandom(BATCH * size)  # no two alike, or Parquet would keep them once
            producers[number % STREAMS].send_batch([data[at : at + size] for at in range(0, len(data), size)])
        for producer in producers:
            producer.close()


def discard(frame: DataFrame) -> None:
    """Every row and column is read, and nothing is done with them."""
    frame.write.format("noop").mode("overwrite").save()


def most_of_a_worker() -> int:
    """The peak of resident bytes of the Python processes in which tasks run; they stay for the next task."""
    most = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (path / "cmdline").read_bytes():
                lines = (path / "status").read_text().splitlines()
                most = max(most, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
        except (OSError, TypeError):
            continue  # it has just ended
    return most


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def micro_batches(
    spark: SparkSession, cluster: RunningCluster, folder: Path, count: int
) -> tuple[list[float], list[float]]:
    """What a trigger with little data takes, from the log and from Spark's own source of numbers, in turn."""
    say("micro-batches …")
    with varlog.sync.connect(cluster.url, timeout=60) as connected:
        log = connected.create_log("small", replicas=REPLICAS, streams=STREAMS)
        entries = spark.readStream.format("varlog").option("cluster", cluster.url).option("log", "small").load()
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        own, rate = (start(frame, folder / f"checkpoint{index}") for index, frame in enumerate((entries, numbers)))
        try:
            while len(durations(own)) < count or len(durations(rate)) < count:
                log.append_batch([b"x"] * 10)
                time.sleep(0.1)
        finally:
            own.stop()
            rate.stop()
    return durations(own), durations(rate)


def start(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="1 second").start()


def durations(query: StreamingQuery) -> list[float]:
    """Of the triggers that had data, but for the first, in which everything is loaded."""
    return [each.durationMs["triggerExecution"] / 1e3 for each in query.recentProgress if each.numInputRows][1:]


# ---------------------------------------------------------------- the tables


def report(readings: list[Reading], own: list[float], rate: list[float]) -> None:
    print(
        f"Settings: pyspark {pyspark.__version__} on local[2], Python {platform.python_version()}, 3 storage nodes and"
    )
    print(f"1 repository as processes on the same machine, {REPLICAS} replicas, {STREAMS} streams, batches of {BATCH};")
    print("rows to Spark's no-op sink, all columns; random payloads, Parquet (zstd) as Spark wrote it from the log.")
    print(f"Best of {len(readings[0].log_s)} rounds, and all of them; a round of archiving copies the next part.")
    print()
    print("| rows | log | Parquet | log / Parquet | positions only |")
    print("|---|---|---|---|---|")
    for each in readings:
        ratio = min(each.parquet_s) / min(each.log_s)
        cells = [rates(each.rows, each.log_s), rates(each.rows, each.parquet_s), f"{ratio:.2f}"]
        print(f"| {' | '.join([each.name, *cells, rates(each.rows, each.positions_s)])} |")
    print()
    print("| rows | archived | archive / log | audited, all copies | most memory of a Python worker: reads, all |")
    print("|---|---|---|---|---|")
    for each in readings:
        part = each.rows // len(each.archive_s)
        cells = [rates(part, each.archive_s), f"{part / min(each.archive_s) / (each.rows / min(each.log_s)):.2f}"]
        cells += [rates(each.rows * REPLICAS, [each.audit_s])]
        print(f"| {' | '.join([each.name, *cells])} | {each.before_bytes / 1e6:.0f}, {each.after_bytes / 1e6:.0f} MB |")
    print()
    ratio = median(own) / median(rate)
    print(f"A micro-batch of about 10 entries: {median(own):.3f} s, {ratio:.2f} × that of the rate source in the same")
    print(f"seconds ({median(rate):.3f} s); medians of {len(own)} and {len(rate)}, both queries running at once.")


def rates(rows: int, seconds: list[float]) -> str:
    listed = ", ".join(f"{rows / each / 1e6:.2f}" for each in seconds)
    return f"{rows / min(seconds) / 1e6:.2f} M rows/s" + f" ({listed})" * (len(seconds) > 1)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
