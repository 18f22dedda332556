"""`varlog sim`: simulated clusters under faults, a run for each seed."""

import time
from collections import Counter
from typing import TYPE_CHECKING

from varlog.base.errors import InvalidArgument
from varlog.cli.frame import Arguments, Commands, add_command, positive
from varlog.cli.output import Printer
from varlog.cli.progress import Progress, duration

if TYPE_CHECKING:
    from varlog.sim.run import Result


def register(commands: Commands, summary: str) -> None:
    parser = add_command(
        commands,
        "sim",
        simulate,
        summary,
        epilog="A failing seed is printed with its evidence and the command that replays it.",
        hints="files",
    )
    parser.add_argument("--seeds", type=positive, default=100, metavar="N", help="how many (default: 100)")
    parser.add_argument("--from", type=positive, default=1, metavar="S", dest="first", help="the first (default: 1)")
    parser.add_argument("--jobs", type=positive, default=0, metavar="J", help="processes (default: one per core)")
    parser.add_argument("--trace", action="store_true", help="print what happens, step by step; with --seeds 1")
    parser.add_argument("--plant", metavar="BUG", help="run with a known bug, to see it caught")


def simulate(arguments: Arguments) -> int:
    if arguments.trace:
        return _trace(arguments)
    from varlog.sim.run import run_seeds

    started = time.monotonic()
    failed: list[Result] = []
    faults: Counter[str] = Counter()
    virtual_seconds = 0.0
    printer = Printer(arguments.output)
    with Progress("seeds", total=arguments.seeds) as progress:
        for result in run_seeds(arguments.first, arguments.seeds, arguments.jobs, plant=arguments.plant):
            faults.update(result.faults)
            virtual_seconds += result.virtual_seconds
            if not result.ok:
                failed.append(result)
                if not printer.json:
                    progress.close()
                    print(result.describe() + "\n", flush=True)
            progress.advance(note=f"{len(failed)} failed" if failed else "")
    seconds = time.monotonic() - started
    last = arguments.first + arguments.seeds - 1
    facts = {
        "first": arguments.first,
        "last": last,
        "seconds": round(seconds, 1),
        "virtual_seconds": round(virtual_seconds),
        "faults": dict(sorted(faults.items())),
        "failed": [
            {"seed": result.seed, "invariants": result.invariants, "replay": result.replay} for result in failed
        ],
    }
    what = f"{arguments.seeds:,} seeds, {arguments.first} to {last}," if arguments.seeds > 1 else f"seed {last}"
    verdict = f"{len(failed)} FAIL" if failed else "all pass" if arguments.seeds > 1 else "passes"
    struck = ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.items())) or "none"
    played = f"{duration(virtual_seconds)} of virtual time; faults: {struck}"
    printer.done(facts, f"{what} in {duration(seconds)}: {verdict}\n{played}")
    return 1 if failed else 0


def _trace(arguments: Arguments) -> int:
    from varlog.sim.run import run_seed

    if arguments.seeds != 1:
        raise InvalidArgument("a trace is of one seed: add --seeds 1")
    result = run_seed(arguments.first, trace=True, plant=arguments.plant, sink=print)
    print(result.describe())
    return 0 if result.ok else 1
