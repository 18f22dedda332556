"""The end of the demo: a streaming query of Spark over the log that was just written, as a table and a chart."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varlog.base.errors import VarlogError
from varlog.cli.output import Column, count, render_table

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


def why_not() -> str:
    """What is missing for Spark; empty if nothing is."""
    try:
        import pyspark  # noqa: F401 - looked for, not used
    except ImportError:
        return "without Spark here, no query: pip install 'varlog[spark]'"
    from varlog.spark.java import OLDEST, find_java

    return "" if find_java() else f"without Java {OLDEST} or newer here, no query"


def query(url: str, log: str, folder: Path) -> Result:
    """Count the entries by writer and second, in a streaming query that ends at the tail."""
    from varlog.spark import local_session

    with hushed(folder):
        spark = local_session("varlog-demo", settings={"spark.sql.warehouse.dir": str(folder / "warehouse")})
    try:
        entries = spark.readStream.format("varlog").option("cluster", url).option("log", log).load()
        counts = entries.selectExpr(f"{WRITER} AS writer", "unix_seconds(time) AS second").groupBy("writer", "second")
        writer = counts.count().writeStream.format("memory").queryName("demo")
        checkpoint = str(folder / "checkpoint")
        running = writer.outputMode("complete").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running.start().awaitTermination()
        found = [row.asDict() for row in spark.table("demo").collect()]
    finally:
        spark.stop()
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


@contextmanager
def hushed(folder: Path) -> Iterator[None]:
    """What a Java started in this block says goes to a file: shown if the block fails, and only then."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile(dir=folder) as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except Exception as error:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise VarlogError(f"Spark did not start: {' '.join(last) or error}") from error
        finally:
            os.dup2(own, 2)
            os.close(own)
