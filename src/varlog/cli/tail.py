"""`varlog tail`: the end of a log, and whatever comes."""

from typing import TYPE_CHECKING

from varlog.base.errors import Trimmed
from varlog.cli.entries import EntryPrinter, add_format_flags
from varlog.cli.frame import Arguments, Commands, add_command, positive, with_cluster

if TYPE_CHECKING:
    from varlog.client import Cluster, Log, Subscription

DEFAULT_ENTRIES = 10


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "tail", tail, summary)
    parser.add_argument("log")
    parser.add_argument(
        "-n", type=positive, default=DEFAULT_ENTRIES, metavar="N", dest="count", help="how many (default: 10)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended, until interrupted")
    add_format_flags(parser)


def tail(arguments: Arguments) -> None:
    printer = EntryPrinter(arguments.output, raw=arguments.raw)

    async def work(cluster: "Cluster") -> None:
        log = cluster.log(arguments.log)
        end = await log.tail() + 1
        await _print_last(log, max(end - arguments.count, 1), end, printer)
        if arguments.follow:
            await _print(log.subscribe(start=end), printer)

    with_cluster(arguments, work)


async def _print_last(log: "Log", start: int, end: int, printer: EntryPrinter) -> None:
    """Entries [start, end), or those of them that are not trimmed."""
    if start >= end:
        return
    try:
        await _print(log.subscribe(start=start, stop=end), printer)
    except Trimmed as trimmed:
        if trimmed.first <= start:
            raise
        await _print_last(log, trimmed.first, end, printer)


async def _print(subscription: "Subscription", printer: EntryPrinter) -> None:
    async for run in subscription.runs():
        for batch in run:
            for entry in batch:
                printer.print(entry)
        printer.flush()
