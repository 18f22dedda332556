"""`varlog sql`: a query over logs, each a table of its name."""

import re
from typing import TYPE_CHECKING, Any

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, positive
from varlog.cli.output import Column, Printer, payload, plain
from varlog.cli.small_spark import add_spark_flags, small_spark, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "sql",
        sql,
        summary,
        epilog="Columns: glsn, stream, slot, time, key, headers, payload.\n"
        '  varlog sql "select cast(payload as string), count(*) from orders group by 1"\n'
        "A log whose name has a dash or a dot stands in back quotes.",
    )
    parser.add_argument("query")
    parser.add_argument("--limit", type=positive, default=ROWS, help=f"print no more rows than this (default: {ROWS})")
    add_spark_flags(parser)


def sql(arguments: Arguments) -> None:
    url = cluster_url(arguments)
    logs = mentioned(arguments.query, known_logs(url, arguments.timeout))
    with small_spark(arguments.master) as spark, told():
        columns, rows = run_query(spark, url, logs, arguments.query, arguments.limit + 1)
    printer = Printer(arguments.output)
    printer.table([Column(name, name, show=_shown) for name in columns], rows[: arguments.limit], "no rows")
    if len(rows) > arguments.limit and not printer.json:
        printer.line({}, f"… and more; --limit shows more than {arguments.limit:,}")


def known_logs(url: str, timeout: float) -> list[str]:
    from varlog import sync

    with sync.connect(url, timeout=timeout) as cluster:
        return [log.name for log in cluster.logs()]


def mentioned(query: str, logs: list[str]) -> list[str]:
    """Those whose names stand in the query, in any case, as SQL takes them."""
    words = {word.lower() for word in re.findall(r"[A-Za-z0-9._-]+", query)}
    parts = {part for word in words for part in re.split(r"[^a-z0-9_]", word)}
    return [name for name in logs if name.lower() in words | parts]


def run_query(
    spark: "SparkSession", url: str, logs: list[str], query: str, limit: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns, and so many rows at most."""
    from varlog.spark import read

    for name in logs:
        read(spark, url, name).createOrReplaceTempView(f"`{name}`")
    frame = spark.sql(query)
    return frame.columns, [row.asDict(recursive=True) for row in frame.limit(limit).collect()]


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return payload(bytes(value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(each)}" for name, each in value.items()) or "-"
    return plain(value)
