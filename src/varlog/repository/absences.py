"""Since when each node is missed. Who looks too seldom to know has been away himself, and blames nobody."""

from varlog.base.ids import NodeId
from varlog.ports import Clock
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks

LATE_LOOKS = 5
"""So many looks late, this process itself was away."""


class Absences:
    """Kept by one loop, which looks every `look_s` seconds."""

    def __init__(self, clock: Clock, catalog: Catalog, links: NodeLinks, look_s: float) -> None:
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self._look_s = look_s
        self._looked_at = clock.now()
        self._missing: dict[NodeId, float] = {}

    def look(self) -> bool:
        """To be called on every turn of the loop. Whether somebody who was missed is back."""
        now = self._clock.now()
        if now - self._looked_at > LATE_LOOKS * self._look_s:
            self._missing.clear()
        self._looked_at = now
        connected = dict.fromkeys(self._links.connected())
        back = False
        for node in self._catalog.nodes:
            if node in connected:
                back |= self._missing.pop(node, None) is not None
            else:
                self._missing.setdefault(node, now)
        return back

    def is_lost(self, node: NodeId, after_s: float) -> bool:
        """Whether it has been away for so long."""
        since = self._missing.get(node)
        return since is not None and self._clock.now() - since >= after_s
