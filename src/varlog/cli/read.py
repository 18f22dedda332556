"""`varlog read`: a range of positions."""

from varlog.base.errors import NotWritten
from varlog.cli.entries import EntryPrinter, add_format_flags
from varlog.cli.frame import Arguments, Commands, add_command, cluster_url, parse_range


def register(commands: Commands) -> None:
    parser = add_command(commands, "read", read, "print the entries of a range, both ends included")
    parser.add_argument("log")
    parser.add_argument("range", type=parse_range, metavar="A..B", help="1..100; 100.. to the tail; or one position")
    add_format_flags(parser)


def read(arguments: Arguments) -> None:
    from varlog.runtime.loop import run

    run(_read(arguments))


async def _read(arguments: Arguments) -> None:
    from varlog.client import connect

    first, last = arguments.range
    printer = EntryPrinter(arguments.output, raw=arguments.raw)
    async with connect(cluster_url(arguments)) as cluster:
        log = cluster.log(arguments.log)
        if first == last:
            printer.print(await log.read(first))
            return
        tail = await log.tail()
        if last > tail:
            raise NotWritten(f"the log {arguments.log} ends at {tail}", tail)
        stop = (last or tail) + 1
        if first < stop:
            async for entry in log.subscribe(start=first, stop=stop):
                printer.print(entry)
