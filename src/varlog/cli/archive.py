"""`varlog archive`: what is new in a log into an Iceberg table, on Spark."""

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, positive
from varlog.cli.output import Printer, several, size
from varlog.cli.small_spark import add_spark_flags, small_spark, told


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "archive",
        run_archive,
        summary,
        epilog="It goes on where the archive ends, so that it can be run again and again, and records in the "
        "repository how far it came: reads go through archive and log. Credentials for S3 are those of the "
        "environment. Nothing is trimmed.",
    )
    parser.add_argument("log")
    parser.add_argument("location", help="where the table is, or will be: a folder, or s3://bucket/prefix")
    parser.add_argument("--endpoint", metavar="URL", help="the S3 server (default: AWS_ENDPOINT_URL, or Amazon's)")
    parser.add_argument("--region", help="of the bucket (default: AWS_REGION)")
    parser.add_argument("--upto", type=positive, metavar="POSITION", help="no further than this (default: the tail)")
    add_spark_flags(parser)


def run_archive(arguments: Arguments) -> None:
    with small_spark(arguments.master) as spark, told():
        from varlog.spark import archive_log

        done = archive_log(
            spark,
            cluster_url(arguments),
            arguments.log,
            arguments.location,
            upto=arguments.upto,
            endpoint=arguments.endpoint,
            region=arguments.region,
            timeout=arguments.timeout,
        )
    facts = {"log": done.log, "first": done.start, "last": done.stop - 1, "files": done.files, "bytes": done.bytes}
    if done.start == done.stop:
        text = f"everything of {done.log} up to {done.stop - 1:,} is in {arguments.location} already"
    else:
        where = f"{several(done.files, 'file')} of {size(done.bytes)} in {arguments.location}"
        text = f"positions {done.start:,} to {done.stop - 1:,} of {done.log} are archived: {where}"
    Printer(arguments.output).done(facts, text)
