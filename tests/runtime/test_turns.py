"""Asking the kernel for short turns: it works or does nothing, and changes nothing else."""

import os
import subprocess
import sys

import pytest

from varlog.runtime import turns

PROGRAM = """
import os
from varlog.runtime.turns import ask_for_short_turns
os.nice(3)
print(ask_for_short_turns(), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_policy_and_nice_value_stay_as_they_are() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    _, policy, nice = done.stdout.split()
    assert (int(policy), int(nice)) == (os.sched_getscheduler(0), min(19, before + 3))


def test_a_machine_we_know_nothing_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_CALLS", {})
    assert not turns.ask_for_short_turns()
