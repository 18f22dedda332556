"""Runs seeds: one of them with all its checks, or many on all cores.

A failing seed tells which invariant was violated with what evidence, in which weather, and how to see it again.
"""

import gc
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import process_time

from varlog.base.errors import VarlogError
from varlog.base.invariant import InvariantBroken
from varlog.client import chain
from varlog.sim import bugs
from varlog.sim.bugs.registry import swap
from varlog.sim.checkers import Violation
from varlog.sim.climate import draw
from varlog.sim.loop import Defective, SimulationError, make_loop
from varlog.sim.scenario import Scenario
from varlog.sim.trace import Trace

MAX_STEPS = 500_000
"""Steps of one seed; a usual one takes about 10,000."""

SHOWN_VIOLATIONS = 10
"""Of a failing seed."""


@dataclass(slots=True)
class Result:
    """What came of one seed."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    error: str = ""
    """Why the run itself did not come to its end; empty if it did."""
    weather: str = ""
    summary: str = ""
    """What happened in it, in numbers."""
    faults: dict[str, int] = field(default_factory=dict)
    """How often each kind struck."""
    steps: int = 0
    frames: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    """Of processor time."""
    fingerprint: int = 0
    """Equal for equal runs."""
    plant: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations and not self.error

    @property
    def invariants(self) -> list[str]:
        """Which were violated, sorted; "defect" stands for a run that broke down."""
        return sorted({violation.invariant for violation in self.violations} | ({"defect"} if self.error else set()))

    @property
    def replay(self) -> str:
        plant = f" --plant {self.plant}" if self.plant else ""
        return f"varlog sim --from {self.seed} --seeds 1 --trace{plant}"

    def describe(self) -> str:
        """For people: all there is to say about it."""
        if self.ok:
            return f"seed {self.seed} passes: {self.summary}"
        lines = [f"seed {self.seed} FAILS: {', '.join(self.invariants)}"]
        lines += [f"  {violation}" for violation in self.violations[:SHOWN_VIOLATIONS]]
        if len(self.violations) > SHOWN_VIOLATIONS:
            lines.append(f"  ... and {len(self.violations) - SHOWN_VIOLATIONS} more")
        lines += [f"  {line}" for line in self.error.splitlines()]
        lines += [f"  {line}" for line in self.weather.splitlines()]
        lines += [f"  run      {self.summary}", f"  replay   {self.replay}"]
        return "\n".join(lines)


def run_seed(
    seed: int, *, trace: bool = False, plant: str | None = None, sink: Callable[[str], None] | None = None
) -> Result:
    """Simulate one seed and check everything; `plant` names a bug of `sim.bugs` to run it with."""
    if plant is not None:
        bugs.find(plant)
    started = process_time()
    weather = draw(seed)
    result = Result(seed, weather=weather.describe(), plant=plant or "")
    kept = Trace(on=trace, sink=sink)
    loop = make_loop(max_steps=MAX_STEPS)
    scenario = Scenario(loop, weather, kept)
    gc.collect()
    try:
        # However impatient a client is, who is too slow only loses his place.
        impatient = swap(chain, FILL_SECONDS=weather.shape.fill_seconds)
        with impatient, bugs.planted(plant) if plant else nullcontext():
            try:
                loop.run(scenario.play())
                result.violations = scenario.judge()
            finally:
                loop.close()
    except (SimulationError, InvariantBroken, VarlogError) as error:
        result.error = _explain(error)
    result.summary = scenario.summary()
    result.faults = scenario.faults
    result.steps, result.virtual_seconds = loop.steps, loop.now
    result.frames, result.fingerprint = scenario.cluster.fabric.frames, scenario.cluster.fabric.fingerprint
    result.trace = kept.lines()
    result.seconds = process_time() - started
    return result


def _explain(error: BaseException) -> str:
    """The error and, of one that came out of our code, where it came from."""
    text = f"{type(error).__name__}: {error}"
    cause = error.__cause__ if isinstance(error, Defective) else error
    if cause is not None and cause.__traceback__ is not None:
        frames = traceback.extract_tb(cause.__traceback__)[-6:]
        places = [
            f"{os.path.basename(os.path.dirname(frame.filename))}/{os.path.basename(frame.filename)}"
            for frame in frames
        ]
        text += "".join(
            f"\n  at {place}:{frame.lineno} in {frame.name}" for place, frame in zip(places, frames, strict=True)
        )
    return text


def prepare() -> None:
    """What is loaded now stays: the garbage collector need not look at it between seeds."""
    gc.collect()
    gc.freeze()


def _run_one(job: tuple[int, str | None]) -> Result:
    seed, plant = job
    return run_seed(seed, plant=plant)


def run_seeds(first: int, count: int, jobs: int = 0, *, plant: str | None = None) -> Iterator[Result]:
    """Seeds [first, first + count) on `jobs` processes (0: one per core); results in the order of the seeds."""
    if plant is not None:
        bugs.find(plant)
    jobs = min(jobs or os.cpu_count() or 1, count)
    work = [(seed, plant) for seed in range(first, first + count)]
    if jobs <= 1:
        yield from map(_run_one, work)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=prepare) as pool:
        yield from pool.imap(_run_one, work, chunksize=1)
