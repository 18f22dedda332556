"""`varlog sql`: a query over logs, each a table of its name."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, time
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from varlog.base.errors import InvalidArgument
from varlog.cli.frame import DEFAULT_TIMEOUT_S, Arguments, Commands, add_command, cluster_url, positive
from varlog.cli.output import Column, Printer, payload, plain
from varlog.cli.small_spark import add_spark_flags, small_spark, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


class Part(NamedTuple):
    """What is read of a log: positions `[start, stop)`; each may be a time, too."""

    log: str
    start: int | str | datetime = "earliest"
    stop: int | str | datetime | None = None


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "sql",
        sql,
        summary,
        epilog="Columns: glsn, stream, slot, time, key, headers, payload.\n"
        '  varlog sql "select cast(payload as string), count(*) from orders group by 1"\n'
        "A log whose name has a dash or a dot stands in back quotes. Of a large one, read a part:\n"
        '  varlog sql --range orders=1000..2000 "select avg(length(payload)) from orders"\n'
        "  varlog sql --range orders=2026-11-15T12:00:00+00:00.. ...",
    )
    parser.add_argument("query")
    parser.add_argument(
        "--range",
        dest="ranges",
        action="append",
        default=[],
        metavar="LOG=A..B",
        help="read these positions of a log, both included; either end may be a time, or be left out",
    )
    parser.add_argument("--limit", type=positive, default=ROWS, help=f"print no more rows than this (default: {ROWS})")
    add_spark_flags(parser)


def sql(arguments: Arguments) -> None:
    url = cluster_url(arguments)
    logs = mentioned(arguments.query, known_logs(url, arguments.timeout))
    parts = chosen([parse_part(text) for text in arguments.ranges], logs)
    with small_spark(arguments.master) as spark, told():
        columns, rows = run_query(spark, url, parts, arguments.query, arguments.limit + 1, arguments.timeout)
    printer = Printer(arguments.output)
    shown = rows[: arguments.limit]
    printer.table(
        [Column(name, name, show=shown_value) for name in columns],
        [json_value(row) for row in shown] if printer.json else shown,
        "no rows",
    )
    if len(rows) > arguments.limit and not printer.json:
        printer.line({}, f"… and more; --limit shows more than {arguments.limit:,}")


def parse_part(text: str) -> Part:
    """`LOG=A..B`: a position B is included, of a time B what comes before it."""
    from varlog.spark.options import parse_position

    log, equals, wanted = text.partition("=")
    first, dots, last = wanted.partition("..")
    if not (log and equals and dots):
        raise InvalidArgument(f"{text!r} is not a range of a log, like orders=100..200 or orders=100..")
    start = parse_position("range", first) if first else "earliest"
    stop = parse_position("range", last) if last else None
    return Part(log, start, stop + 1 if isinstance(stop, int) else stop)


def chosen(ranges: list[Part], logs: list[str]) -> list[Part]:
    """What is read of each log in the query: all of it, unless a range says otherwise."""
    told = {part.log: part for part in ranges}
    if len(told) < len(ranges):
        raise InvalidArgument("a log has one range: what is beyond it is not in its table")
    for name in told:
        if name not in logs:
            raise InvalidArgument(f"a range of {name!r} is given, which is no log of the query")
    return [told.get(name, Part(name)) for name in logs]


def known_logs(url: str, timeout: float) -> list[str]:
    from varlog import sync

    with sync.connect(url, timeout=timeout) as cluster:
        return [log.name for log in cluster.logs()]


def mentioned(query: str, logs: list[str]) -> list[str]:
    """Those whose names stand in the query, in any case, as SQL takes them."""
    words = set(re.findall(r"[A-Za-z0-9._-]+", query))
    words |= {part for word in words for part in re.split(r"[^A-Za-z0-9_]", word)}
    small = {word.lower() for word in words}
    found = [name for name in logs if name.lower() in small]
    alike = Counter(name.lower() for name in found)
    found = [name for name in found if alike[name.lower()] == 1 or name in words]
    for name, count in Counter(each.lower() for each in found).items():
        if count > 1:
            same = ", ".join(each for each in found if each.lower() == name)
            raise InvalidArgument(f"in SQL {same} are one name: ask for one of them at a time, spelled as it is")
    return found


def run_query(
    spark: "SparkSession", url: str, parts: list[Part], query: str, limit: int, timeout: float = DEFAULT_TIMEOUT_S
) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns, and so many rows at most."""
    from pyspark.sql import Row

    from varlog.spark import read

    def unwrapped(value: Any) -> Any:
        if isinstance(value, Row):
            return {name: unwrapped(each) for name, each in zip(value.__fields__, value, strict=True)}
        if isinstance(value, list):
            return [unwrapped(each) for each in value]
        return {name: unwrapped(each) for name, each in value.items()} if isinstance(value, dict) else value

    for part in parts:
        frame = read(spark, url, part.log, part.start, part.stop, timeout=timeout)
        frame.createOrReplaceTempView(f"`{part.log}`")
    frame = spark.sql(query)
    names = told_apart(frame.columns)
    rows = frame.limit(limit).collect()
    return names, [dict(zip(names, map(unwrapped, row), strict=True)) for row in rows]


def told_apart(names: Iterable[str]) -> list[str]:
    """Columns may have the same name, as those of a join; then the second is NAME_2."""
    apart: list[str] = []
    for name in names:
        number = 1
        while (unique := name if number == 1 else f"{name}_{number}") in apart:
            number += 1
        apart.append(unique)
    return apart


# ---------------------------------------------------------------- values


def shown_value(value: object) -> str:
    """For people."""
    if isinstance(value, bytes | bytearray):
        return payload(bytes(value))
    if isinstance(value, dict):
        return ", ".join(f"{shown_value(name)}={shown_value(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(shown_value, value)) or "-"
    return plain(value)


def json_value(value: Any) -> Any:
    """For programs: what JSON has no word for is text."""
    if isinstance(value, dict):
        return {name if isinstance(name, str) else shown_value(name): json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, bool | int | str | bytes | datetime):
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    return value.isoformat() if isinstance(value, date | time) else str(value)
