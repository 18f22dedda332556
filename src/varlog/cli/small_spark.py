"""A Spark on this machine for one command: quiet, with a bar that shows how far its tasks are, gone afterwards."""

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from varlog.base import errors
from varlog.base.errors import InvalidArgument, Unsupported, VarlogError
from varlog.cli.frame import Parser
from varlog.cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.2
"""Between two looks at how far Spark is."""
MEMORY = "2g"


def add_spark_flags(parser: Parser) -> None:
    parser.add_argument("--master", default="local[*]", help="the Spark to run on (default: all cores of this machine)")


def why_not() -> str:
    """What is missing for Spark, and how to get it; empty if nothing is."""
    try:
        import pyspark  # noqa: F401 - looked for, not used
    except ImportError:
        return "pip install 'varlog[spark]' brings it"
    from varlog.spark.java import OLDEST, find_java

    return "" if find_java() else f"it needs Java {OLDEST} or newer; install it, or set JAVA_HOME"


@contextmanager
def small_spark(master: str = "local[2]", *, progress: bool = True) -> "Iterator[SparkSession]":
    """A session; what Java says is kept from the terminal."""
    if missing := why_not():
        raise Unsupported(f"this command runs on Spark: {missing}")
    from varlog.spark import local_session

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # whatever fails is told in one line
    with tempfile.TemporaryDirectory(prefix="varlog-spark-", ignore_cleanup_errors=True) as made:
        settings = {"spark.sql.warehouse.dir": f"{made}/warehouse", "spark.driver.memory": MEMORY}
        with hushed(Path(made)):
            spark = local_session("varlog", master=master, settings=settings)
        try:
            with watched(spark) if progress else _nothing():
                yield spark
        finally:
            spark.stop()


OURS = re.compile(r"varlog\.base\.errors\.(\w+): (.*)")


@contextmanager
def told() -> Iterator[None]:
    """What Spark raises, in one line: the last of ours as what it was, if the error was ours, or else the first."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except PySparkException as error:
        lines = str(error).strip().splitlines()
        ours = [match for line in lines if (match := OURS.match(line))]
        if not ours:
            kind = InvalidArgument if isinstance(error, AnalysisException) else VarlogError
            raise kind(next(iter(lines), type(error).__name__)) from error
        raise getattr(errors, ours[-1][1], VarlogError)(ours[-1][2]) from error


@contextmanager
def hushed(folder: Path) -> Iterator[None]:
    """What a program started in this block says goes to a file: its last line is shown if the block fails."""
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


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def watched(spark: "SparkSession") -> Iterator[None]:
    """Show on a terminal how many tasks are done, of those that Spark knows of by now."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, over), name="progress", daemon=True)
    if sys.stderr.isatty():
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if watcher.is_alive():
            watcher.join()


def _watch(spark: "SparkSession", over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    with Progress("tasks") as progress:
        while not over.wait(LOOK_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            done = sum(each[0] for each in seen.values())
            left = sum(each[1] - each[0] for each in seen.values())
            progress.advance(done - progress.done, note=f"{left} to go")
