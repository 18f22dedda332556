"""`varlog audit`: a Spark job that reads every copy of a range and proves that log and copies are whole."""

from typing import TYPE_CHECKING

from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, parse_range
from varlog.cli.output import Column, Printer, several
from varlog.cli.small_spark import add_spark_flags, small_spark, told

if TYPE_CHECKING:
    from varlog.spark.audit import Report


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "audit",
        run_audit,
        summary,
        epilog="Exit status 1 if anything is wrong. It reads every byte of every copy: on a large log, give a range.",
    )
    parser.add_argument("log")
    parser.add_argument(
        "range", type=parse_range, nargs="?", metavar="A..B", help="these positions, both included (default: all)"
    )
    add_spark_flags(parser)


def run_audit(arguments: Arguments) -> int:
    first, last = arguments.range or (0, 0)
    with small_spark(arguments.master) as spark, told():
        from varlog.spark.audit import audit
        from varlog.spark.options import Options

        options = Options(
            cluster_url(arguments),
            arguments.log,
            start=first or "earliest",
            stop=last + 1 if last else None,
            timeout=arguments.timeout,
        )
        report = audit(spark, options)
    show(report, Printer(arguments.output))
    return 1 if report.faults else 0


def show(report: "Report", printer: Printer) -> None:
    """Faults first come, for they are what is looked for; the last line is the verdict."""
    faults = [{"positions": f"{each.first}..{each.stop - 1}", "what": each.what} for each in report.faults]
    facts = {
        "log": report.log,
        "first": report.start,
        "last": report.stop - 1,
        "copies": report.copies,
        "batches": report.batches,
        "archive_files": report.files,
        "faults": faults,
    }
    if faults and not printer.json:
        printer.table([Column("positions"), Column("what")], faults)
    printer.done(facts, verdict(report))


def verdict(report: "Report") -> str:
    if report.start >= report.stop:
        return f"there is nothing in {report.log} to audit"
    what = f"positions {report.start:,} to {report.stop - 1:,} of {report.log}"
    if report.faults:
        return f"{what}: {several(len(report.faults), 'fault')}"
    archive = f"; {several(report.files, 'file')} of the archive agree with the log" if report.files else ""
    return (
        f"{what}: each there once, without a gap; {report.batches:,} batches in {report.copies:,} copies of streams "
        f"match their checksums and each other{archive}"
    )
