"""The entry point: finds the command, runs it, and turns every failure into one clear line.

Exit status: 0 success, 1 failure, 2 the command makes no sense as it stands, 130 interrupted.
"""

import importlib
import io
import keyword
import os
import sys
import traceback
from collections.abc import Sequence

from varlog import __version__
from varlog.base import errors
from varlog.cli.frame import Arguments, Parser, shared_flags
from varlog.cli.output import styled

FAMILIES = {
    "demo": "a real cluster at work, processes killed under it, nothing lost",
    "up": "run a local cluster in the foreground, each node and repository its own process",
    "log": "logs: create, ls, show, reconfigure, seal, trim, rm",
    "append": "append standard input, or a file, to a log",
    "read": "print the entries of a range, both ends included",
    "tail": "print the last entries of a log",
    "status": "what is wrong, then all nodes and logs, on one page",
    "node": "storage nodes: start, ls, add, drain, check, scrub, rm",
    "repository": "metadata repositories: start, ls",
    "import": "files of JSON lines, CSV or Parquet into a log, on Spark",
    "export": "a range of a log into files of JSON lines, CSV or Parquet, on Spark",
    "sql": "a query over logs, on Spark",
    "archive": "copy what is new in a log into an Iceberg table, on Spark",
    "audit": "prove that a log and all its copies are whole, on Spark",
    "segment": "files of a storage node: dump, verify",
    "bench": "measure appends and reads beside the machine's own limits",
    "sim": "run simulated clusters under faults and check the invariants",
}
"""Modules of this package, each with `register`, in the order of the help text."""

HINTS: dict[str, dict[type[errors.VarlogError], str]] = {
    "client": {
        errors.Unavailable: "is the cluster running, and --cluster right? `varlog up` starts one on this machine",
        errors.Timeout: "`varlog status` shows which part of the cluster is missing",
        errors.OutcomeUnknown: "it may have happened all the same",
        errors.NoSpace: "make room on the volume, or trim logs",
        errors.Overloaded: "try again in a moment",
    },
    "server": {
        errors.Unavailable: "end the process that has it, or choose another with --listen or --data",
    },
    "up": {
        errors.Unavailable: "end the process that has it, or choose another with --port or --data",
    },
    "files": {},
}
"""What to do next, by the side a command is on, where the message alone does not say. The nearest class counts."""
HINTS["connected"] = {**HINTS["client"], errors.Unavailable: "`varlog status` shows the whole cluster"}


def build_parser(argv: Sequence[str]) -> Parser:
    """All commands; only those that `argv` may mean are loaded in full."""
    parser = Parser(
        prog="varlog",
        description="A replicated, totally ordered log.",
        epilog="`varlog COMMAND --help` tells more of each.",
        parents=[shared_flags(top=True)],
    )
    parser.add_argument("--version", action="version", version=f"varlog {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for family, summary in FAMILIES.items():
        if family in argv:
            module = f"{family}_" if keyword.iskeyword(family) else family
            importlib.import_module(f"varlog.cli.{module}").register(commands, summary)
        else:
            commands.add_parser(family, help=summary)
    return parser


def hint(error: errors.VarlogError, side: str) -> str:
    """What to do next, if there is anything to say."""
    known = HINTS[side]
    return next((known[kind] for kind in type(error).__mro__ if kind in known), "")


def complain(message: str, advice: str = "") -> None:
    """One line on standard error."""
    line = " ".join(message.split())
    prefix = styled("varlog:", "red", sys.stderr)
    print(f"{prefix} {line}" + (f"; {advice}" if advice else ""), file=sys.stderr)


def run(arguments: Arguments) -> int:
    """Run the chosen command."""
    try:
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
    except errors.VarlogError as error:
        parent_tells = getattr(arguments, "until_eof", False)  # who started us knows better what to do next
        complain(error.message, "" if parent_tells else hint(error, arguments.hints))
        return 2 if isinstance(error, errors.InvalidArgument) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing may be flushed into the broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - a person is never shown a traceback unasked
        if os.environ.get("VARLOG_TRACEBACK"):
            traceback.print_exc()
        advice = "this is a bug; VARLOG_TRACEBACK=1 shows where"
        complain(f"internal error: {type(error).__name__}: {error}", advice)
        return 1
    return int(status)


def mend_streams() -> None:
    """What the encoding of a terminal has no letter for is escaped; who closed our output wants none."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    mend_streams()
    given = sys.argv[1:] if argv is None else argv
    return run(build_parser(given).parse_args(given))


if __name__ == "__main__":
    sys.exit(main())
