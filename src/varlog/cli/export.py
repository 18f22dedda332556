"""`varlog export`: a range of a log into files of JSON lines, CSV or Parquet, on Spark."""

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, parse_range
from varlog.cli.output import Printer
from varlog.cli.small_spark import add_spark_flags, small_spark, told


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "export", export, summary)
    parser.add_argument("log")
    parser.add_argument("path", help="a folder that is made")
    parser.add_argument("range", type=parse_range, nargs="?", metavar="A..B", help="both included (default: all)")
    parser.add_argument("--format", choices=("json", "csv", "parquet"), help="default: as the folder is called")
    add_spark_flags(parser)


def export(arguments: Arguments) -> None:
    first, last = arguments.range or (0, 0)
    with small_spark(arguments.master) as spark, told():
        from varlog.spark.transfer import export_rows, format_of

        form = format_of(arguments.path, arguments.format)
        stop = last + 1 if last else None
        url = cluster_url(arguments)
        start, path = first or "earliest", arguments.path
        rows = export_rows(spark, url, arguments.log, start, stop, path, form, arguments.timeout)
    facts = {"log": arguments.log, "path": arguments.path, "format": form, "rows": rows}
    Printer(arguments.output).done(facts, f"{rows:,} entries of {arguments.log} are in {arguments.path}")
