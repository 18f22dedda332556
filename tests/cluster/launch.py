"""Become the given command, as a child that is killed when its parent ends, however that ends.

    python launch.py PARENT_PID COMMAND ...

A parent that is itself killed cannot clean up; the kernel then does (`PR_SET_PDEATHSIG`, which outlives
`exec`). Works on stopped processes too. Where the kernel has no such thing, the parent's own care must do.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("launch: the parent has ended already")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
