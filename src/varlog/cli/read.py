"""`varlog read`: a range of positions."""

from typing import TYPE_CHECKING

from varlog.base.errors import NotWritten
from varlog.cli.entries import EntryPrinter, add_format_flags
from varlog.cli.frame import Arguments, Commands, add_command, parse_range, with_cluster

if TYPE_CHECKING:
    from varlog.client import Cluster


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "read", read, summary)
    parser.add_argument("log")
    parser.add_argument("range", type=parse_range, metavar="A..B", help="1..100; 100.. to the tail; or one position")
    add_format_flags(parser)


def read(arguments: Arguments) -> None:
    first, last = arguments.range
    printer = EntryPrinter(arguments.output, raw=arguments.raw)

    async def work(cluster: "Cluster") -> None:
        log = cluster.log(arguments.log)
        if first == last:
            printer.print(await log.read(first))
            return
        tail = await log.tail()
        if max(first, last) > tail:
            raise NotWritten(f"the log {arguments.log} ends at {tail}", tail)
        async for batch in log.subscribe(start=first, stop=(last or tail) + 1).batches():
            for entry in batch:
                printer.print(entry)

    with_cluster(arguments, work)
