"""`varlog archive`: what is new in a log into an Iceberg table, on Spark."""

from pathlib import Path

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, positive
from varlog.cli.output import Printer, size
from varlog.cli.small_spark import add_spark_flags, small_spark, told


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "archive",
        run_archive,
        summary,
        epilog="It goes on where the table ends, so that it can be run again and again. Nothing is trimmed.",
    )
    parser.add_argument("log")
    parser.add_argument("folder", type=Path, help="where the table and its catalog are, or will be")
    parser.add_argument("--upto", type=positive, metavar="POSITION", help="no further than this (default: the tail)")
    add_spark_flags(parser)


def run_archive(arguments: Arguments) -> None:
    with small_spark(arguments.master) as spark, told():
        from varlog.spark.archive import archive
        from varlog.spark.options import Options

        options = Options(cluster_url(arguments), arguments.log, timeout=arguments.timeout)
        done = archive(spark, options, arguments.folder, arguments.upto)
    facts = {"log": done.log, "first": done.start, "last": done.stop - 1, "files": done.files, "bytes": done.bytes}
    if done.start == done.stop:
        text = f"everything of {done.log} up to {done.stop - 1:,} is in {arguments.folder} already"
    else:
        where = f"{done.files:,} files of {size(done.bytes)} in {arguments.folder}"
        text = f"positions {done.start:,} to {done.stop - 1:,} of {done.log} are archived: {where}"
    Printer(arguments.output).done(facts, text)
