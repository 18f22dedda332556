"""A server keeps the memory that it used lately, and touches it again without a trap into the kernel."""

import platform
import subprocess
import sys

PROGRAM = """
import resource
from varlog.runtime.memory import keep_memory
kept = keep_memory()
PIECE, ROUNDS = 8 << 20, 4
def batches():
    pieces = [bytearray(PIECE) for _ in range(3)]
batches()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(ROUNDS):
    batches()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, faults)
"""


def test_what_was_freed_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    assert kept == str(platform.libc_ver()[0] == "glibc")
    if kept == "True":
        assert int(faults) < 1000  # of 24 thousand pages that were touched
