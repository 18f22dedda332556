"""Long work on the event loop, in pieces: others have their turn between them.

What waits for the disk or the network gives way by itself; what goes through bytes that are in memory never does.
"""

from collections.abc import Generator
from types import coroutine


@coroutine
def give_way() -> Generator[None]:
    """Go on in the next turn of the loop, behind all that is ready by now."""
    yield
