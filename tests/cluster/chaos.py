"""Strikes real processes at random moments: `kill -9`, SIGSTOP and failing disks, the first two undone after a while.

Everything is drawn from a seed. Processes run at their own pace, so a seed gives the same faults but not
the same run.
"""

import heapq
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.cluster.cluster import sleep_until
from tests.cluster.processes import Process

SPREAD = (0.2, 1.8)
"""Shortest and longest time between two strikes, as parts of the mean."""

KILLED_AGAIN = 0.25
"""Share of the killed that are killed once more while they start."""

LOOK_S = 0.1
"""How often it is looked whether what a victim sleeps for has come about."""


@dataclass(frozen=True)
class Fault:
    """Something that is done to one of several processes, now and then."""

    what: str
    """kill, pause, or fail: the disk of a `failing_disk`."""
    victims: Sequence[Process]
    every_s: float
    """Mean time between two of them."""
    lasts_s: float
    """Longest time until it is undone."""
    at_least_s: float = 0.0
    """Shortest."""
    aim: Callable[[], Process] | None = None
    """Whom of the victims to strike; without, any of them."""
    until: Callable[[Process], bool] | None = None
    """What a victim is to sleep for, however long it takes; without, nothing."""


class Chaos:
    """Strikes while it rages, and puts everything right when told to."""

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self._random = Random(seed)
        self._faults = faults
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._done: set[int] = set()
        """Faults that have struck, and brought about what they were to, by their place."""
        self._began = time.monotonic()
        self.struck: Counter[str] = Counter()
        self.story: list[str] = []

    def rage(self, seconds: float) -> None:
        self._began = time.monotonic()
        end = self._began + seconds
        for fault in self._faults:
            self._plan_strike(fault)
        while self._due and (self._due[0][0] < end or self._spared()):
            moment, _, act = heapq.heappop(self._due)
            sleep_until(moment)
            act()
        sleep_until(end)

    def _spared(self) -> bool:
        """Some fault has found nobody whom it could strike, however often it tried: all were down already. Or what its
        victim sleeps for has not come about."""
        return len(self._done) < len(self._faults)

    def heal(self) -> None:
        """Everything is running again."""
        self._due.clear()
        for process in {process: None for fault in self._faults for process in fault.victims}:
            if process.paused:
                self._resume(process)
            if not process.alive:
                self._start(process)

    # ------------------------------------------------------------ planning

    def _plan(self, after_s: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (time.monotonic() + after_s, self._order, act))

    def _plan_strike(self, fault: Fault) -> None:
        self._plan(fault.every_s * self._random.uniform(*SPREAD), lambda: self._strike(fault))

    def _strike(self, fault: Fault) -> None:
        victim = self._random.choice(fault.victims)
        victim = fault.aim() if fault.aim is not None else victim
        lasts = self._random.uniform(fault.at_least_s, fault.lasts_s)
        if victim.alive and not victim.paused:
            if fault.until is None:
                self._done.add(self._faults.index(fault))
            if fault.what == "kill":
                self._kill(victim, lasts)
            elif fault.what == "fail":
                self._note("fail", victim, "with its next sync")
                victim.signal(signal.SIGUSR1)
            else:
                self._note("pause", victim, f"for {lasts:.2f} s")
                victim.pause()
                self._plan(lasts, lambda: self._wake(victim, fault))
        self._plan_strike(fault)

    # ------------------------------------------------------------ acting

    def _kill(self, victim: Process, lasts: float) -> None:
        """Doing nothing to what somebody else killed meanwhile."""
        if not victim.alive:
            return
        self._note("kill", victim, f"down for {lasts:.2f} s")
        victim.kill()
        self._plan(lasts, lambda: self._start(victim))
        if self._random.random() < KILLED_AGAIN:
            again = self._random.uniform(0.0, 0.6)
            self._plan(lasts + again, lambda: self._kill(victim, self._random.uniform(0.0, 0.3)))

    def _start(self, victim: Process) -> None:
        if not victim.alive:
            self._story("start", victim)
            victim.start()

    def _wake(self, victim: Process, fault: Fault) -> None:
        """At once, or when what it sleeps for has come about."""
        if fault.until is None:
            self._resume(victim)
        elif victim.paused and fault.until(victim):
            self._done.add(self._faults.index(fault))
            self._resume(victim)
        elif victim.paused:
            self._plan(LOOK_S, lambda: self._wake(victim, fault))

    def _resume(self, victim: Process) -> None:
        if victim.paused:
            self._story("resume", victim)
            victim.resume()

    def _note(self, what: str, victim: Process, how: str) -> None:
        self.struck[f"{what} {victim.name.rstrip('0123456789')}"] += 1
        self._story(what, victim, how)

    def _story(self, what: str, victim: Process, how: str = "") -> None:
        now = time.monotonic()
        self.story.append(f"{now:.3f} (+{now - self._began:.3f}) {what} {victim} {how}".rstrip())
