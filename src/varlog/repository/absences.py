"""Since when nodes and replicas are missed. Who looks too seldom to know has been away himself, and blames nobody."""

from varlog.base.ids import NodeId, ReplicaId
from varlog.ports import Clock
from varlog.repository.catalog import Catalog
from varlog.repository.links import NodeLinks

LACKING_S = 5.0
"""How long a node may list all it has without a replica before that counts as lost."""
SHORTEST_S = 0.001
"""Between two looks."""
LATE_LOOKS = 5
"""So many looks late, this process itself was away."""


class Absences:
    """Kept by one loop, which looks every `look_s` seconds, or more often."""

    def __init__(self, clock: Clock, catalog: Catalog, links: NodeLinks, look_s: float) -> None:
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self._look_s = look_s
        self._looked_at = clock.now()
        self._missing: dict[NodeId, float] = {}
        self._lacking: dict[tuple[NodeId, ReplicaId], float] = {}
        """Since when a member does not list its replica."""

    def look(self) -> dict[NodeId, float]:
        """To be called on every turn of the loop. Who is back that was missed, and for how long."""
        now, before = self._clock.now(), self._looked_at
        if now - before > LATE_LOOKS * self._look_s:
            self._missing.clear()
            before = now
        self._looked_at = now
        self._lacking = {key: since for key, since in self._lacking.items() if self._links.lacks(*key)}
        connected = dict.fromkeys(self._links.connected())
        back: dict[NodeId, float] = {}
        for node in self._catalog.nodes:
            if node in connected:
                since = self._missing.pop(node, None)
                if since is not None:
                    back[node] = now - since
            else:
                left = self._links.left_at.get(node, now)
                self._missing.setdefault(node, left if left >= before else now)
        return back

    def next_look(self, after_s: float) -> float:
        """Seconds until the next one: sooner than usual if somebody will have been away for so long before."""
        now = self._clock.now()
        left = (since + after_s - now for since in self._missing.values())
        return max(SHORTEST_S, min((self._look_s, *(each for each in left if each > 0))))

    def is_lost(self, node: NodeId, after_s: float) -> bool:
        """Whether it has been away for so long, or was removed, maybe while a stream was being placed on it."""
        if node not in self._catalog.nodes:
            return True
        since = self._missing.get(node)
        return since is not None and self._clock.now() - since >= after_s

    def lacks(self, node: NodeId, replica: ReplicaId) -> bool:
        """It lists all it has, time and again, without this one: a disk of it was lost, and with it the replica."""
        if not self._links.lacks(node, replica):
            return False
        now = self._clock.now()
        return now - self._lacking.setdefault((node, replica), now) >= LACKING_S
