"""Short turns on the processor, for processes that others wait for.

An append passes through five processes, and each has to be given a processor when its message comes. On a busy machine
Linux lets whoever computes finish a turn of some milliseconds first. A process that asks for turns of its own that
are short is let in at once, and gives the processor up as soon: its share of it stays the same (sched_setattr(2),
`sched_runtime` of an ordinary task; Linux 6.12 and later, ignored before).
"""

import ctypes
import platform
import sys
from struct import Struct

TURN_NS = 1_000_000
"""Nanoseconds of the turns asked for; the kernel takes 0.1 to 100 ms, and gives 3 ms or so unasked."""

_CALLS = {"x86_64": (315, 314), "aarch64": (275, 274)}
"""The numbers of sched_getattr and sched_setattr."""

_ATTRIBUTES = Struct("<IIQiIQQQ")
"""Size, policy, flags, nice, priority, runtime, deadline, period."""

_ORDINARY = 0
"""The policy of tasks that asked for nothing else."""


def ask_for_short_turns() -> bool:
    """For this thread and all that it starts later. False: there is no such thing here, and nothing has changed."""
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        return False
    get, put = _CALLS[platform.machine()]
    system = ctypes.CDLL(None).syscall
    buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if system(get, 0, buffer, _ATTRIBUTES.size, 0) != 0:
        return False
    _, policy, flags, nice, priority, _, deadline, period = _ATTRIBUTES.unpack(buffer.raw)
    if policy != _ORDINARY:
        return False  # somebody has chosen for us
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, flags, nice, priority, TURN_NS, deadline, period)
    return bool(system(put, 0, ctypes.create_string_buffer(wanted), 0) == 0)
