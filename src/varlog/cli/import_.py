"""`varlog import`: files of JSON lines, CSV or Parquet into a log, on Spark."""

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url
from varlog.cli.output import Printer
from varlog.cli.small_spark import add_spark_flags, small_spark, told


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "import", import_files, summary)
    parser.add_argument("log")
    parser.add_argument("path", help="a file, a folder, or a pattern as Spark takes it")
    parser.add_argument("--format", choices=("json", "csv", "parquet"), help="default: as the file is called")
    parser.add_argument("--key", metavar="NAME", help="the field or column that is the key of an entry")
    parser.add_argument("--identity", metavar="NAME", help="imported again under this name, nothing is there twice")
    add_spark_flags(parser)


def import_files(arguments: Arguments) -> None:
    with small_spark(arguments.master) as spark, told():
        from varlog.spark.transfer import format_of, import_rows, rows_in

        form = format_of(arguments.path, arguments.format)
        frame = rows_in(spark, arguments.path, form, arguments.key)
        rows = import_rows(frame, cluster_url(arguments), arguments.log, arguments.identity, arguments.timeout)
    facts = {"log": arguments.log, "path": arguments.path, "format": form, "rows": rows}
    Printer(arguments.output).done(facts, f"{rows:,} rows of {arguments.path} are in {arguments.log}")
