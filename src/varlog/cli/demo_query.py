"""The end of the demo: a streaming query of Spark over the log that was just written, as a table and a chart."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varlog.cli.output import Column, count, render_table
from varlog.cli.small_spark import small_spark

BAR_CHARACTERS = 50
WRITER = "regexp_extract(cast(payload AS string), 'writer ([0-9]+)', 1)"
"""Of an entry of the demo."""


@dataclass(frozen=True)
class Result:
    """What the query found."""

    writers: list[dict[str, Any]]
    """Of each, how many entries."""
    seconds: list[int]
    """Entries of each second, from the first to the last."""

    @property
    def entries(self) -> int:
        return sum(self.seconds)


def query(url: str, log: str, folder: Path) -> Result:
    """Count the entries by writer and second, in a streaming query that ends at the tail."""
    with small_spark(progress=False) as spark:
        entries = spark.readStream.format("varlog").option("cluster", url).option("log", log).load()
        counts = entries.selectExpr(f"{WRITER} AS writer", "unix_seconds(time) AS second").groupBy("writer", "second")
        writer = counts.count().writeStream.format("memory").queryName("demo")
        checkpoint = str(folder / "checkpoint")
        running = writer.outputMode("complete").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running.start().awaitTermination()
        found = [row.asDict() for row in spark.table("demo").collect()]
    return summed(found)


def summed(rows: Sequence[dict[str, Any]]) -> Result:
    """By writer, and by second."""
    if not rows:
        return Result([], [])
    writers: dict[str, int] = {}
    seconds: dict[int, int] = {}
    for row in rows:
        writers[row["writer"]] = writers.get(row["writer"], 0) + row["count"]
        seconds[row["second"]] = seconds.get(row["second"], 0) + row["count"]
    span = range(min(seconds), max(seconds) + 1)
    return Result(
        [{"writer": int(writer), "entries": writers[writer]} for writer in sorted(writers)],
        [seconds.get(second, 0) for second in span],
    )


def page(result: Result) -> list[str]:
    """Lines for people."""
    most = max(result.seconds, default=0)
    lines = render_table([Column("writer", right=True), count("entries")], result.writers, sys.stderr)
    for second, entries in enumerate(result.seconds):
        bar = "█" * round(BAR_CHARACTERS * entries / max(1, most))
        lines.append(f"{second:4d} s  {entries:6,}  {bar}".rstrip())
    return ["", *lines, ""]
