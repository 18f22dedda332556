"""What `./run test` runs: all checks one after the other, stopping at the first that fails.

With arguments, pytest alone with these (`./run test -k trim`, `./run test tests/wire`).
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

SIMULATION_SEEDS = 200
"""How many seeds every run of the checks simulates; always the same ones, so that red or green means something."""

WORKERS = 4
"""Processes that share the tests, a file at a time (`tests/conftest.py`); many tests mostly wait."""


@dataclass(frozen=True)
class Step:
    """One check: a headline and a command whose exit status is the verdict."""

    name: str
    command: list[str]


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def steps() -> list[Step]:
    """Cheap ones first."""
    sources = [name for name in ("src", "tests", "tools", "bench") if (ROOT / name).is_dir()]
    return [
        Step("ruff check", [str(BIN / "ruff"), "check"]),
        Step("ruff format", [str(BIN / "ruff"), "format", "--check"]),
        Step("generated messages", python("tools/protobuf.py", "--check")),
        Step("determinism", python("tools/determinism.py")),
        Step("layers", [str(BIN / "lint-imports"), "--no-logo"]),
        Step("mypy", python("-m", "mypy", "--strict", *sources)),
        Step("pytest", python("-m", "pytest", "-n", str(WORKERS), "--dist", "loadscope", "--no-loadscope-reorder")),
        Step("simulation", [str(BIN / "varlog"), "sim", "--from", "1", "--seeds", str(SIMULATION_SEEDS)]),
    ]


def run(step: Step) -> str:
    """Run one step, its output shown as it comes; returns the last line of it. Exits when the step fails."""
    last = ""
    process = subprocess.Popen(step.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    status = process.wait()
    if status:
        sys.exit(f"\ncheck: FAILED at: {step.name} (exit {status})")
    return last


def main() -> None:
    os.chdir(ROOT)
    if arguments := sys.argv[1:]:
        os.execv(sys.executable, python("-m", "pytest", *arguments))
    summary = []
    for step in steps():
        print(f"\n=== {step.name}", flush=True)
        started = time.monotonic()
        last = run(step)
        seconds = time.monotonic() - started
        print(f"--- {step.name}: {seconds:.1f} s", flush=True)
        summary.append((step.name, seconds, last))
    print("\n=== all checks passed")
    for name, seconds, last in summary:
        print(f"{name:<20}{seconds:6.1f} s   {last}")


if __name__ == "__main__":
    main()
