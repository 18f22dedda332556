"""A process that asks for it is tuned; one that does not is left as it was."""

import subprocess
import sys

PROGRAM = """
import gc
before = gc.get_threshold()
import varlog
varlog.connect
print(gc.get_threshold() == before, gc.get_freeze_count() == 0)
varlog.tune_process()
print(gc.get_threshold()[0] > before[0], gc.get_freeze_count() > 1000, gc.isenabled())
"""


def test_only_who_asks_is_tuned() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 5
