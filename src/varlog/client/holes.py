"""Since when the heads of a log's last segment were seen to lack a slot that was granted.

Whoever asks for the tail with little time sees a hole for a moment only, and gives up before it may be filled. So what
he saw is kept for those who come after him, who may be himself.
"""

from varlog.base.ids import Epoch, LogId, Slot, StreamId
from varlog.client.routes import StreamRoute


class Holes:
    """One a stream, as far as anybody saw one; those of the newest segment only."""

    def __init__(self) -> None:
        self._segment: tuple[LogId, Epoch] | None = None
        self._seen: dict[StreamId, tuple[Slot, float]] = {}

    def since(self, route: StreamRoute, missing: Slot, now: float) -> float:
        """When it was first seen that the head of a stream goes on with this slot."""
        segment = (route.log, route.segment)
        if self._segment is None or segment > self._segment:
            self._segment, self._seen = segment, {}
        elif segment != self._segment:
            return now  # it takes no more
        slot, since = self._seen.get(route.id, (Slot(-1), now))
        if slot < missing:
            self._seen[route.id] = missing, now
        return since if slot == missing else now
