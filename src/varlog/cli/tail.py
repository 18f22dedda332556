"""`varlog tail`: the end of a log, and whatever comes."""

from typing import TYPE_CHECKING

from varlog.base.errors import Trimmed
from varlog.cli.entries import EntryPrinter, add_format_flags
from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, positive

if TYPE_CHECKING:
    from varlog.client import Log

DEFAULT_ENTRIES = 10


def register(commands: Commands) -> None:
    parser = add_command(commands, "tail", tail, "print the last entries of a log")
    parser.add_argument("log")
    parser.add_argument(
        "-n", type=positive, default=DEFAULT_ENTRIES, metavar="N", dest="count", help="how many (default: 10)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended, until interrupted")
    add_format_flags(parser)


def tail(arguments: Arguments) -> None:
    from varlog.runtime.loop import run

    run(_tail(arguments))


async def _tail(arguments: Arguments) -> None:
    from varlog.client import connect

    printer = EntryPrinter(arguments.output, raw=arguments.raw)
    async with connect(cluster_url(arguments)) as cluster:
        log = cluster.log(arguments.log)
        end = await log.tail() + 1
        await _print_last(log, max(end - arguments.count, 1), end, printer)
        if arguments.follow:
            async for batch in log.subscribe(start=end).batches():
                for entry in batch:
                    printer.print(entry)
                printer.flush()


async def _print_last(log: "Log", start: int, end: int, printer: EntryPrinter) -> None:
    """Entries [start, end), or those of them that are not trimmed."""
    try:
        if start < end:
            async for entry in log.subscribe(start=start, stop=end):
                printer.print(entry)
    except Trimmed as trimmed:
        if trimmed.first <= start:
            raise
        await _print_last(log, trimmed.first, end, printer)
    printer.flush()
