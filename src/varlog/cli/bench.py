"""`varlog bench`: what this machine reaches. The benches themselves are in the source tree, one file per question."""

import os
import sys
from pathlib import Path

import varlog
from varlog.base.errors import Unsupported
from varlog.cli.frame import Arguments, Commands, add_command


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "bench", bench, summary, hints="files")
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first look")
    parser.add_argument("--folder", type=Path, help="on which disk (default: this folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")


def bench(arguments: Arguments) -> None:
    tree = Path(varlog.__file__).parents[2]
    if not (tree / "bench" / "__main__.py").exists():
        raise Unsupported("the benches come with the source tree, not with the installed package: ./run bench there")
    options = ["--quick"] if arguments.quick else []
    for name in ("folder", "json"):
        if value := getattr(arguments, name):
            options += [f"--{name}", str(value.absolute())]
    os.chdir(tree)
    os.execv(sys.executable, [sys.executable, "-m", "bench", *options])
