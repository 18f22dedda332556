"""Since when nodes and replicas are missed. Who looks too seldom to know has been away himself, and blames nobody."""

from varlog.base.ids import NodeId, ReplicaId
from varlog.ports import Clock
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks

LACKING_S = 5.0
"""How long a node may list all it has without a replica before that counts as lost."""
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
        self._lacking: dict[tuple[NodeId, ReplicaId], float] = {}
        """Since when a member does not list its replica."""

    def look(self) -> bool:
        """To be called on every turn of the loop. Whether somebody who was missed is back."""
        now = self._clock.now()
        if now - self._looked_at > LATE_LOOKS * self._look_s:
            self._missing.clear()
        self._looked_at = now
        self._lacking = {key: since for key, since in self._lacking.items() if self._links.lacks(*key)}
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

    def lacks(self, node: NodeId, replica: ReplicaId) -> bool:
        """It lists all it has, time and again, without this one: a disk of it was lost, and with it the replica."""
        if not self._links.lacks(node, replica):
            return False
        now = self._clock.now()
        return now - self._lacking.setdefault((node, replica), now) >= LACKING_S
