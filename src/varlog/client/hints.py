"""Which stream a recently acknowledged position went to, so that a read need not ask all of them."""

from collections import deque

from varlog.base.ids import Glsn, StreamId
from varlog.client.limits import HINTS


class Hints:
    """The last acks of a log. A hint saves questions; nothing depends on it."""

    def __init__(self) -> None:
        self._recent: deque[tuple[Glsn, int, StreamId]] = deque(maxlen=HINTS)

    def add(self, first: Glsn, count: int, stream: StreamId) -> None:
        self._recent.append((first, count, stream))

    def stream_of(self, glsn: Glsn) -> StreamId | None:
        for first, count, stream in reversed(self._recent):
            if first <= glsn < first + count:
                return stream
        return None
