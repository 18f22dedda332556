"""Memory that a server keeps for itself.

Batches come and go by the megabyte. The allocator gives such pieces back to the system as they are freed, and takes
them again for the next batch, whose every page is then missing at its first touch: a trap into the kernel each,
a dear one on virtual machines. A server keeps what it used lately (mallopt(3); glibc only, ignored elsewhere).
"""

import ctypes
import sys

KEPT_BYTES = 64 << 20
"""Free memory at the end of the heap beyond which it is given back."""

LARGEST_PIECE_BYTES = 32 << 20
"""Larger pieces are taken from the system one by one, and given back at once; glibc takes no greater value."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""As <malloc.h> numbers them."""


def keep_memory() -> bool:
    """For the rest of this process's life. False: its allocator knows no such thing, and nothing has changed."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = mallopt(_MMAP_THRESHOLD, LARGEST_PIECE_BYTES)
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and taken)
