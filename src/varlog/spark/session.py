"""A small Spark on this machine: for the demo, the command line, tests and first steps."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from varlog.base.errors import Unavailable
from varlog.spark.java import OLDEST, find_java
from varlog.spark.source import VarlogDataSource

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # Quick to start rather than quick in the long run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For short work on one machine; each may be given anew."""


def local_session(
    name: str = "varlog", *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on this machine that knows `format("varlog")`. Spark's logging is left out but for errors."""
    java = find_java()
    if java is None:
        raise Unavailable(f"Spark needs Java {OLDEST} or newer: install it, or set JAVA_HOME")
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(VarlogDataSource)
    return session
