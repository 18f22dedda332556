"""What every family of commands is built with: sub-parsers, the flags all share, errors that are one line.

A family's module has `register(commands, summary)`. It adds its parsers and names the function that runs
each; such a function gets the parsed arguments and returns an exit status (none means 0). Modules import
what is heavy inside those functions, so that a wrong flag is told at once.
"""

import argparse
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from varlog.base.errors import InvalidArgument

if TYPE_CHECKING:
    from varlog.client import Cluster

Result = TypeVar("Result")

Arguments: TypeAlias = argparse.Namespace
Run = Callable[[Arguments], int | None]
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

DEFAULT_CLUSTER = "varlog://127.0.0.1:7700"
SCHEME = "varlog://"
DEFAULT_TIMEOUT_S = 30.0


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"varlog: {message} (see: {self.prog} --help)\n")


def shared_flags(*, top: bool) -> Parser:
    """Flags that may stand before or behind the command; behind it they have no default, so as to undo nothing."""
    flags = Parser(add_help=False)
    group = flags.add_argument_group("everywhere")
    group.add_argument(
        "--cluster",
        metavar="URL",
        default=None if top else argparse.SUPPRESS,
        help=f"repository address(es), comma separated (default: VARLOG_CLUSTER, or {DEFAULT_CLUSTER})",
    )
    group.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table" if top else argparse.SUPPRESS,
        help="how to print results (default: table)",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        default=DEFAULT_TIMEOUT_S if top else argparse.SUPPRESS,
        help=f"seconds that a question to the cluster may take (default: {DEFAULT_TIMEOUT_S:g})",
    )
    return flags


def add_command(
    commands: Commands,
    name: str,
    run: Run,
    summary: str,
    *,
    epilog: str = "",
    hints: str = "client",
) -> Parser:
    """A command with the shared flags; the caller adds its own. `hints` is the side it is on when things go wrong."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        parents=[shared_flags(top=False)],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, hints=hints)
    return parser


def add_family(commands: Commands, name: str, summary: str) -> Commands:
    """A command that only has sub-commands."""
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)


def cluster_url(arguments: Arguments) -> str:
    """Flag, then environment, then the default."""
    url: str = arguments.cluster or os.environ.get("VARLOG_CLUSTER") or DEFAULT_CLUSTER
    if "://" in url and not url.startswith(SCHEME):
        raise InvalidArgument(f"a cluster is named like {DEFAULT_CLUSTER}, not {url}")
    return url if url.startswith(SCHEME) else SCHEME + url


def with_cluster(arguments: Arguments, work: "Callable[[Cluster], Coroutine[Any, Any, Result]]") -> "Result":
    """Connect, do the work, disconnect."""
    from varlog.client import connect
    from varlog.runtime.loop import run

    async def connected() -> Result:
        async with connect(cluster_url(arguments), timeout=arguments.timeout) as cluster:
            arguments.hints = "connected"  # what goes wrong from here on is not that nobody is there
            return await work(cluster)

    return run(connected())


def somebody_there() -> bool:
    """Whether a question would be seen, and could be answered."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def confirmed(question: str) -> bool:
    """Ask on the terminal; the end of input is no yes."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def positive(text: str) -> int:
    """An argument that is a whole number above zero."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def node_ids(text: str) -> list[int]:
    """An argument that lists nodes."""
    return [positive(part) for part in split_addresses([text])]


def byte_count(text: str) -> int:
    """An argument that is a size: a whole number of bytes, or with one of K, M, G, T behind it."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    shift = units.get(text[-1:].upper(), 0)
    try:
        number = int(text[:-1] if shift else text) << shift
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it like 64M or 1G, or 0 for no limit")
    return number


def seconds(text: str) -> float:
    """An argument that is a time above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above zero")
    return number


def parse_range(text: str) -> tuple[int, int]:
    """`A..B` as positions, both included in what is printed; `A` alone is one position, `A..` goes to the tail (0)."""
    first, dots, last = text.partition("..")
    try:
        start = 1 if dots and not first else int(first)
        stop = (int(last) if last else 0) if dots else start
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range; write it like 1..100, 100.., ..100 or 7") from None
    if start < 1 or (last and stop < start):
        raise argparse.ArgumentTypeError(f"{text!r} is an empty range; positions start at 1")
    return start, stop


def split_addresses(values: Sequence[str]) -> tuple[str, ...]:
    """`a,b` and repeated flags alike."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
