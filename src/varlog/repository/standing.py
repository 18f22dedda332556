"""Which nodes one had better not count on just now: they have refused or lost a replica, or were away until just now.

Others are chosen before them, and a log that may go on with fewer copies does so without them. Each mishap counts for
longer than the one before, so that a node which comes and goes, or whose disk fails now and then, does not have every
log go on to another segment each time.

Who cannot go on leading something, mostly because it was started again, is counted on as before, so that a quick
restart costs no copy. But for a while others lead first: a node that crashes again and again ends each segment at whose
head it is.
"""

from varlog.base.ids import NodeId
from varlog.ports import Clock

FIRST_S = 2.0
"""How long the first mishap counts."""
LONGEST_S = 30.0
"""And at most."""
SAME_S = 1.0
"""A mishap so soon after another is the same one: what befalls a node befalls many of its replicas at once."""
POOR_HEAD_S = 30.0
"""How long a lost lead counts."""
FORGOTTEN_AFTER = 10
"""When so many times as long has passed without another, the next one is a first."""


class Standing:
    """Of all nodes, as long as one repository leads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mishaps: dict[NodeId, tuple[float, float]] = {}
        """When the last one was, and for how long it counts."""
        self._lost_lead_at: dict[NodeId, float] = {}

    def mishap(self, node: NodeId) -> None:
        now = self._clock.now()
        since, lasts = self._mishaps.get(node, (now, 0.0))
        if not lasts or now - since >= FORGOTTEN_AFTER * lasts:
            lasts = FIRST_S
        elif now - since >= SAME_S:
            lasts = min(LONGEST_S, 2 * lasts)
        self._mishaps[node] = (now, lasts)

    def is_shaky(self, node: NodeId) -> bool:
        since, lasts = self._mishaps.get(node, (0.0, 0.0))
        return self._clock.now() - since < lasts

    def lost_lead(self, node: NodeId) -> None:
        """It can lead no more what it led."""
        self._lost_lead_at[node] = self._clock.now()

    def is_poor_head(self, node: NodeId) -> bool:
        at = self._lost_lead_at.get(node)
        return at is not None and self._clock.now() - at < POOR_HEAD_S

    def forget(self, node: NodeId) -> None:
        self._mishaps.pop(node, None)
        self._lost_lead_at.pop(node, None)
